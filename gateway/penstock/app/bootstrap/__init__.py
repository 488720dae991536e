"""Builds the parts that a configuration names; the only package that knows both."""

from penstock.app.bootstrap.faults import fault_settings
from penstock.app.bootstrap.files import check_files, tls_of
from penstock.app.bootstrap.listeners import open_listeners
from penstock.app.bootstrap.recorder import backs_of_routes, open_recordings, recording_rules
from penstock.app.bootstrap.router import RouterPlan, Routing, open_router, open_routing
from penstock.app.bootstrap.store import apply_resources, open_store, store_settings

__all__ = [
    "RouterPlan",
    "Routing",
    "apply_resources",
    "backs_of_routes",
    "check_files",
    "fault_settings",
    "open_listeners",
    "open_recordings",
    "open_router",
    "open_routing",
    "open_store",
    "recording_rules",
    "store_settings",
    "tls_of",
]
