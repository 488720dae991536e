"""Configurations in TOML, checked."""

from penstock_codecs.toml.checking import TomlError, decode_toml, parse_toml

__all__ = ["TomlError", "decode_toml", "parse_toml"]
