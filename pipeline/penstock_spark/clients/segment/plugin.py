"""The segment protocol in the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock_codecs.limits import MAX_BATCH_RECORDS, MIB
from penstock_codecs.segment.limits import SEGMENT_MAX_EVENT
from penstock_spark.clients.plugin import AppendLimits, ClientPlugin, Deduplication, Endpoint, Scheme

if TYPE_CHECKING:
    from penstock_spark.clients.base import StreamClient

__all__ = ["PLUGIN"]


def _open(endpoint: Endpoint) -> StreamClient:
    from penstock_spark.clients.segment.client import SegmentStreamClient

    return SegmentStreamClient(endpoint)


PLUGIN: Final = ClientPlugin(
    open=_open,
    schemes={
        "segment": Scheme(12345),
        "segments": Scheme(12345, tls=True),
        "pravega": Scheme(9090, directory=True),
        "pravegas": Scheme(9090, tls=True, directory=True),
    },
    bounds=frozenset({"seq_num", "offset"}),
    appends=Deduplication.NUMBERED,
    limits=AppendLimits(MAX_BATCH_RECORDS, 1 * MIB, SEGMENT_MAX_EVENT),
)
