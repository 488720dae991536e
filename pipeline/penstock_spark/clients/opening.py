"""The client for an endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock_codecs.failures import FailureCode, fail
from penstock_spark.clients.base import StreamClient
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.s2 import S2Client
from penstock_spark.clients.s3p import S3PStreams
from penstock_spark.clients.segment import SegmentStreams

__all__ = ["open_client"]

_CLIENTS: Final[Mapping[str, Callable[[Endpoint], StreamClient]]] = {
    "s2s": S2Client,
    "s3p": S3PStreams,
    "segment": SegmentStreams,
}
"""By protocol."""


def open_client(endpoint: Endpoint) -> StreamClient:
    """A client that speaks the endpoint's protocol. It connects when it is first used."""
    make = _CLIENTS.get(endpoint.protocol)
    if make is None:
        raise fail(FailureCode.NOT_IMPLEMENTED, f"{endpoint}: there is no client for {endpoint.protocol}")
    return make(endpoint)
