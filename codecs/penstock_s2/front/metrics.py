"""Metrics of the account, of basins and of streams (S2 fact sheet 1.3), from the back's account of its use.

A back without such an account, and what is unknown to it, gives empty sets, never an error.
"""

from __future__ import annotations

import time
from typing import Final, TypeVar

from penstock.core.back import Back
from penstock.core.identity import CLIENT
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Operation
from penstock.model.records import StreamRef
from penstock.model.usage_operations import GetStorage, GetUsage, ListActiveBasins, Points, UsageKind
from penstock_s2.codec.metrics import (
    AccountMetricSet,
    BasinMetricSet,
    MetricsRequest,
    StreamMetricSet,
    decode_metrics_query,
    encode_accumulations,
    encode_gauge,
    encode_label,
)
from penstock_s2.front.call import JSON, S2Call

__all__ = ["MetricsEndpoints"]

R = TypeVar("R")

_BYTES: Final = "bytes"
_OPERATIONS: Final = "operations"
_KINDS: Final = {
    BasinMetricSet.APPEND_OPS: (UsageKind.APPENDS, _OPERATIONS, ("standard", "express")),
    BasinMetricSet.READ_OPS: (UsageKind.READS, _OPERATIONS, ("streaming", "unary")),
    BasinMetricSet.READ_THROUGHPUT: (UsageKind.READ_BYTES, _BYTES, ("",)),
    BasinMetricSet.APPEND_THROUGHPUT: (UsageKind.APPENDED_BYTES, _BYTES, ("standard", "express")),
    BasinMetricSet.BASIN_OPS: (UsageKind.OPERATIONS, _OPERATIONS, ()),
}
"""The figures of a set: what they count, their unit, and the series that are there even without points."""


class MetricsEndpoints:
    """Endpoints of metrics over one back."""

    def __init__(self, back: Back) -> None:
        self._back = back

    async def account(self, call: S2Call) -> None:
        """GET /v1/metrics"""
        wanted, query = decode_metrics_query(call.query(), AccountMetricSet, int(time.time()))
        if wanted is AccountMetricSet.ACTIVE_BASINS:
            basins = await self._ask(ListActiveBasins(query.start, query.end), [])
            body = encode_label("active_basins", basins)
        elif wanted is AccountMetricSet.ACCOUNT_OPS:
            body = await self._accumulated("", UsageKind.OPERATIONS, _OPERATIONS, (), query)
        else:
            body = encode_accumulations({"total": []}, "usd", query.interval)  # nothing is billed
        await call.respond(200, body, JSON)

    async def basin(self, call: S2Call) -> None:
        """GET /v1/metrics/{basin}"""
        basin = call.basin()
        wanted, query = decode_metrics_query(call.query(), BasinMetricSet, int(time.time()))
        if wanted is BasinMetricSet.STORAGE:
            body = await self._storage(StreamRef(basin, ""), query)
        else:
            body = await self._accumulated(basin, *_KINDS[wanted], query)
        await call.respond(200, body, JSON)

    async def stream(self, call: S2Call) -> None:
        """GET /v1/metrics/{basin}/{stream}"""
        _, query = decode_metrics_query(call.query(), StreamMetricSet, int(time.time()))
        body = await self._storage(CLIENT.get().place(call.stream()), query)
        await call.respond(200, body, JSON)

    async def _accumulated(
        self, basin: str, kind: UsageKind, unit: str, names: tuple[str, ...], query: MetricsRequest
    ) -> bytes:
        operation = GetUsage(basin, kind, query.start, query.end, query.seconds)
        points_by_name: dict[str, Points] = dict.fromkeys(names, ())
        points_by_name.update(await self._ask(operation, {}))
        series = {name or kind.value: points for name, points in points_by_name.items()}
        return encode_accumulations(series, unit, query.interval)

    async def _storage(self, stream: StreamRef, query: MetricsRequest) -> bytes:
        points = await self._ask(GetStorage(stream, query.start, query.end, query.seconds), ())
        return encode_gauge("storage", _BYTES, points)

    async def _ask(self, operation: Operation[R], otherwise: R) -> R:
        try:
            return await self._back.perform(operation)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.NOT_IMPLEMENTED:
                raise
            return otherwise
