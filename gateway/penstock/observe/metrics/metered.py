"""Metered sessions and operations: measured on their way to a back, at the point that all clients' work passes and
where route and back are known.

Compared with a gateway without measurements, S2S appends and reads in batches of 100 records of 1 KiB took 1.00 and
0.95 times the processor time (medians of ten pairs of runs): the cost cannot be distinguished from noise.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager
from time import perf_counter
from types import TracebackType
from typing import Any, Final, TypeVar

from penstock.core.back import AppendSession, AppendSessionWrapper, Following, ReadSession, ReadSessionWrapper
from penstock.core.passthrough import RawSession
from penstock.model.byte_operations import AppendBytes, BytesRead, ReadBytes
from penstock.model.failures import OperationFailed
from penstock.model.operations import Append, Appended, Operation, restamped_records
from penstock.model.records import RecordBatch
from penstock.observe.metrics.meters import FlowMeters, Meter, snake_case
from penstock.observe.metrics.spans import AppendGroups, SessionSpan, operation_span
from penstock.observe.tracing import tracer
from penstock.wire.http import Buffer, FramePieces, ResponseHead

__all__ = ["metered_appends", "metered_operation", "metered_passage", "metered_reads"]

R = TypeVar("R")
S = TypeVar("S")

Timestamps = Sequence[int | None] | None
_APPENDS: Final = (Append, AppendBytes)
_WAITED: Final = 0.001
"""Seconds; a send that took less did not wait for back-pressure."""


def _size(append: Append | AppendBytes) -> int:
    return len(append.data) if isinstance(append, AppendBytes) else append.metered


# ---- operations ----------------------------------------------------------------------------------------------------


async def metered_operation(meter: Meter, operation: Operation[R], carried_out: Awaitable[R]) -> R:
    """Return the result of `carried_out`, which carries the operation out, measured."""
    began = perf_counter()
    by = tracer()
    if by is not None:
        carried_out = operation_span(by, meter, snake_case(type(operation).__name__), carried_out)
    try:
        result = await carried_out
    except OperationFailed as error:
        meter.failed(error.failure.code)
        raise
    seconds = perf_counter() - began
    if isinstance(operation, _APPENDS):
        meter.append_seconds.observe(seconds)
        if isinstance(result, Appended):
            _count(meter, result, _size(operation), _timestamps(operation))
    elif isinstance(operation, ReadBytes):
        _count_bytes(meter, operation, result, seconds)
    else:
        meter.seconds_of(type(operation)).observe(seconds)
    return result


def _timestamps(append: Append | AppendBytes) -> Timestamps:
    return append.timestamps if isinstance(append, Append) else None


def _count(meter: Meter, appended: Appended, size: int, timestamps: Timestamps) -> None:
    """Count an append of `size` bytes; `timestamps`: those that its client gave to its records."""
    flow = meter.appends
    flow.records.value += appended.end.seq_num - appended.start.seq_num
    flow.bytes.value += size
    flow.batches.value += 1
    if timestamps is not None:
        meter.restamped.value += restamped_records(timestamps, appended)


def _count_bytes(meter: Meter, read: ReadBytes, result: object, seconds: float) -> None:
    if not read.wait:  # a read that waits measures only the time until the next append
        meter.first_read.observe(seconds)
    if isinstance(result, BytesRead) and result.data:
        meter.reads.bytes.value += len(result.data)
        meter.reads.batches.value += 1


# ---- sessions ------------------------------------------------------------------------------------------------------


class _Entered(AbstractAsyncContextManager[S]):
    """A session while its block runs: counted as open; a failure to begin counts as an error."""

    __slots__ = ("_began", "_entering", "_flow", "_meter", "_span")

    def __init__(self, entering: AbstractAsyncContextManager[Any], meter: Meter, flow: FlowMeters) -> None:
        self._entering = entering
        self._meter = meter
        self._flow = flow
        self._began = 0.0
        self._span: SessionSpan | None = None

    async def __aenter__(self) -> S:
        self._began = perf_counter()
        by = tracer()
        if by is not None:
            self._span = SessionSpan(by, self._meter, f"session {'in' if self._flow is self._meter.appends else 'out'}")
        try:
            inner = await self._entering.__aenter__()
        except BaseException as error:
            self._end_span(error)
            if isinstance(error, OperationFailed):
                self._meter.failed(error.failure.code)
            raise
        self._flow.sessions.value += 1
        return self._session(inner)

    @abstractmethod
    def _session(self, inner: Any) -> S:
        """Return the session, measured."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._flow.sessions.value -= 1
        try:
            return await self._entering.__aexit__(kind, error, traceback)
        finally:
            self._end_span(error)

    def _end_span(self, error: BaseException | None) -> None:
        if self._span is not None:
            if isinstance(error, Exception):
                self._span.fail(str(error.failure) if isinstance(error, OperationFailed) else type(error).__name__)
            self._span.end()


