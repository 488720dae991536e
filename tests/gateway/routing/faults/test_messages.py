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
    await send_faulty(said, [b"abc", b"defg"], send, trio.lowlevel.checkpoint)
    assert found == sent
    assert trio.current_time() - began == pytest.approx(0.07)
