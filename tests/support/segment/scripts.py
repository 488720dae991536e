"""Segment stores that answer as a script says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from penstock.wire.codec import NEED_DATA, PAUSED
from penstock_pravega.codec import SegmentMessage, SegmentServer, released

__all__ = ["Answer", "scripted"]

Answer = Callable[[Any], list[SegmentMessage] | None]


def scripted(answer: Answer) -> Callable[[trio.abc.Stream], Awaitable[None]]:
    """Return a store that answers each request with the result of `answer`; None ends the connection."""

    async def serve(stream: trio.abc.Stream) -> None:
        codec = SegmentServer()
        async with stream:
            while True:
                while (event := codec.next_event()) is NEED_DATA:
                    codec.receive(await stream.receive_some(1 << 16))
                if event is PAUSED:
                    return
                replies = [released.Hello(16, 5)] if isinstance(event, released.Hello) else answer(event)
                if replies is None:
                    return
                for reply in replies:
                    await stream.send_all(b"".join(codec.send(reply)))

    return serve