class _Appends(AppendSessionWrapper):
    def __init__(self, inner: AppendSession, meter: Meter, groups: AppendGroups | None) -> None:
        super().__init__(inner)
        self._meter = meter
        self._groups = groups  # None: tracing is off
        self._sent: deque[tuple[float, int, Timestamps]] = deque()  # of each unacknowledged append, with its send time

    async def send(self, append: Append | AppendBytes) -> None:
        began = perf_counter()
        sent = (began, _size(append), _timestamps(append))
        self._sent.append(sent)  # before sending: it may be acknowledged before `send` returns
        if self._groups is not None:
            self._groups.sent()
        try:
            await self._inner.send(append)
        except BaseException:
            if sent in self._sent:
                self._sent.remove(sent)
            raise
        waited = perf_counter() - began
        if waited > _WAITED:
            self._meter.append_wait.value += waited

    async def receive(self) -> list[Appended]:
        try:
            acknowledged = await self._inner.receive()
        except OperationFailed as error:
            self._meter.failed(error.failure.code)
            raise
        now, sent, meter = perf_counter(), self._sent, self._meter
        for appended in acknowledged:
            # none: its `send` was cancelled, yet it was appended
            began, size, timestamps = sent.popleft() if sent else (now, 0, None)
            meter.append_seconds.observe(now - began)
            _count(meter, appended, size, timestamps)
        if self._groups is not None and acknowledged:
            records = sum(one.end.seq_num - one.start.seq_num for one in acknowledged)
            self._groups.acknowledged(len(acknowledged), records, len(sent))
        return acknowledged


class _EnteredAppends(_Entered[AppendSession]):
    def _session(self, inner: AppendSession) -> AppendSession:
        return _Appends(inner, self._meter, None if self._span is None else self._span.groups)


class _Reads(ReadSessionWrapper):
    __slots__ = ("_began", "_flow", "_meter", "behind", "tail")

    def __init__(self, inner: ReadSession, meter: Meter, began: float) -> None:
        super().__init__(inner)
        self._meter = meter
        self._flow = meter.reads
        self._began: float | None = began  # None: the first result has been measured
        self.behind, self.tail = inner.behind, inner.tail  # type: ignore[method-assign]  # one call less for each

    async def next(self) -> RecordBatch | Following | None:
        try:
            event = await self._inner.next()
        except OperationFailed as error:
            self._meter.failed(error.failure.code)
            raise
        if self._began is not None:
            self._meter.first_read.observe(perf_counter() - self._began)
            self._began = None
        if isinstance(event, RecordBatch):
            self._flow.batch(event)
        return event

    def ready(self) -> RecordBatch | None:
        batch = self._inner.ready()
        if batch is not None:
            self._flow.batch(batch)
        return batch


class _EnteredReads(_Entered[ReadSession]):
    __slots__ = ()

    def _session(self, inner: ReadSession) -> ReadSession:
        return _Reads(inner, self._meter, self._began)


class _Raw:
    """A `RawSession`, measured."""

    def __init__(self, inner: RawSession, meter: Meter, flow: FlowMeters) -> None:
        self._inner = inner
        self._meter = meter
        self._flow = flow
        self._sent: deque[float] = deque()  # send times of batches that are not acknowledged
        self.finish, self.count_batches = inner.finish, inner.count_batches

    async def send(self, pieces: FramePieces) -> None:
        # before sending: they may be acknowledged before `send` returns
        self._sent.extend([perf_counter()] * pieces.frames)
        try:
            await self._inner.send(pieces)
        except OperationFailed as error:
            self._meter.failed(error.failure.code)
            raise
        self._flow.bytes.value += sum(map(len, pieces))

    async def receive_head(self) -> ResponseHead:
        try:
            return await self._inner.receive_head()
        except OperationFailed as error:
            self._meter.failed(error.failure.code)
            raise

    async def receive_pieces(self, least: int) -> Sequence[Buffer]:
        try:
            pieces = await self._inner.receive_pieces(least)
        except OperationFailed as error:
            self._meter.failed(error.failure.code)
            raise
        flow = self._flow
        if flow is self._meter.reads:
            flow.bytes.value += sum(map(len, pieces))
        for records in self.count_batches(pieces):
            flow.records.value += records
            flow.batches.value += 1
            if self._sent:
                self._meter.append_seconds.observe(perf_counter() - self._sent.popleft())
        return pieces


class _EnteredPassage(_Entered[RawSession]):
    def _session(self, inner: RawSession) -> RawSession:
        return _Raw(inner, self._meter, self._flow)


def metered_appends(
    meter: Meter, entering: AbstractAsyncContextManager[AppendSession]
) -> AbstractAsyncContextManager[AppendSession]:
    """Return the append session, measured."""
    return _EnteredAppends(entering, meter, meter.appends)


def metered_reads(
    meter: Meter, entering: AbstractAsyncContextManager[ReadSession]
) -> AbstractAsyncContextManager[ReadSession]:
    """Return the read, measured."""
    return _EnteredReads(entering, meter, meter.reads)


def metered_passage(
    meter: Meter, entering: AbstractAsyncContextManager[RawSession], *, appends: bool
) -> AbstractAsyncContextManager[RawSession]:
    """Return the passthrough session, measured. `appends`: it appends; otherwise it reads."""
    return _EnteredPassage(entering, meter, meter.appends if appends else meter.reads)
