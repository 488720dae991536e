"""Configurations in TOML, checked."""

from penstock.wire.toml.checking import TomlError, decode_toml, parse_toml

__all__ = ["TomlError", "decode_toml", "parse_toml"]
