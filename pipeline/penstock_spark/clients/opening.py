"""Open the client for an endpoint."""

from __future__ import annotations

from penstock_codecs.failures import FailureCode, fail
from penstock_spark.clients.base import StreamClient
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.plugin import plugins

__all__ = ["open_client"]


def open_client(endpoint: Endpoint) -> StreamClient:
    """Return a client that speaks the endpoint's protocol. It connects on first use."""
    plugin = plugins().get(endpoint.protocol)
    if plugin is None:
        raise fail(FailureCode.NOT_IMPLEMENTED, f"{endpoint}: there is no client for {endpoint.protocol}")
    return plugin.open(endpoint)
