"""Open the client for an endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final, cast

from penstock_codecs.failures import FailureCode, fail
from penstock_spark.clients.base import StreamClient
from penstock_spark.clients.endpoint import Endpoint

__all__ = ["open_client"]

_CLIENTS: Final[Mapping[str, tuple[str, str]]] = {
    "s2s": ("penstock_spark.clients.s2", "S2Client"),
    "s3p": ("penstock_spark.clients.s3p", "S3PStreams"),
    "segment": ("penstock_spark.clients.segment", "SegmentStreams"),
}
"""Modules and client classes by protocol. A process imports the one that it needs: all three take 0.45 s."""


def open_client(endpoint: Endpoint) -> StreamClient:
    """Return a client that speaks the endpoint's protocol. It connects on first use."""
    if endpoint.protocol not in _CLIENTS:
        raise fail(FailureCode.NOT_IMPLEMENTED, f"{endpoint}: there is no client for {endpoint.protocol}")
    module, name = _CLIENTS[endpoint.protocol]
    return cast(StreamClient, getattr(import_module(module), name)(endpoint))
