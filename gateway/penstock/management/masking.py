"""What is in force, for eyes that need not see its secrets."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import tomli_w

from penstock.config import Config
from penstock.config.urls import MASKED, without_secrets

__all__ = ["MASKED", "as_toml", "masked"]

_SECRET: Final = re.compile(r"(^|_)(tokens?|passwords?|password_hash|secrets?)\Z")
"""Keys that hold secrets. Those that name a file of them end otherwise."""


def masked(config: Config) -> dict[str, Any]:
    """The configuration as JSON has it, without what is not set, each secret replaced by MASKED."""
    shown = _shown(msgspec.to_builtins(config), secret=False)
    assert isinstance(shown, dict), "a configuration is a table"
    return shown


def as_toml(shown: dict[str, Any]) -> str:
    """The same as TOML. But for the secrets, and for what flags said, it could be the configuration file."""
    return tomli_w.dumps(shown)


def _shown(value: object, *, secret: bool) -> object:
    if isinstance(value, dict):
        return {
            key: _shown(inner, secret=secret or _SECRET.search(key) is not None)
            for key, inner in value.items()
            if inner is not None
        }
    if isinstance(value, list | tuple):
        return [_shown(inner, secret=secret) for inner in value]
    if not isinstance(value, str):
        return value
    return MASKED if secret else without_secrets(value)
