"""All looks, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from penstock.config import Config, ConfigError, default_config, load_config
from penstock.doctor.certificates import about_certificates
from penstock.doctor.disk import about_data
from penstock.doctor.findings import Finding, fine, wrong
from penstock.doctor.machine import about_clock, about_descriptors, about_extras, about_memory, about_versions
from penstock.doctor.network import about_backs, about_ports
from penstock.errors import CannotStart
from penstock.wiring import check_files

__all__ = ["LOOKS", "examine"]

LOOKS: Final[tuple[Callable[[Config | None], Iterable[Finding]], ...]] = (
    about_versions,
    about_descriptors,
    about_memory,
    about_clock,
    about_data,
    about_ports,
    about_certificates,
    about_backs,
    about_extras,
)
"""Each is given the configuration, None where it cannot be used, and says what it found."""


def examine(path: Path | None) -> Iterator[Finding]:
    """Look at everything; `path`: of the configuration, None: the built-in one."""
    config, finding = _configuration(path)
    yield finding
    for look in LOOKS:
        yield from look(config)


def _configuration(path: Path | None) -> tuple[Config | None, Finding]:
    called = "the built-in configuration" if path is None else str(path)
    try:
        config = default_config() if path is None else load_config(path)
    except ConfigError as error:
        said = " ".join(str(error).split())
        return None, wrong("configuration", said, "`penstock check` says it with more room.")
    try:
        check_files(config)
    except (CannotStart, ValueError) as error:
        return config, wrong("configuration", str(error), "Mend what it names.")
    return config, fine("configuration", f"{called} is valid")
