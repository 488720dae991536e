"""Sending of messages with faults."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from penstock.routing.faults.messages import MessageFaults, send_faulty


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
    await send_faulty(said, b"abcdefg", send, trio.lowlevel.checkpoint)
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
