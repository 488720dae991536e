"""The front: serves clients over any back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import trio

from numbered_lines.codec import Line, LinesCodec
from numbered_lines.config import LinesListener
from penstock.core.back import Back
from penstock.model.envelope import wrap
from penstock.model.failures import FailureCode, OperationFailed, RemoteProtocolError, fail
from penstock.model.features import Feature, feature_of
from penstock.model.operations import Append, CheckTail, FromSeqNum, Read
from penstock.model.records import Record, RecordBatch, StreamRef, metered_size
from penstock.net.draining import Draining
from penstock.net.http.traced import traced_connections
from penstock.net.transport import FrontTransport, SlowSender, TooSlow
from penstock.observe.metrics.clients import count_error
from penstock.protocols.opening import ListenerContext, OpenListener
from penstock.routing.loss.loss import Loss
from penstock.wire.codec import PAUSED, Pull, Role

__all__ = ["LinesFront", "open_listener"]

MOST_BYTES = 1_000_000
PATIENCE = 30.0


class LinesFront:
    """Serves clients over one back."""

    def __init__(self, back: Back, table: LinesListener) -> None:
        self.back = back
        self.table = table
        self.draining = Draining()

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection to its end."""
        idle = self.table.limits.idle_timeout_seconds
        transport = FrontTransport(stream, 65_536, PATIENCE, idle=idle, draining=self.draining)
        codec = LinesCodec(Role.SERVER, self.table.dialect)
        try:
            while (event := codec.next_event()) is not PAUSED:
                if isinstance(event, Pull):
                    await transport.drain()
                    if not await transport.read_into(codec.receive, codec.buffered, lambda: False):
                        break
                    continue
                transport.message_taken = True
                transport.quota.admit()
                async for line in self._answers(event):
                    transport.put(codec.send(line))
                    await transport.drain()
            await transport.drain()
            await transport.linger(1.0)
            await transport.close()
        except RemoteProtocolError as error:
            transport.put(codec.send((b"NO", error.failure.message.encode())))
            await transport.drain()
        except (trio.BrokenResourceError, trio.ClosedResourceError, SlowSender, TooSlow):
            pass
        finally:
            await transport.cut()

    async def _answers(self, asked: Line) -> AsyncIterator[Line]:
        try:
            if asked[0] == b"PUT":
                append = Append(self._stream(asked), [asked[2]], metered_size([asked[2]], {}))
                yield b"OK", b"%d" % (await self.back.perform(append)).start.seq_num
            elif asked[0] == b"GET":
                async for line in self._rows(asked):
                    yield line
        except OperationFailed as error:
            count_error(error.failure.code)
            yield b"NO", f"{error.failure.code.value}: {error.failure.message}".replace("\n", " ").encode()

    async def _rows(self, asked: Line) -> AsyncIterator[Line]:
        stream, after = self._stream(asked), int(asked[2])
        try:
            async with self.back.read_session(
                Read(stream, FromSeqNum(after), count=int(asked[3]), wait=0.0)
            ) as session:
                while isinstance(batch := await session.next(), RecordBatch):
                    for record in batch.records():
                        after = record.seq_num + 1
                        body = self._body(record)
                        if body is not None:
                            yield b"ROW", b"%d" % record.seq_num, body
        except OperationFailed as error:
            if error.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE:
                raise
            after = (await self.back.perform(CheckTail(stream))).seq_num
        yield b"END", b"%d" % after

    def _body(self, record: Record) -> bytes | None:
        """Return what is carried of a record; None if it is dropped. Raises NOT_REPRESENTABLE."""
        body, feature = record.body, feature_of(record.headers, record.body)
        loss = Loss.DROP if feature is None else self.table.loss.policy.about(feature)
        if loss is Loss.REFUSE or b"\n" in body:
            raise fail(FailureCode.NOT_REPRESENTABLE, f"record {record.seq_num} is no line")
        if loss is Loss.ENVELOPE:
            return wrap(record.headers, body)
        return body if feature in (None, Feature.HEADERS) else None

    def _stream(self, asked: Line) -> StreamRef:
        return StreamRef(self.table.basin, asked[1].decode("latin-1"))


def open_listener(context: ListenerContext, label: str, table: LinesListener) -> OpenListener:
    """Build the front."""
    back = context.back(label)
    front = LinesFront(context.faulty(back, label), table)
    return OpenListener(traced_connections(front.serve), front.draining.begin, (back,), ())
