"""Durable Streams in the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock_codecs.limits import MAX_BATCH_RECORDS, MIB
from penstock_spark.clients.plugin import AppendLimits, ClientPlugin, Deduplication, Endpoint, Scheme

if TYPE_CHECKING:
    from penstock_spark.clients.base import StreamClient

__all__ = ["PLUGIN"]


def _open(endpoint: Endpoint) -> StreamClient:
    from penstock_spark.clients.durable.client import DurableStreamClient

    return DurableStreamClient(endpoint)


PLUGIN: Final = ClientPlugin(
    open=_open,
    schemes={"durable": Scheme(4437), "durables": Scheme(4437, tls=True)},
    lists=False,
    basins=False,
    appends=Deduplication.NUMBERED,
    limits=AppendLimits(MAX_BATCH_RECORDS, 1 * MIB, 1 * MIB - 64),
)
