"""The link of a segment connection: nobody waits for room that is there."""

from __future__ import annotations

import trio
import trio.testing
from support.segment_client import bytes_of

from penstock.fronts.draining import Draining
from penstock.fronts.segment import SegmentSettings
from penstock.fronts.segment.link import Link
from penstock_codecs.segment import draft

LARGE = draft.SegmentRead("s", 0, draft.Flags(), bytes(4 << 20))


async def test_room_that_another_reply_made() -> None:
    """The client takes all before the writer has its turn, and the next `say` writes the rest itself."""
    ours, theirs = trio.socket.socketpair()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            link = Link(trio.SocketStream(theirs), SegmentSettings(), Draining())
            await ours.send(bytes_of(draft.KeepAlive()))
            assert await link.next_request(lambda: False) == draft.KeepAlive()
            link.say(LARGE)
            nursery.start_soon(link.room)
            await trio.testing.wait_all_tasks_blocked()
            left = len(bytes_of(LARGE)) + len(bytes_of(draft.KeepAlive()))
            while left > len(bytes_of(draft.KeepAlive())):  # as far as the kernel has it, and then some more
                left -= len(await ours.recv(left))
                link.say()
            link.say(draft.KeepAlive())
            left -= len(await ours.recv(left))
            assert left == 0
            nursery.start_soon(link.run_writer)
            await trio.testing.wait_all_tasks_blocked()
            assert {task.name for task in nursery.child_tasks} == {f"{__name__}"} or len(nursery.child_tasks) == 1
            nursery.cancel_scope.cancel()
    ours.close()
