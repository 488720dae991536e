"""An application for uvicorn that reads a request's body and answers: the least that an endpoint does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

ANSWER = b'{"start":{"seq_num":0,"timestamp":0},"end":{"seq_num":1,"timestamp":0},"tail":{"seq_num":1,"timestamp":0}}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]

Message = dict[str, Any]


async def application(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Answer every request with `ANSWER`."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})
