"""The link of a segment connection: no task waits for room that is there."""

from __future__ import annotations

import trio
import trio.testing
from support.segment_client import bytes_of

from penstock.net.draining import Draining
from penstock.protocols.segment.front import SegmentSettings
from penstock.protocols.segment.front.link import Link
from penstock_codecs.segment import draft

LARGE, SMALL = draft.SegmentRead("s", 0, draft.Flags(), bytes(4 << 20)), draft.KeepAlive(b"small")


async def test_room_that_another_reply_made() -> None:
    """The client takes all before the writer has its turn, and the next `say` writes the rest itself."""
    ours, theirs = trio.socket.socketpair()
    with ours, theirs, trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            link = Link(trio.SocketStream(theirs), SegmentSettings(), Draining())
            await ours.send(bytes_of(SMALL))
            assert await link.next_request(lambda: False) == SMALL
            link.say(LARGE)
            nursery.start_soon(link.room)
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            left = len(bytes_of(LARGE, SMALL))
            link.say(SMALL)
            while left:
                left -= len(await ours.recv(left))
                link.say()
            await trio.testing.wait_all_tasks_blocked()
            assert not nursery.child_tasks
