"""The gateway's configuration: TOML of any kind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import tomli_w

from penstock.app.config import Config, ConfigError
from penstock.wire.toml import decode_toml

EXAMPLES: Final = Path(__file__).parents[3] / "config"
WORDS: Final = tuple(
    sorted(
        word.encode()
        for word in set(re.findall(r"^#? ?(\[[\w.\[\]]+\]|\w+ = \S+)$", (EXAMPLES / "gateway.toml").read_text(), re.M))
    )
)


def seeds() -> Iterator[bytes]:
    """Yield the tables of the example configurations, one by one; the shortest values of keys are the default ones."""
    for path in sorted(EXAMPLES.glob("*.toml")):
        lines = [line.strip() for line in path.read_text().splitlines()]
        text = "\n".join(line for line in lines if line and not line.startswith("#"))
        for table in re.split(r"\n(?=\[)", text):
            yield table.encode()


def check(data: bytes) -> None:
    """Check that text is refused with all its problems named, or gives a configuration whose TOML gives it again."""
    try:
        config = decode_toml(data, Config, "configuration")
    except ConfigError as error:
        assert error.problems and all(error.problems)
        return
    text = tomli_w.dumps(_without_unset(msgspec.to_builtins(config)))
    again = decode_toml(text.encode(), Config, "configuration")
    assert again == config, f"{config} became {again}"


def _without_unset(value: object) -> object:
    """Return a value without the keys that are None, which TOML does not have."""
    if isinstance(value, dict):
        return {key: _without_unset(inner) for key, inner in value.items() if inner is not None}
    return [_without_unset(inner) for inner in value] if isinstance(value, list | tuple) else value
