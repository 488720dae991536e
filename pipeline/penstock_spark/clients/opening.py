"""The client for an endpoint."""

from __future__ import annotations

from penstock_codecs.failures import FailureCode, fail
from penstock_spark.clients.base import StreamClient
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.s2 import S2Client

__all__ = ["open_client"]

_CLIENTS = {"s2s": S2Client}
"""By protocol."""


def open_client(endpoint: Endpoint) -> StreamClient:
    """A client that speaks the endpoint's protocol. It connects when it is first used."""
    make = _CLIENTS.get(endpoint.protocol)
    if make is None:
        raise fail(FailureCode.NOT_IMPLEMENTED, f"{endpoint}: there is no client for {endpoint.protocol}")
    return make(endpoint)
