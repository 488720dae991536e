"""Reads a TOML file into a `Config`, naming every problem by its path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.app.config.schema import Config
from penstock.core.config_fields import has
from penstock.wire.toml import TomlError as ConfigError
from penstock.wire.toml import decode_toml, parse_toml
from penstock.wire.toml.hints import hints_of

__all__ = ["ConfigError", "load_config", "parse_config"]


def load_config(path: Path) -> Config:
    """Read a configuration file; its relative paths are relative to its directory. Raises ConfigError if it cannot be
    read or is invalid."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be read: {error.strerror}"]) from error
    config = decode_toml(data, Config, str(path))
    directory = path.absolute().parent
    return config if directory == Path.cwd() else _located(config, directory)


def _located(value: Any, directory: Path) -> Any:
    """Return a table with its relative paths, and those of its inner tables, resolved against `directory`; any other
    value as it is."""
    if isinstance(value, tuple):
        return tuple(_located(element, directory) for element in value)
    if isinstance(value, dict):
        return {name: _located(element, directory) for name, element in value.items()}
    if not isinstance(value, msgspec.Struct):
        return value
    hints = hints_of(type(value))
    members = {name: getattr(value, name) for name in value.__struct_fields__}
    changed = {
        name: _path(element, directory) if has(hints[name], "path") else _located(element, directory)
        for name, element in members.items()
    }
    return replace(value, **{name: element for name, element in changed.items() if element != members[name]})


def _path(text: str | None, directory: Path) -> str | None:
    if not text:
        return text
    if ".." in Path(text).parts:  # ".." must follow links in the directory's own name
        directory = directory.resolve()
    return os.path.normpath(directory / text)


def parse_config(text: str, source: str = "configuration") -> Config:
    """Parse a configuration from TOML text; `source` names it in errors. Raises ConfigError with all problems."""
    return parse_toml(text, Config, source)
