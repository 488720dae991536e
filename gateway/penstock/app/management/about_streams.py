"""`GET /streams`: the streams that exist, as a listener's clients see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from msgspec.structs import replace

from penstock.app.management.overview import ListenerView, Overview
from penstock.app.management.positions import query_of
from penstock.app.management.words import Answer, Endpoints, whole_number
from penstock.core.back import Back
from penstock.core.identity import CLIENT
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import ListBasins, ListStreams
from penstock.net.http.exchange import Exchange

__all__ = ["AboutStreams", "as_client"]

_MOST: Final = 1000
_PAGE: Final = 100
_GONE: Final = (FailureCode.BASIN_NOT_FOUND, FailureCode.BASIN_DELETION_PENDING)
_KNOWN: Final = ("after", "limit", "basin", "prefix", "listener", "identity")


class AboutStreams:
    """The endpoint; see docs/management.md."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview
        self.endpoints: Endpoints = {("streams",): {"GET": self._streams}}

    async def _streams(self, exchange: Exchange, _name: str) -> Answer:
        query = query_of(exchange.request.query, _KNOWN)
        limit = whole_number("limit", query.get("limit", "100"), _MOST)
        with as_client(self._overview, query) as listener:
            rows, failed = await _some(listener.back, query, limit + 1)
        return 200, {
            "listener": listener.name,
            "streams": rows[:limit],
            "has_more": len(rows) > limit,
            "failed": [{"back": back, "reason": reason} for back, reason in sorted(failed.items())],
        }


@contextmanager
def as_client(overview: Overview, query: Mapping[str, str]) -> Iterator[ListenerView]:
    """Act as a client of the listener and with the identity that a query names (`listener`, `identity`), without them
    as one of the first listener that has no identity. Raises BAD_QUERY."""
    listener = _listener(overview, query.get("listener"))
    token = CLIENT.set(replace(CLIENT.get(), listener=listener.name, identity=query.get("identity", "")))
    try:
        yield listener
    finally:
        CLIENT.reset(token)


def _listener(overview: Overview, wanted: str | None) -> ListenerView:
    label = None if wanted is None else wanted.removeprefix("listeners.")
    for listener in overview.listeners:
        if label is None or listener.name.removeprefix("listeners.") == label:
            return listener
    there = ", ".join(one.name for one in overview.listeners) or "none"
    raise fail(FailureCode.BAD_QUERY, f"listener: expected one of {there}, got {wanted!r:.80}")


async def _some(back: Back, query: dict[str, str], most: int) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the first streams after the one that is named, ordered by basin and name, and the backs that could not be
    asked, each with the reason."""
    first, _, start = query.get("after", "").partition("/")
    only, prefix = query.get("basin"), query.get("prefix", "")
    if only is not None and only < first:
        return [], {}
    names, last, more = [only or first], first, only is None
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    while True:
        for basin in filter(None, names):
            behind = start if basin == first else ""
            rows += await _in_basin(back, basin, prefix, behind, most - len(rows), failed)
            if len(rows) >= most:
                return rows, failed
        if not more:
            return rows, failed
        page = await back.perform(ListBasins("", last, _PAGE, partial=True))
        failed |= page.failed
        names = [basin.name for basin in page.items]
        last, more = (names[-1] if names else last), page.has_more and bool(names)


async def _in_basin(
    back: Back, basin: str, prefix: str, start: str, most: int, failed: dict[str, str]
) -> list[dict[str, Any]]:
    """Return the first streams of one basin after `start`; nothing if the basin is gone. Adds to `failed` as in
    `_some`."""
    rows: list[dict[str, Any]] = []
    more = True
    while more and len(rows) < most:
        try:
            page = await back.perform(ListStreams(basin, prefix, start, most - len(rows), partial=True))
        except OperationFailed as error:
            if error.failure.code in _GONE:
                return rows
            raise
        failed |= page.failed
        for item in page.items:
            start = item.name
            rows.append({"stream": f"{basin}/{start}", "created_at": item.created_at, "deleted_at": item.deleted_at})
        more = page.has_more and bool(page.items)
    return rows
