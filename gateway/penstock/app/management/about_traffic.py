"""The management endpoints for connections, recordings and live traffic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.app.management.positions import query_of
from penstock.app.management.settings import ManagementSettings
from penstock.app.management.traffic import SelectionJson, Traffic, parse_selection, words_of
from penstock.app.management.words import Answer, EmptyBody, Endpoints, RequestRefused, read_words, whole_number
from penstock.core.errors import CannotStart
from penstock.model.failures import FailureCode, fail
from penstock.net.http.exchange import Exchange

__all__ = ["AboutTraffic"]

_MOST_ROWS: Final = 1000
_SEARCHED: Final = ("connection", "name", "protocol", "client", "server", "routes", "streams", "identities")
_SORTED: Final = (*_SEARCHED, "side", "since", "client_bytes", "server_bytes")
_NO_STORE: Final = ("cache-control", "no-store")


class _RecordWords(SelectionJson, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A selection. `expression`: a further part of it, in one line."""

    expression: str = ""

    def selection(self) -> SelectionJson:
        """Return the whole selection. Raises INVALID."""
        more = parse_selection(self.expression)
        return SelectionJson(**{key: (*getattr(self, key), *getattr(more, key)) for key in more.__struct_fields__})


class AboutTraffic:
    """The endpoints; see docs/management.md. `close`: closes a connection by its number; returns whether it existed."""

    def __init__(
        self, traffic: Traffic, settings: ManagementSettings, close: Callable[[int], bool] | None = None
    ) -> None:
        self._traffic = traffic
        self._settings = settings
        self._close = close
        self.endpoints: Endpoints = {
            ("connections",): {"GET": self._connections},
            ("recordings",): {"GET": self._recordings, "POST": self._record},
            ("recordings", "", "stop"): {"POST": self._stop_recording},
            ("tail",): {"GET": self._tail},
        }
        if close is not None:
            self.endpoints = {
                **self.endpoints,
                ("connections", ""): {"DELETE": self._delete},
                ("connections", "", "close"): {"POST": self._end},
            }

    # ---- connections ---------------------------------------------------------------------------------------------

    async def _connections(self, exchange: Exchange, _name: str) -> Answer:
        query = query_of(exchange.request.query, ("search", "sort", "limit"))
        limit = whole_number("limit", query["limit"], _MOST_ROWS) if "limit" in query else None
        rows = await self._traffic.connections()
        if "search" in query:
            rows = [row for row in rows if _has(row, query["search"].lower())]
        if "sort" in query:
            key = query["sort"].removeprefix("-")
            if key not in _SORTED:
                raise fail(FailureCode.BAD_QUERY, f"sort: expected one of {', '.join(_SORTED)}, got {key!r:.80}")
            rows.sort(key=lambda row: row[key], reverse=query["sort"].startswith("-"))
        return 200, {"connections": rows[:limit], "total": len(rows)}

    async def _delete(self, _exchange: Exchange, name: str) -> Answer:
        assert self._close is not None, "this endpoint needs a recorder"
        number = int(name) if name.isascii() and name.isdigit() and len(name) < 16 else 0
        if not (self._close(number) or self._traffic.break_off(number)):
            raise RequestRefused(404, "connection_not_found", f"no connection {name!r:.80} is open")
        return 200, {"connection": number, "closed": True}

    async def _end(self, exchange: Exchange, name: str) -> Answer:
        await read_words(exchange, EmptyBody, self._settings.body_seconds)
        return await self._delete(exchange, name)

    # ---- recordings ----------------------------------------------------------------------------------------------

    async def _recordings(self, _exchange: Exchange, _name: str) -> Answer:
        return 200, {"recordings": self._traffic.running()}

    async def _record(self, exchange: Exchange, _name: str) -> Answer:
        words = await read_words(exchange, _RecordWords, self._settings.body_seconds)
        try:
            return 200, await self._traffic.start(words.selection())
        except CannotStart as error:
            raise RequestRefused(409, "cannot_record", str(error)) from None

    async def _stop_recording(self, exchange: Exchange, name: str) -> Answer:
        await read_words(exchange, EmptyBody, self._settings.body_seconds)
        stopped = await self._traffic.stop(name)
        if stopped is None:
            raise RequestRefused(404, "recording_not_found", f"no recording {name!r:.80} is running")
        return 200, stopped

    async def _tail(self, exchange: Exchange, _name: str) -> None:
        """Stream the traffic from now on, until the client disconnects."""
        words = words_of(exchange.request.query)
        head = [("content-type", "application/x-pcapng"), _NO_STORE]
        async with self._traffic.listening(words) as live:
            if exchange.request.method == "HEAD":
                await exchange.respond(200, head)
                return
            await exchange.start(200, head)
            async for piece in live:
                await exchange.send([piece])
            await exchange.finish()


def _has(row: dict[str, Any], text: str) -> bool:
    """Return whether a text in lower case is in one of the searched parts of a connection."""
    parts = (row[key] for key in _SEARCHED)
    return any(
        text in str(element).lower()
        for part in parts
        for element in (part if isinstance(part, list | tuple) else (part,))
    )
