"""Configuration: one TOML file, read into typed frozen structs."""

from penstock.config.access import Access
from penstock.config.address import Address
from penstock.config.backs import EMBEDDED, BackTable, S2Back, S2SseBack, S3PBack, SegmentBack
from penstock.config.faults import FaultTable
from penstock.config.listeners import (
    AnyListener,
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
from penstock.config.management import Management
from penstock.config.recorder import RecorderTable, RedactTable
from penstock.config.routes import IdentityTable, RouteTable
from penstock.config.schema import Basin, Config, Drain, Log, Reload, Store, default_config

__all__ = [
    "EMBEDDED",
    "Access",
    "Address",
    "AnyListener",
    "BackTable",
    "Basin",
    "Config",
    "ConfigError",
    "ControllerLimits",
    "ControllerListener",
    "Drain",
    "FaultTable",
    "IdentityTable",
    "Listeners",
    "Log",
    "Management",
    "RecorderTable",
    "RedactTable",
    "Reload",
    "RouteTable",
    "S2Back",
    "S2Limits",
    "S2Listener",
    "S2SseBack",
    "S3PBack",
    "S3PLimits",
    "S3PListener",
    "S3PLoss",
    "SegmentBack",
    "SegmentLimits",
    "SegmentListener",
    "SegmentLoss",
    "Store",
    "default_config",
    "load_config",
    "parse_config",
]
