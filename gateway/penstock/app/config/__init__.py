"""Configuration: one TOML file, parsed into typed frozen structs."""

from penstock.app.config.access import Access
from penstock.app.config.backs import EMBEDDED, BackTable, S2Back, S2SseBack, S3PBack, SegmentBack
from penstock.app.config.faults import FaultTable
from penstock.app.config.listeners import (
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
from penstock.app.config.loading import ConfigError, load_config, parse_config
from penstock.app.config.management import Management
from penstock.app.config.recorder import RecorderTable, RedactTable
from penstock.app.config.routes import IdentityTable, RouteTable
from penstock.app.config.schema import Basin, Config, Drain, Log, Reload, Store, default_config
from penstock.core.address import Address

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
