"""Sending of messages with faults."""

from __future__ import annotations

import json

import pytest
import trio
from google.protobuf.unknown_fields import UnknownFieldSet
from trio.testing import MockClock

from penstock.routing.faults.messages import MessageFaults, send_faulty
from penstock.routing.faults.unknown import with_unknown
from penstock_proto import s2_pb2 as pb


@pytest.mark.parametrize(
    ("piece_bytes", "sent"), [(0, [b"abcde", b"fg"]), (1, [b"a", b"b", b"c", b"d", b"e", b"f", b"g"])]
)
async def test_pieces_of_a_throttled_message(piece_bytes: int, sent: list[bytes], autojump_clock: MockClock) -> None:
    """They are as long as the rule says, else what the rate gives in a twentieth of a second; the rate is the same."""
    found: list[bytes] = []

    async def send(piece: bytes) -> None:
        found.append(piece)

    began = trio.current_time()
    said = MessageFaults(bytes_per_second=100, piece_bytes=piece_bytes)
    await send_faulty(said, [b"abc", b"defg"], send, trio.lowlevel.checkpoint)
    assert found == sent
    assert trio.current_time() - began == pytest.approx(0.07)


@pytest.mark.parametrize(
    ("places", "size", "cuts"),
    [(4, 8, [0, 2, 4, 6]), (3, 7, [0, 2, 4]), (4, 2, [0, 1, None, None]), (2, 0, [None, None]), (1, 9, [0])],
)
def test_places_of_cuts_are_spread_over_the_message(places: int, size: int, cuts: list[int | None]) -> None:
    """A message that is too short for all of them has one before each byte, and is whole after that."""
    assert [MessageFaults(cut_after=3, cut_place=(n, places)).cut_in(size) for n in range(places)] == cuts
    assert MessageFaults(cut_after=3).cut_in(size) == 3


@pytest.mark.parametrize(
    ("media", "body", "others"),
    [
        ("application/json", b'{"a": 1}', {"a": 1}),
        ("application/json; charset=utf-8", b"{ }", {}),
    ],
)
def test_an_unknown_field_of_json(media: str, body: bytes, others: dict[str, int]) -> None:
    headers, changed = with_unknown([("content-type", media)], body, own_bodies=True)
    assert list(headers) == [("content-type", media), ("penstock-unknown", "1")]
    found = json.loads(changed)
    assert found.pop("penstock_unknown") and found == others


@pytest.mark.parametrize(
    ("headers", "body", "own_bodies"),
    [
        ([("content-type", "application/json")], b"[1]", True),
        ([("content-type", "application/json")], b"", True),
        ([("content-type", "application/json")], b"{}", False),
        ([("content-type", "application/json"), ("Content-Encoding", "gzip")], b"{}", True),
        ([("content-type", "text/plain")], b"{}", True),
        ([], b"{}", True),
    ],
)
def test_bodies_that_get_no_unknown_field(headers: list[tuple[str, str]], body: bytes, own_bodies: bool) -> None:
    assert with_unknown(headers, body, own_bodies) == ([*headers, ("penstock-unknown", "1")], body)


def test_an_unknown_field_of_protobuf() -> None:
    """A decoder of the message keeps it among the unknown fields."""
    message = pb.AppendAck(start=pb.StreamPosition(seq_num=7)).SerializeToString()
    _, body = with_unknown([("content-type", "application/protobuf")], message, own_bodies=True)
    found = pb.AppendAck.FromString(body)
    assert found.start.seq_num == 7
    assert [(one.field_number, one.data) for one in UnknownFieldSet(found)] == [(3000, b"new")]
