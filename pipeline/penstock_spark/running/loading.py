"""Load `JobSettings` from a TOML file, reporting every fault with its place."""

from __future__ import annotations

from pathlib import Path

from penstock.wire.toml import TomlError as SettingsError
from penstock.wire.toml import decode_toml, parse_toml
from penstock_spark.running.settings import JobSettings

__all__ = ["SettingsError", "load_settings", "parse_settings"]


def load_settings(path: Path) -> JobSettings:
    """Read a file. Raises SettingsError if it cannot be read or used."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SettingsError(str(path), [f"cannot be read: {error.strerror}"]) from error
    return decode_toml(data, JobSettings, str(path))


def parse_settings(text: str, source: str = "settings") -> JobSettings:
    """Read settings from TOML text; `source` names it in errors. Raises SettingsError with all problems."""
    return parse_toml(text, JobSettings, source)
