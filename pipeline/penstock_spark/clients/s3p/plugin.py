"""S3P in the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock_spark.clients.plugin import ClientPlugin, Endpoint, Scheme

if TYPE_CHECKING:
    from penstock_spark.clients.base import StreamClient

__all__ = ["PLUGIN"]


def _open(endpoint: Endpoint) -> StreamClient:
    from penstock_spark.clients.s3p.client import S3PStreamClient

    return S3PStreamClient(endpoint)


PLUGIN: Final = ClientPlugin(
    open=_open,
    schemes={"s3p": Scheme(7500), "s3ps": Scheme(7500, tls=True)},
    bounds=frozenset({"seq_num", "timestamp"}),
    lists=False,
    basins=False,
    no_appends="S3P has no conditional appends, so rows would be duplicated when Spark repeats a task; write over S2S "
    "(http://) to a gateway that stores the stream, whose S3P clients can read it",
)
