"""Configuration: one TOML file, read into typed frozen structs."""

from penstock.config.address import Address
from penstock.config.loading import ConfigError, load_config, parse_config
from penstock.config.schema import (
    Basin,
    Config,
    Drain,
    Listeners,
    Log,
    S2Limits,
    S2Listener,
    S3PLimits,
    S3PListener,
    S3PLoss,
    Store,
    default_config,
)

__all__ = [
    "Address",
    "Basin",
    "Config",
    "ConfigError",
    "Drain",
    "Listeners",
    "Log",
    "S2Limits",
    "S2Listener",
    "S3PLimits",
    "S3PListener",
    "S3PLoss",
    "Store",
    "default_config",
    "load_config",
    "parse_config",
]
