"""From a TOML file to a `Config`, with every problem named by its path."""

from __future__ import annotations

from pathlib import Path

from penstock.config.schema import Config
from penstock_codecs.toml import TomlError as ConfigError
from penstock_codecs.toml import decode_toml, parse_toml

__all__ = ["ConfigError", "load_config", "parse_config"]


def load_config(path: Path) -> Config:
    """Read a configuration file. Raises ConfigError where it cannot be read or used."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be read: {error.strerror}"]) from error
    return decode_toml(data, Config, str(path))


def parse_config(text: str, source: str = "configuration") -> Config:
    """Read a configuration from TOML text; `source` names it in errors. Raises ConfigError with all problems."""
    return parse_toml(text, Config, source)
