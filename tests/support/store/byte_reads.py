"""Short words for tests of the store's bytes."""

from __future__ import annotations

from support.store import STREAM

from penstock.backends.embedded import EmbeddedBack
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import AppendBytes, BytesRead, ReadBytes
from penstock.model.limits import MIB
from penstock.model.records import StreamRef


def events(*bodies: bytes) -> AppendBytes:
    return AppendBytes(STREAM, join_events(bodies))


def forget_recent(back: EmbeddedBack, ref: StreamRef = STREAM) -> None:
    stream = back._store.registry.stream(ref)
    assert stream is not None
    while stream.recent._batches:
        stream.recent.drop_oldest()


async def read(back: EmbeddedBack, offset: int, max_bytes: int = MIB, **options: object) -> BytesRead:
    return await back.perform(ReadBytes(STREAM, offset, max_bytes, **options))


async def all_bytes(back: EmbeddedBack, max_bytes: int = MIB) -> bytes:
    pieces = []
    offset = 0
    while data := (await read(back, offset, max_bytes)).data:
        pieces.append(data)
        offset += len(data)
    return b"".join(pieces)


def nothing(offset: int, end: bool = False) -> BytesRead:
    return BytesRead(offset, b"", at_tail=True, end_of_stream=end, dropped={})
