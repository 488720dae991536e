"""S2 in the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock_codecs.limits import MAX_BATCH_BYTES, MAX_BATCH_RECORDS
from penstock_spark.clients.plugin import AppendLimits, ClientPlugin, Deduplication, Endpoint, Scheme

if TYPE_CHECKING:
    from penstock_spark.clients.base import StreamClient

__all__ = ["PLUGIN"]


def _open(endpoint: Endpoint) -> StreamClient:
    from penstock_spark.clients.s2.client import S2StreamClient

    return S2StreamClient(endpoint)


def _check_basin(name: str) -> None:
    from penstock_codecs.failures import FailureCode, OperationFailed
    from penstock_codecs.names import validate_basin_name

    try:
        validate_basin_name(name, FailureCode.INVALID)
    except OperationFailed as error:
        raise ValueError(error.failure.message) from None


PLUGIN: Final = ClientPlugin(
    open=_open,
    schemes={"http": Scheme(80), "https": Scheme(443, tls=True)},
    assumed=True,
    basin_hosts=True,
    bounds=frozenset({"seq_num", "timestamp"}),
    headers=True,
    appends=Deduplication.EXPECTED,
    limits=AppendLimits(MAX_BATCH_RECORDS, MAX_BATCH_BYTES, MAX_BATCH_BYTES),
    check_basin=_check_basin,
)
