"""Segment messages for tests: strategies for every message, and a client wired to a server."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from penstock.wire.codec import Pull
from penstock_pravega.codec import (
    TYPE_TABLE,
    ChunkInfo,
    Dialect,
    MergeAttributeUpdate,
    MergedSegment,
    SegmentClient,
    SegmentMessage,
    SegmentServer,
    TableEntry,
    TableKey,
    draft,
    encode,
)

__all__ = ["MESSAGES", "WRITER", "joined", "message_of", "pull", "ready_client", "ready_server"]

WRITER = UUID("00112233-4455-6677-8899-aabbccddeeff")

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
BYTES = st.binary(max_size=40) | st.binary(min_size=100, max_size=200)
KEYS = st.builds(TableKey, st.binary(min_size=1, max_size=20), I64) | st.just(TableKey(b""))
BY_WIRE: dict[str, st.SearchStrategy[Any]] = {
    "i32": I32,
    "i64": I64,
    "bool": st.booleans(),
    "name": TEXT,
    "str": TEXT,
    "uuid": st.uuids(),
    "bytes32": BYTES,
    "rest": BYTES,
    "zero bytes": st.integers(0, 100),
    "Event": BYTES,
    "2 bits": st.builds(draft.Flags, st.booleans(), st.booleans()),
}


def tuples(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """A list field."""
    return st.lists(items, max_size=4).map(tuple)


BY_FIELD: dict[str, st.SearchStrategy[Any]] = {
    "Partial.part": st.sampled_from(draft.PartialKind),
    "CreateSegment.scale_type": st.integers(0, 255),
    "UpdateSegmentPolicy.scale_type": st.integers(0, 255),
    "TableEntriesUpdated.versions": tuples(I64),
    "StorageChunksListed.chunks": tuples(st.builds(ChunkInfo, I64, I64, I64, TEXT, st.booleans())),
    "MergeSegments.attribute_updates": tuples(
        st.builds(MergeAttributeUpdate, st.uuids(), st.integers(0, 255), I64, I64)
    ),
    "MergeSegmentsBatch.sources": tuples(TEXT),
    "SegmentsBatchMerged.sources": tuples(st.builds(MergedSegment, TEXT, I64)),
}
BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "keys": tuples(KEYS),
    "entries": tuples(st.builds(TableEntry, KEYS, BYTES)),
}
MESSAGES = sorted(
    {(dialect, cls) for dialect, table in TYPE_TABLE.items() for cls in table.values()},
    key=lambda pair: (pair[0].value, pair[1].type_id),
)
"""Every message of each dialect."""


def message_of(cls: type[SegmentMessage]) -> st.SearchStrategy[SegmentMessage]:
    """Any message of a class."""
    values = {}
    for field in cls.fields:
        known = (BY_FIELD.get(f"{cls.__name__}.{field.name}"), BY_NAME.get(field.name), BY_WIRE.get(field.wire.name))
        values[field.name] = next(strategy for strategy in known if strategy is not None)
    return st.builds(cls, **values)


def joined(*messages: SegmentMessage) -> bytes:
    """Return the bytes of messages, one after the other."""
    return b"".join(piece for message in messages for piece in encode(message))


def pull(codec: SegmentClient | SegmentServer) -> list[Any]:
    """All events that are there."""
    events = []
    while not isinstance(event := codec.next_event(), Pull):
        events.append(event)
    return events


def ready_server(client: SegmentClient, server: SegmentServer, level: int = 0) -> None:
    """Sets WRITER up, on a draft connection that has not been used."""
    server.receive(b"".join(client.send(draft.SetupAppend(WRITER, "seg"))))
    assert pull(server) == [draft.SetupAppend(WRITER, "seg")]
    client.receive(b"".join(server.send(draft.AppendSetup("seg", WRITER, level))))
    assert pull(client) == [draft.AppendSetup("seg", WRITER, level)]


def ready_client(level: int = 0, server: SegmentServer | None = None) -> tuple[SegmentClient, SegmentServer]:
    """Both ends of a draft connection on which WRITER is set up."""
    client, server = SegmentClient(Dialect.DRAFT), server or SegmentServer()
    ready_server(client, server, level)
    return client, server
