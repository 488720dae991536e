"""Configuration: one TOML file, read into typed frozen structs."""

from penstock.config.address import Address
from penstock.config.listeners import (
    ControllerLimits,
    ControllerListener,
    Listeners,
    S2Limits,
    S2Listener,
    S3PLimits,
    S3PListener,
    S3PLoss,
    SegmentLimits,
    SegmentListener,
    SegmentLoss,
)
from penstock.config.loading import ConfigError, load_config, parse_config
from penstock.config.schema import Basin, Config, Drain, Log, Store, default_config

__all__ = [
    "Address",
    "Basin",
    "Config",
    "ConfigError",
    "ControllerLimits",
    "ControllerListener",
    "Drain",
    "Listeners",
    "Log",
    "S2Limits",
    "S2Listener",
    "S3PLimits",
    "S3PListener",
    "S3PLoss",
    "SegmentLimits",
    "SegmentListener",
    "SegmentLoss",
    "Store",
    "default_config",
    "load_config",
    "parse_config",
]
