"""The golden bytes of the segment fact sheet: captured from real clients, or from the real protocol classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from support.segment.messages import WRITER, pull, ready_client

from penstock_pravega.codec import BlockData, Dialect, SegmentMessage, TableEntry, TableKey, draft, encode
from penstock_pravega.codec.layout import HEADER_BYTES, decode_body, message_class

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "segment_vectors.json").read_text())
SINGLE = [pytest.param(vector, id=vector["name"]) for vector in VECTORS if vector["type"] is not None]
RENAMED = {
    "segmentName": "segment",
    "numEvents": "number_of_events",
    "segment": "segment",
}
EVENT = bytes.fromhex("00000000 00000005") + b"hello"
WORLDWIDE = bytes.fromhex("00000000 00000009") + b"worldwide"
IN_WORDS: dict[str, object] = {
    "event hello": EVENT,
    "event hello (13) + PartialEvent wrapper with first 7 bytes of event worldwide": EVENT
    + bytes.fromhex("fffffffe 00000007")
    + WORLDWIDE[:7],
    "event hello (13) + Padding(7)": EVENT + bytes.fromhex("ffffffff 00000007") + bytes(7),
    "2 whole events, 26 bytes": EVENT + bytes.fromhex("00000000 00000005") + b"world",
    "last 10 bytes of event worldwide": WORLDWIDE[-10:],
    "first 7 bytes of event worldwide": WORLDWIDE[:7],
    "first 7 bytes of an event": bytes(7),
    "next 2": WORLDWIDE[7:9],
    "begin": draft.PartialKind.BEGIN,
    "middle": draft.PartialKind.MIDDLE,
}
"""Values of the vectors' fields that are given in words."""


def message_in(vector: dict[str, Any]) -> tuple[type[SegmentMessage], bytes, int]:
    """The class, all bytes, the wire version."""
    cls = message_class(Dialect(vector["mode"]), vector["type"])
    assert cls is not None
    return cls, bytes.fromhex(vector["hex"]), 15 if vector["name"].endswith("-v15") else 16


def snake(name: str) -> str:
    return RENAMED.get(name) or "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


def value(text: object) -> object:
    """A field of a vector as a Python value."""
    if isinstance(text, str):
        if text in IN_WORDS:
            return IN_WORDS[text]
        return UUID(text) if text.count("-") == 4 else text
    if isinstance(text, list):
        return tuple(TableEntry(TableKey(k.encode(), version), v.encode()) for k, v, version in text)
    return text


@pytest.mark.parametrize("vector", SINGLE)
def test_decode(vector: dict[str, Any]) -> None:
    cls, data, version = message_in(vector)
    message = decode_body(cls, memoryview(data)[HEADER_BYTES:], version)
    fields = {snake(name): value(said) for name, said in vector["fields"].items()}
    if "is_at_tail" in fields:
        fields["flags"] = draft.Flags(bool(fields.pop("is_at_tail")), bool(fields.pop("is_at_end_of_segment")))
    for name, expected in fields.items():
        got = getattr(message, name)
        assert got == (expected.encode() if isinstance(got, bytes) and isinstance(expected, str) else expected), name


@pytest.mark.parametrize("vector", SINGLE)
def test_encode(vector: dict[str, Any]) -> None:
    cls, data, version = message_in(vector)
    message = decode_body(cls, memoryview(data)[HEADER_BYTES:], version)
    short = "short form" in vector.get("note", "")
    assert b"".join(encode(message, version=version, tail=not short)) == data


def test_the_conversation() -> None:
    """The vector that is a whole block, at both ends."""
    (vector,) = [vector for vector in VECTORS if vector["type"] is None]
    data = bytes.fromhex(vector["hex"])
    client, server = ready_client()
    begin, end = draft.partials(draft.Event(b"worldwide"), [6])
    said = [draft.BeginAppendBlock(WRITER, 0, 28), draft.Event(b"hello"), begin]
    said += [draft.EndAppendBlock(WRITER, 30, 30), end]
    assert b"".join(piece for message in said for piece in client.send(message)) == data
    server.receive(data)
    assert pull(server) == [
        draft.BeginAppendBlock(WRITER, 0, 28),
        BlockData(WRITER, 0, EVENT + WORLDWIDE),
        draft.EndAppendBlock(WRITER, 30, 30),
    ]
