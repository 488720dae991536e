"""Configuration: one TOML file, parsed into typed frozen structs."""

from penstock.app.config.access import Access
from penstock.app.config.backs import EMBEDDED, BackTable, kind_of_back
from penstock.app.config.faults import FaultTable
from penstock.app.config.listeners import Listeners, listener_kind_of
from penstock.app.config.loading import ConfigError, load_config, parse_config
from penstock.app.config.management import Management
from penstock.app.config.recorder import RecorderTable, RedactTable
from penstock.app.config.routes import IdentityTable, RouteTable
from penstock.app.config.schema import (
    BasinTable,
    Config,
    DrainTable,
    LogTable,
    ReloadTable,
    StoreTable,
    StreamTable,
    default_config,
    tokens_in_state,
    view_of,
)
from penstock.core.address import Address

__all__ = [
    "EMBEDDED",
    "Access",
    "Address",
    "BackTable",
    "BasinTable",
    "Config",
    "ConfigError",
    "DrainTable",
    "FaultTable",
    "IdentityTable",
    "Listeners",
    "LogTable",
    "Management",
    "RecorderTable",
    "RedactTable",
    "ReloadTable",
    "RouteTable",
    "StoreTable",
    "StreamTable",
    "default_config",
    "kind_of_back",
    "listener_kind_of",
    "load_config",
    "parse_config",
    "tokens_in_state",
    "view_of",
]
