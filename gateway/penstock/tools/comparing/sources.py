"""The sources of a comparison: the records of a capture, and those of a live server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import trio

from penstock.capture.dialogue import DELIVERED, Message, Problem, SeenRecord
from penstock.capture.dialogue.dialogues import Dialogues
from penstock.capture.pcapng import CaptureEvent, Side
from penstock.capture.plugin import plugins
from penstock.core.back import Back, Following
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import FromSeqNum, Read
from penstock.model.records import RecordBatch, StreamRef
from penstock.protocols.plugin import ListenerKind, listener_kinds
from penstock.tools.comparing.record_table import ComparedStream, Input, RecordTable

__all__ = ["put_capture", "put_live", "stream_on_server"]

_NOTHING_THERE: Final = frozenset(
    {
        FailureCode.STREAM_NOT_FOUND,
        FailureCode.BASIN_NOT_FOUND,
        FailureCode.RANGE_NOT_SATISFIABLE,
        FailureCode.NOT_REPRESENTABLE,  # the server's protocol has no name for it, so there is no such stream
    }
)


def put_capture(table: RecordTable, source: Input, events: Iterable[CaptureEvent], side: Side = Side.FRONT) -> None:
    """Add all records of a capture, of the conversations on one side of the gateway: the other side repeats them.

    Conversations that no gateway recorded count for either side.
    """
    dialogues = Dialogues(lambda conversation: conversation.side in (side, Side.FOREIGN))

    def put(told: Iterator[Message | Problem]) -> None:
        for message in told:
            if isinstance(message, Message):
                for record in message.records:
                    table.put(source, record, message.layer, message.exchange)

    for event in events:
        put(dialogues.receive(event))
    put(dialogues.end())


def stream_on_server(stream: ComparedStream, basin: str) -> StreamRef | None:
    """Return the gateway's name of a recorded stream; None for streams that are not visible in every protocol.

    `basin`: for names without one, and for scopes that are not valid basins.
    """
    kinds = listener_kinds()
    known = (kinds[name] for name, plugin in plugins().items() if stream.layer in plugin.layers and name in kinds)
    try:
        return next(known, ListenerKind[Any]()).recorded_stream(stream.name, basin)
    except OperationFailed:
        return None


async def put_live(
    table: RecordTable,
    source: Input,
    back: Back,
    streams: Mapping[str, StreamRef],
    on_record: Callable[[int], object] = lambda _count: None,
) -> None:
    """Add all records that these streams hold now, each stream under its given name. A missing stream has none.

    `on_record` is called with the number of records added. Raises OperationFailed as the server reports it.
    """
    for name, stream in streams.items():
        await trio.lowlevel.checkpoint()
        try:
            await _put_stream(table, source, back, name, stream, on_record)
        except OperationFailed as error:
            if error.failure.code not in _NOTHING_THERE:
                raise


async def _put_stream(
    table: RecordTable, source: Input, back: Back, name: str, stream: StreamRef, on_record: Callable[[int], object]
) -> None:
    read = Read(stream, FromSeqNum(0), clamp=True, wait=0.0, create_if_missing=False)
    begun = False
    async with back.read_session(read) as session:
        while (event := await session.next()) is not None:
            if isinstance(event, Following):
                continue
            if not begun:
                begun = True
                table.begin(source, name, event.first_seq_num)
            for record in _seen(name, event):
                table.put(source, record)
            on_record(event.count)
        if not begun:
            table.begin(source, name, session.tail().seq_num)


def _seen(name: str, batch: RecordBatch) -> Iterator[SeenRecord]:
    for record in batch.records():
        yield SeenRecord(
            DELIVERED,
            name,
            record.body,
            tuple(record.headers),
            seq_num=record.seq_num,
            timestamp=record.timestamp,
        )
