"""An S2 server in memory, for backs that speak S2: our front over a model of streams, behind connections that break.

The model decides appends by the store's own pure function, and has no threads: virtual time passes at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
from support.store import Wall
from support.upstreams import Far, far_server

from penstock.core.back import AppendSession, Back, Following, ReadSession
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.operations import (
    Append,
    Appended,
    Capability,
    CheckTail,
    FromSeqNum,
    FromTailOffset,
    FromTimestamp,
    GetStreamConfig,
    Operation,
    Read,
)
from penstock.model.records import Columns, Record, RecordBatch, StreamPosition, StreamRef
from penstock.model.streams import StreamConfig
from penstock.net.http.exchange import Exchange, Request
from penstock.net.http.serving import serve_http
from penstock.store.heads import StreamHead
from penstock.store.sequencer import sequence, validate
from penstock_s2.back.back import S2Back, open_s2
from penstock_s2.back.settings import S2BackSettings
from penstock_s2.front import S2Front, S2Settings

__all__ = ["ModelBack", "ModelServer", "Wire", "model_server"]


class ModelStream:
    """One stream."""

    def __init__(self, config: StreamConfig) -> None:
        self.config = config.resolve()
        self.head = StreamHead(config)
        self.records: list[Record] = []
        self.news = trio.lowlevel.ParkingLot()

    @property
    def tail(self) -> StreamPosition:
        return self.head.tail

    @property
    def kept(self) -> list[Record]:
        return [record for record in self.records if record.seq_num >= self.head.trim_point]


class ModelBack(Back):
    """A back of a few streams in memory, all in one basin."""

    capabilities = frozenset(Capability)

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.clock = Wall()
        self.streams: dict[StreamRef, ModelStream] = {}
        self.create_on_append = False
        self.create_on_read = False
        self.delays: Iterator[float] = iter(())
        self.before_append: Callable[[], None] = lambda: None
        """Called before each append in a session is applied."""

    def make(self, stream: StreamRef, config: StreamConfig = StreamConfig()) -> ModelStream:
        made = self.streams[stream] = ModelStream(config)
        return made

    def find(self, stream: StreamRef, *, reads: bool = False) -> ModelStream:
        found = self.streams.get(stream)
        if found is None and reads and self.create_on_read:
            return self.make(stream)
        if found is None:
            raise fail(FailureCode.STREAM_NOT_FOUND, f"no stream {stream}")
        return found

    def append(self, append: Append) -> Appended:
        """Append at once."""
        if self.create_on_append and append.stream not in self.streams:
            self.make(append.stream, append.create_config or StreamConfig())
        stream = self.find(append.stream)
        decided = sequence(append, validate(append), stream.head, stream.config, self.clock())
        for part in decided.parts:
            stream.records += part.batch.records()
        before, stream.head = stream.head, decided.head
        first = stream.records[before.next_seq]
        stream.news.unpark_all()
        return Appended(StreamPosition(first.seq_num, first.timestamp), stream.tail, stream.tail)

    async def perform(self, operation: Operation[Any]) -> Any:
        await trio.lowlevel.checkpoint()
        match operation:
            case Append():
                return self.append(operation)
            case CheckTail(stream):
                return self.find(stream, reads=True).tail
            case GetStreamConfig(stream):
                return self.find(stream).config
        raise fail(FailureCode.NOT_IMPLEMENTED, f"the model cannot {type(operation).__name__}")

    @asynccontextmanager
    async def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AsyncIterator[ModelAppends]:
        await trio.lowlevel.checkpoint()
        if not (self.create_on_append and create_if_missing):
            self.find(stream)
        elif stream not in self.streams:
            self.make(stream, create_config or StreamConfig())
        yield ModelAppends(self)

    @asynccontextmanager
    async def read_session(self, read: Read) -> AsyncIterator[ModelRead]:
        await trio.lowlevel.checkpoint()
        stream = self.find(read.stream, reads=True)
        tail = stream.tail
        match read.start:
            case FromSeqNum(seq_num):
                position = seq_num
            case FromTailOffset(offset):
                position = max(tail.seq_num - offset, 0)
            case FromTimestamp(timestamp):
                later = [record.seq_num for record in stream.kept if record.timestamp >= timestamp]
                position = later[0] if later else tail.seq_num + (timestamp > tail.timestamp)
            case _:
                raise AssertionError(read.start)
        if position > tail.seq_num and read.clamp:
            position = tail.seq_num
        if position > tail.seq_num or (position == tail.seq_num and not read.may_follow):
            raise fail(FailureCode.RANGE_NOT_SATISFIABLE, "beyond the tail", tail=tail)
        yield ModelRead(stream, read, position)


class ModelAppends(AppendSession):
    """Appends that are applied in order, each after one of the back's `delays`, whether or not the client stays."""

    def __init__(self, back: ModelBack) -> None:
        self._back = back
        self._acks: list[Appended] = []
        self._failure: Failure | None = None
        self._waiting = 0
        self._closed = False
        self._news = trio.lowlevel.ParkingLot()
        self._send, self._inputs = trio.open_memory_channel[Append](1000)
        back.nursery.start_soon(self._run)

    async def _run(self) -> None:
        async for append in self._inputs:
            await trio.sleep(next(self._back.delays, 0.0))
            try:
                if self._failure is None:
                    self._back.before_append()
                    self._acks.append(self._back.append(append))
            except OperationFailed as error:
                self._failure = error.failure
            self._waiting -= 1
            self._news.unpark_all()

    async def send(self, append: Append) -> None:
        self._waiting += 1
        await self._send.send(append)

    def close(self) -> None:
        self._closed = True
        self._send.close()
        self._news.unpark_all()

    async def receive(self) -> list[Appended]:
        while not (self._acks or self._failure or (self._closed and not self._waiting)):
            await self._news.park()
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._acks:
            acks, self._acks = self._acks, []
            return acks
        if self._failure is not None:
            raise OperationFailed(self._failure)
        return []


