"""The operators' web page: the files of the folder `web`, and a stream of events."""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePath
from typing import Final

import trio

from penstock.app.management.page_events import PageEvents
from penstock.app.management.positions import query_of
from penstock.app.management.words import Endpoints, filter_of
from penstock.net.http.exchange import Exchange
from penstock.recorder.captures.choosing import CaptureFilter

__all__ = ["EventsEndpoint", "PageFiles"]

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
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
_EVENTS: Final = (("content-type", "text/event-stream"), ("cache-control", "no-store"))
_RETRY: Final = b"retry: 1000\n\n"


class PageFiles:
    """The page's files. They contain nothing about the gateway, so they need no token; the page itself asks for one."""

    def __init__(self) -> None:
        senders = {(file.name,): partial(_file, file) for file in (files("penstock.app.management") / "web").iterdir()}
        senders[("",)] = senders.pop(("index.html",))
        self.endpoints: Endpoints = {path: {"GET": send} for path, send in senders.items()}


async def _file(file: Traversable, exchange: Exchange, _name: str) -> None:
    content_type = _TYPES[PurePath(file.name).suffix]
    await exchange.respond(200, [("content-type", content_type), *_HEADERS], file.read_bytes())


class EventsEndpoint:
    """`GET /events`: the events of `PageEvents`, as server-sent events."""

    def __init__(self, page_events: PageEvents) -> None:
        self._page_events = page_events
        self.endpoints: Endpoints = {("events",): {"GET": self._events}}

    async def _events(self, exchange: Exchange, _name: str) -> None:
        if exchange.request.method == "HEAD":
            await exchange.respond(200, _EVENTS)
            return
        choice = filter_of(query_of(exchange.request.query, ("filter",)).get("filter", ""))
        if choice == CaptureFilter():
            await _send(exchange, self._page_events)
            return
        async with self._page_events.filtered(choice) as page_events:
            await _send(exchange, page_events)


async def _send(exchange: Exchange, page_events: PageEvents) -> None:
    # After an event of another process the page gets all that is kept.
    last = page_events.number_of(exchange.request.header("last-event-id") or "") or 0
    async with page_events.opened():
        await exchange.start(200, _EVENTS)
        await exchange.send([_RETRY])
        while events := await page_events.news(last):
            await exchange.send([_spelled(page_events.resume_id(event[0]), *event[1:]) for event in events])
            last = events[-1][0]
            await trio.sleep(_PAUSE_SECONDS)
        await exchange.finish()


def _spelled(resume_id: str, kind: str, json: bytes) -> bytes:
    """Spell one server-sent event; JSON has no line feeds in it."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (resume_id.encode(), kind.encode(), json)
