"""The management endpoints for the captures in the recorder's directory: a list, the files, their messages, and the
comparison of two."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
import trio

from penstock.app.management.command import CommandEnd, CommandFailed, object_of, run_command
from penstock.app.management.controls import Controls
from penstock.app.management.mcp.tool import Pager, ToolFailed
from penstock.app.management.positions import query_of
from penstock.app.management.recorder_directory import RecorderDirectory
from penstock.app.management.traffic import Traffic
from penstock.app.management.words import Answer, Endpoints, RequestRefused, filter_of, whole_number
from penstock.model.failures import FailureCode, fail
from penstock.model.limits import KIB
from penstock.net.http.exchange import Exchange

__all__ = ["AboutCaptures"]

_SECONDS: Final = 60.0
"""Time for reading captures."""
_STREAM_SECONDS: Final = 600.0
"""Time for reading a capture whose client sees the messages come."""
_EVENTS: Final = "text/event-stream"
_PROGRESS: Final = b'{"type":"progress"'
_MOST_FILES: Final = 1000
_MOST_MESSAGES: Final = 200
_PIECE: Final = 256 * KIB
_SIDES: Final = ("front", "back", "both")
_BY: Final = ("content", "position")

T = TypeVar("T")


class AboutCaptures:
    """The endpoints; see docs/management.md. Captures are read by commands in processes of their own, two at a time."""

    def __init__(self, traffic: Traffic, controls: Controls) -> None:
        self._directory = RecorderDirectory(traffic, controls)
        self.endpoints: Endpoints = {
            ("captures",): {"GET": self._captures},
            ("captures", "compare"): {"GET": self._compare},
            ("captures", ""): {"GET": self._download},
            ("captures", "", "messages"): {"GET": self._messages},
        }

    async def _captures(self, _exchange: Exchange, _name: str) -> Answer:
        entries = await _answered(self._directory.captures())
        shown = [entry._asdict() for entry in entries[:_MOST_FILES]]
        return 200, {"captures": shown, "has_more": len(entries) > _MOST_FILES}

    async def _download(self, exchange: Exchange, name: str) -> None:
        (path,) = await _found(self._directory.paths(name))
        kind = "application/zstd" if path.suffix == ".zst" else "application/x-pcapng"
        head = [
            ("content-type", kind),
            ("content-disposition", f'attachment; filename="{_plain(path.name)}"'),
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
        ]
        if exchange.request.method == "HEAD":
            await exchange.respond(200, head)
            return
        async with await trio.open_file(path, "rb") as file:
            await exchange.start(200, head)
            while piece := await file.read(_PIECE):
                await exchange.send([piece])
        await exchange.finish()

    async def _messages(self, exchange: Exchange, name: str) -> Answer | None:
        query = query_of(exchange.request.query, ("filter", "side", "cursor", "limit"))
        limit = whole_number("limit", query.get("limit", "100"), _MOST_MESSAGES)
        expression, side = query.get("filter", ""), _one_of("side", query, _SIDES)
        filter_of(expression)  # raises
        try:
            pager = Pager(query.get("cursor"), limit)
        except ToolFailed as error:
            raise fail(FailureCode.BAD_QUERY, str(error)) from None
        paths = await _found(self._directory.paths(name))
        sides = [] if side is None else [f"--side={side}"]
        command = [
            "show",
            "--json",
            "--details",
            "--progress",
            f"--filter={expression}",
            *sides,
            "--",
            *map(str, paths),
        ]
        if _EVENTS in (exchange.request.header("accept") or ""):
            await _send_messages(exchange, command, pager)
            return None
        end = await _answered(_run(command, pager, lambda _progress: None, _SECONDS))
        return 200, {"messages": pager.items, **_end(pager, end)}

    async def _compare(self, exchange: Exchange, _name: str) -> Answer:
        query = query_of(exchange.request.query, ("a", "b", "by"))
        for name in ("a", "b"):
            if name not in query:
                raise fail(FailureCode.BAD_QUERY, f"{name}: the name of a capture is missing")
        paths = await _found(self._directory.paths(query["a"], query["b"]))
        by = _one_of("by", query, _BY) or "content"
        comparison = await _answered(
            object_of(["diff", "--json", f"--by={by}", "--limit=20", "--", *map(str, paths)], _SECONDS)
        )
        pager = Pager(None, _MOST_MESSAGES)
        pager.take_all(comparison["streams"])
        return 200, {"equal": comparison["equal"], "streams": pager.items, "has_more": pager.next_cursor is not None}


async def _run(command: list[str], pager: Pager, on_line: Callable[[bytes], object], seconds: float) -> CommandEnd:
    """Run `show` until the page is full. `on_line`: gets each line of progress, and each message of the page."""

    def take(line: bytes) -> bool:
        if line.startswith(_PROGRESS):
            on_line(b"event: progress\ndata: %b\n\n" % line)
            return True
        if pager.skip():
            return True
        goes_on = pager.take(msgspec.json.decode(line))
        if goes_on:
            on_line(b"event: message\ndata: %b\n\n" % msgspec.json.encode(pager.items[-1]))
        return goes_on

    return await run_command(command, take, seconds)


def _end(pager: Pager, end: CommandEnd) -> dict[str, Any]:
    """Return how reading ended. `complete` False: its time was over, and there may be more messages."""
    is_full = pager.next_cursor is not None  # then the command was stopped
    warnings = [] if is_full or end.interrupted else end.warnings
    return {"next_cursor": pager.next_cursor, "complete": not end.interrupted, "warnings": warnings}


async def _send_messages(exchange: Exchange, command: list[str], pager: Pager) -> None:
    """Send a page of messages as server-sent events while they are found: `message`, `progress` with bytes, and one
    `end` or `failed`."""
    send, receive = trio.open_memory_channel[bytes](math.inf)  # a page, and two lines of progress a second

    async def run() -> None:
        with send:
            try:
                end = await _run(command, pager, send.send_nowait, _STREAM_SECONDS)
                last = b"event: end\ndata: %b\n\n" % msgspec.json.encode(_end(pager, end))
            except CommandFailed as error:
                last = b"event: failed\ndata: %b\n\n" % msgspec.json.encode({"message": str(error)})
            send.send_nowait(last)

    await exchange.start(200, [("content-type", _EVENTS), ("cache-control", "no-store")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        async for event in receive:
            await exchange.send([event])
    await exchange.finish()


async def _answered(work: Awaitable[T]) -> T:
    """Return the result. Raises RequestRefused in place of CommandFailed."""
    try:
        return await work
    except CommandFailed as error:
        raise RequestRefused(409, "cannot_read", str(error)) from None


async def _found(work: Awaitable[T]) -> T:
    """Return the result. Raises RequestRefused in place of CommandFailed: there is no such capture."""
    try:
        return await work
    except CommandFailed as error:
        raise RequestRefused(404, "capture_not_found", str(error)) from None


def _one_of(name: str, query: dict[str, Any], known: tuple[str, ...]) -> str | None:
    value = query.get(name)
    if value is not None and value not in known:
        raise fail(FailureCode.BAD_QUERY, f"{name}: expected one of {', '.join(known)}, got {value!r:.80}")
    return value


def _plain(name: str) -> str:
    """Return a file's name for a header: other characters than printable ASCII, and quotes, become underscores."""
    return "".join(sign if " " <= sign <= "~" and sign not in '"\\' else "_" for sign in name)