class ModelRead(ReadSession):
    """Batches of at most `MOST` records."""

    MOST = 3

    def __init__(self, stream: ModelStream, read: Read, position: int) -> None:
        self._stream = stream
        self._read = read
        self._position = position
        self._count = 2**63 if read.count is None else read.count
        self._following = False

    def behind(self) -> bool:
        return self._position < self._stream.head.next_seq

    def tail(self) -> StreamPosition:
        return self._stream.tail

    async def next(self) -> RecordBatch | Following | None:
        await trio.lowlevel.checkpoint()
        while self._count:
            kept = [record for record in self._stream.kept if record.seq_num >= self._position]
            if kept:
                return self._batch(kept[: min(self.MOST, self._count)])
            if self._read.wait == 0 or (self._read.wait is None and self._read.bounded):
                return None
            if not self._following:
                self._following = True
                return Following(self._stream.tail)
            with trio.move_on_after(float("inf") if self._read.wait is None else self._read.wait) as scope:
                await self._stream.news.park()
            if scope.cancelled_caught:
                return None
        return None

    def _batch(self, records: Sequence[Record]) -> RecordBatch:
        self._position = records[-1].seq_num + 1
        self._count -= len(records)
        columns = Columns(
            [record.seq_num for record in records],
            [record.timestamp for record in records],
            [record.body for record in records],
            {index: record.headers for index, record in enumerate(records) if record.headers},
        )
        at_tail = self._position == self._stream.head.next_seq
        return RecordBatch(columns, tail=self._stream.tail if at_tail else None)


@dataclass
class Wire:
    """Bytes that a connection carries up to and down from the server before it breaks (None: any number).

    `silent`: instead of breaking, it carries nothing more.
    """

    up: int | None = None
    down: int | None = None
    silent: bool = False


class BreakingStream(trio.abc.Stream):
    """The client's end of a connection as its `Wire` has it."""

    def __init__(self, inner: trio.abc.Stream, wire: Wire) -> None:
        self._inner = inner
        self._wire = wire
        self._broken = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._check()
        data = bytes(data)
        up = self._wire.up
        if up is None or len(data) <= up:
            self._wire.up = None if up is None else up - len(data)
            await self._inner.send_all(data)
            return
        self._wire.up = 0
        await self._inner.send_all(data[:up])
        await self._break()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        self._check()
        data = bytes(await self._inner.receive_some(max_bytes))
        self._check()
        down = self._wire.down
        if down is None or len(data) <= down:
            self._wire.down = None if down is None else down - len(data)
            return data
        self._wire.down = 0
        if down:
            return data[:down]
        await self._break()
        raise AssertionError("unreachable")

    async def _break(self) -> None:
        if self._wire.silent:
            await trio.sleep_forever()
        self._broken = True
        await self._inner.aclose()
        raise trio.BrokenResourceError("cut")

    def _check(self) -> None:
        if self._broken:
            raise trio.BrokenResourceError("cut")

    async def wait_send_all_might_not_block(self) -> None:
        self._check()
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._inner.aclose()


@dataclass
class ModelServer:
    """The server, and what becomes of the next connections to it; those after that are whole."""

    back: ModelBack
    far: Far
    wires: Iterator[Wire] = field(default_factory=lambda: iter(()))
    settings: S2Settings = field(default_factory=S2Settings)
    requests: list[Request] = field(default_factory=list)
    front: S2Front = field(init=False)
    _serving: list[trio.CancelScope] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Serve by a new front, as after a restart."""
        self.front = S2Front(self.back, self.settings)  # type: ignore[arg-type]  # it has what is asked of it

    def cut(self) -> None:
        """Lose all connections."""
        for scope in self._serving:
            scope.cancel()

    async def serve(self, stream: trio.abc.Stream) -> None:
        with trio.CancelScope() as scope:
            self._serving.append(scope)
            await serve_http(stream, self._handle)

    async def _handle(self, exchange: Exchange) -> None:
        self.requests.append(exchange.request)
        await self.front.handle(exchange)

    @asynccontextmanager
    async def opened(self, **settings: Any) -> AsyncIterator[S2Back]:
        """A back on it; `upstream` is a dict of settings of the upstream, `credentials` are its."""
        upstream = self.far.upstream(settings.pop("credentials", None), **settings.pop("upstream", {}))
        async with open_s2(S2BackSettings(**settings), upstream, self.back.clock) as back:
            yield back


@asynccontextmanager
async def model_server(settings: S2Settings | None = None) -> AsyncIterator[ModelServer]:
    """A server with no streams."""
    async with far_server(_unserved) as far:
        back = ModelBack(far.nursery)
        server = ModelServer(back, far, settings=settings or S2Settings())
        far.serve = server.serve
        dial = far.dial

        async def dialled(host: str, port: int) -> trio.abc.Stream:
            return BreakingStream(await dial(host, port), next(server.wires, Wire()))

        far.dial = dialled  # type: ignore[method-assign]
        yield server


async def _unserved(stream: trio.abc.Stream) -> None:
    raise AssertionError(stream)
