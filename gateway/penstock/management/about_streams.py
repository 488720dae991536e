"""`GET /streams`: the streams that there are, as the clients of a listener see them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

from penstock.backs.base import Back
from penstock.fronts.exchange import Exchange
from penstock.identity import CLIENT
from penstock.management.overview import ListenerView, Overview
from penstock.management.positions import query_of
from penstock.management.words import Answer, Endpoints, whole_number
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.operations import ListBasins, ListStreams, Page
from penstock_codecs.streams import StreamInfo

__all__ = ["AboutStreams"]

_MOST: Final = 1000
_PAGE: Final = 100
_GONE: Final = (FailureCode.BASIN_NOT_FOUND, FailureCode.BASIN_DELETION_PENDING)
_KNOWN: Final = ("after", "limit", "basin", "prefix", "listener", "identity")


class AboutStreams:
    """Its endpoint; see docs/management.md."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview
        self.endpoints: Endpoints = {("streams",): {"GET": self._streams}}

    async def _streams(self, exchange: Exchange, _name: str) -> Answer:
        asked = query_of(exchange.request.query, _KNOWN)
        limit = whole_number("limit", asked.get("limit", "100"), _MOST)
        listener = self._listener(asked.get("listener"))
        client = replace(CLIENT.get(), listener=listener.name, identity=asked.get("identity", ""))
        token = CLIENT.set(client)
        try:
            found: list[dict[str, Any]] = []
            async for stream in _all(listener.back, asked, limit + 1):
                if len(found) == limit:
                    return 200, {"listener": listener.name, "streams": found, "has_more": True}
                found.append(stream)
        finally:
            CLIENT.reset(token)
        return 200, {"listener": listener.name, "streams": found, "has_more": False}

    def _listener(self, wanted: str | None) -> ListenerView:
        label = None if wanted is None else wanted.removeprefix("listeners.")
        for listener in self._overview.listeners:
            if label is None or listener.name.removeprefix("listeners.") == label:
                return listener
        there = ", ".join(one.name for one in self._overview.listeners) or "none"
        raise fail(FailureCode.BAD_QUERY, f"listener: expected one of {there}, got {wanted!r:.80}")


async def _all(back: Back, asked: dict[str, str], page_size: int) -> AsyncIterator[dict[str, Any]]:
    """In the order of basins and names, after the one that is named."""
    after_basin, _, after_stream = asked.get("after", "").partition("/")
    async for basin in _basins(back, after_basin, asked.get("basin")):
        start, more = after_stream if basin == after_basin else "", True
        while more:
            page = await _page(back, ListStreams(basin, asked.get("prefix", ""), start, page_size))
            for one in page.items:
                yield {"stream": f"{basin}/{one.name}", "created_at": one.created_at, "deleted_at": one.deleted_at}
                start = one.name
            more = page.has_more and bool(page.items)


async def _page(back: Back, listing: ListStreams) -> Page[StreamInfo]:
    try:
        return await back.perform(listing)
    except OperationFailed as error:
        if error.failure.code in _GONE:
            return Page([], has_more=False)
        raise


async def _basins(back: Back, first: str, only: str | None) -> AsyncIterator[str]:
    """Their names from `first` on, which need not be there any more, or `only` this one."""
    if only is not None:
        if only >= first:
            yield only
        return
    start, more = first, True
    if first:
        yield first
    while more:
        page = await back.perform(ListBasins("", start, _PAGE))
        for basin in page.items:
            yield basin.name
            start = basin.name
        more = page.has_more and bool(page.items)
