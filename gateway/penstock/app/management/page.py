"""The operators' web page: three files and a stream of events."""

from __future__ import annotations

from functools import cache, partial
from importlib.resources import files
from typing import Final

import trio

from penstock.app.management.page_events import PageEvents
from penstock.app.management.words import Endpoints
from penstock.net.http.exchange import Exchange

__all__ = ["EventsEndpoint", "PageFiles"]

_FILES: Final = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
}
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Content security policy: nothing from other origins, nothing inline, and no conversion of text to markup, whatever
clients call their streams."""
_HEADERS: Final = (
    ("content-security-policy", _POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-cache"),
)
_PAUSE_SECONDS: Final = 0.25
"""Pause between two batches of events to a page, which shows the latest messages, not thousands a second."""
_RETRY: Final = b"retry: 1000\n\n"


class PageFiles:
    """The page's files. They contain nothing about the gateway, so they need no token; the page itself asks for one."""

    def __init__(self) -> None:
        self.endpoints: Endpoints = {(path,): {"GET": partial(_file, path)} for path in _FILES}


async def _file(path: str, exchange: Exchange, _name: str) -> None:
    name, content_type = _FILES[path]
    await exchange.respond(200, [("content-type", content_type), *_HEADERS], _content(name))


@cache
def _content(name: str) -> bytes:
    return (files("penstock.app.management") / "web" / name).read_bytes()


class EventsEndpoint:
    """`GET /events`: the events of `PageEvents`, as server-sent events."""

    def __init__(self, page_events: PageEvents) -> None:
        self._page_events = page_events
        self.endpoints: Endpoints = {("events",): {"GET": self._events}}

    async def _events(self, exchange: Exchange, _name: str) -> None:
        head = [("content-type", "text/event-stream"), ("cache-control", "no-store")]
        if exchange.request.method == "HEAD":
            await exchange.respond(200, head)
            return
        page_events = self._page_events
        # After an event of another process the page gets all that is kept.
        last = page_events.number_of(exchange.request.header("last-event-id") or "") or 0
        async with page_events.opened():
            await exchange.start(200, head)
            await exchange.send([_RETRY])
            while events := await page_events.news(last):
                await exchange.send([_spelled(page_events.resume_id(event[0]), *event[1:]) for event in events])
                last = events[-1][0]
                await trio.sleep(_PAUSE_SECONDS)
            await exchange.finish()


def _spelled(resume_id: str, kind: str, json: bytes) -> bytes:
    """Spell one server-sent event; JSON has no line feeds in it."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (resume_id.encode(), kind.encode(), json)
