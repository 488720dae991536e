"""The client for an endpoint."""

from __future__ import annotations

from penstock_spark.clients.base import StreamClient
from penstock_spark.clients.endpoint import Endpoint

__all__ = ["open_client"]


def open_client(endpoint: Endpoint) -> StreamClient:
    """A client that speaks the endpoint's protocol. It connects when it is first used."""
    raise NotImplementedError(endpoint)
