"""The segment protocol: both ends of both dialects, and each message by itself in two wire versions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fuzz.laws import chosen, keeps_the_laws, pull

from penstock.wire.codec import Role
from penstock_pravega.codec import (
    PLUGIN,
    BlockAppended,
    Dialect,
    SegmentClient,
    SegmentMessage,
    SegmentServer,
    draft,
    encode,
    released,
)
from penstock_pravega.codec.frames import FrameFault, decode_message
from penstock_pravega.codec.limits import SEGMENT_VERSIONS, SegmentLimits

LIMITS: Final = SegmentLimits(max_message_bytes=500, max_append_bytes=500, block_piece_bytes=200, max_writers=3)
MOST_HELD: Final = 2 * 508 + 200
"""Two messages and a piece of a block."""
VECTORS: Final = Path(__file__).parents[2] / "penstock_pravega" / "codec" / "segment_vectors.json"


def _draft_client() -> SegmentClient:
    """Return a client that has sent the sample's SetupAppend, since it accepts only answers to its requests."""
    client = SegmentClient(Dialect.DRAFT, LIMITS)
    (setup,) = (one for one in pull(_server(), PLUGIN.sample(Role.SERVER, "draft")) if type(one) is draft.SetupAppend)
    client.send(setup)
    return client


def _server() -> SegmentServer:
    return SegmentServer(LIMITS, observer=True)


ENDS: Final = (_server, lambda: SegmentClient(Dialect.RELEASED, LIMITS), _draft_client)
MESSAGES: Final = tuple((dialect, version) for dialect in Dialect for version in SEGMENT_VERSIONS)


def seeds() -> Iterator[bytes]:
    """Yield the samples of both ends, and every vector as a message."""
    for index, (role, dialect) in enumerate(
        ((Role.SERVER, "released"), (Role.CLIENT, "released"), (Role.CLIENT, "draft"))
    ):
        yield bytes([index]) + PLUGIN.sample(role, dialect)
    yield bytes([0]) + PLUGIN.sample(Role.SERVER, "draft")
    for vector in json.loads(VECTORS.read_text()):
        for index in range(len(MESSAGES)):
            yield bytes([len(ENDS) + index]) + bytes.fromhex(vector["hex"])


def check(data: bytes) -> None:
    """Check the laws of codecs, and that messages and whole conversations of requests are encoded to bytes that give
    them again."""
    chose, said = chosen((*ENDS, *MESSAGES), data)
    if isinstance(chose, tuple):
        _message(said, *chose)
        return
    keeps_the_laws(chose, said, MOST_HELD)
    codec = chose()
    events = pull(codec, said)
    dialect = codec.dialect or Dialect.DRAFT
    for event in events:
        if isinstance(event, SegmentMessage):
            again = decode_message(b"".join(encode(event)), dialect, SEGMENT_VERSIONS[0], 0)
            assert again == event, f"{event} became {again}"
    if chose is _server and dialect is Dialect.RELEASED:
        _released_requests(events)


def _released_requests(events: list[object]) -> None:
    """Check that a client can send what a server has received, and that another server receives the same."""
    versions = events[0] if events else None
    if not isinstance(versions, released.Hello) or len(events) == 1:
        return  # a Hello alone may be one with versions that are not spoken here
    client, server = SegmentClient(Dialect.RELEASED, LIMITS), _server()
    for event in events:
        assert isinstance(event, SegmentMessage | BlockAppended)
        heard = pull(server, b"".join(client.send(event)))
        assert heard == [event], f"{event} became {heard}"


def _message(said: bytes, dialect: Dialect, version: int) -> None:
    try:
        message = decode_message(said, dialect, version, 0)
    except FrameFault:
        return
    again = decode_message(b"".join(encode(message, version=version)), dialect, version, 0)
    assert again == message, f"{message} became {again}"
