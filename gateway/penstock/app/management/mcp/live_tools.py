"""Tools that ask this process: `tail`, `positions` and `check`."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import msgspec
import trio
from msgspec import Meta

from penstock.app.config import ConfigError, parse_config
from penstock.app.management.controls import Controls
from penstock.app.management.mcp.tool import Arguments, Limit, Tool, ToolFailed
from penstock.app.management.overview import Overview
from penstock.app.management.page_events import PageEvents
from penstock.app.management.positions import Positions
from penstock.app.report import report_parts
from penstock.core.errors import CannotStart

__all__ = ["live_tools"]

_TAIL_SECONDS: Final = 5.0
_ORDINAL: Final = re.compile("[0-9]{1,19}")
"""The ordinal of a message, at the end of a cursor."""


def live_tools(overview: Overview, controls: Controls, page_events: PageEvents) -> list[Tool[Any]]:
    """Return the tools over the parts of a gateway. `page_events` must run."""
    positions = Positions(overview)

    async def tail(arguments: TailArguments, _may_change: bool) -> TailResult:
        return await _tail(page_events, arguments)

    async def find(arguments: PositionsArguments, _may_change: bool) -> PositionsResult:
        given = {name: value for name, value in msgspec.structs.asdict(arguments).items() if value is not None}
        return msgspec.convert(await positions.find(urlencode(given)), PositionsResult)

    async def check(arguments: CheckArguments, may_change: bool) -> CheckResult:
        return await trio.to_thread.run_sync(_check, controls, arguments.config, may_change)

    return [
        Tool(
            name="tail",
            title="Follow the traffic",
            description=(
                "Decoded messages between the gateway and its clients and servers, as they pass, of all protocols. "
                "Waits for traffic: call again with next_cursor to go on without a gap. Secrets are blanked."
            ),
            arguments=TailArguments,
            result=TailResult,
            run=tail,
        ),
        Tool(
            name="positions",
            title="Convert a position",
            description=(
                "The position of one record of a stream in the terms of every protocol, and how clients of each "
                "protocol read on from there. Give the stream and exactly one position; the result is the first record "
                "at or after it."
            ),
            arguments=PositionsArguments,
            result=PositionsResult,
            run=find,
        ),
        Tool(
            name="check",
            title="Describe or validate a configuration",
            description=(
                "What the configuration in force means, in plain words: listeners, access, backs, routes, what each "
                "protocol cannot carry, and remarks that need attention. With config, validates that text instead, and "
                "changes nothing."
            ),
            arguments=CheckArguments,
            result=CheckResult,
            run=check,
        ),
    ]


# ---- tail ------------------------------------------------------------------------------------------------------------


class TailArguments(Arguments, frozen=True, kw_only=True):
    """Arguments of `tail`; patterns are globs."""

    seconds: Annotated[float, Meta(ge=0.1, le=30, description="How long to wait for messages.")] = _TAIL_SECONDS
    limit: Limit = 50
    cursor: Annotated[
        Annotated[str, Meta(max_length=80)] | None, Meta(description="next_cursor of the previous answer.")
    ] = None
    connection: Annotated[int | None, Meta(description="Only this connection, by its number.")] = None
    layer: Annotated[str | None, Meta(description="Only messages of this protocol or framing.")] = None
    stream: Annotated[str | None, Meta(description="Only messages about streams that match, such as 'basin/*'.")] = None
    kind: Annotated[str | None, Meta(description="Only messages of this kind, such as 'problem' for errors.")] = None

    def wants(self, message: dict[str, Any]) -> bool:
        """Return whether a message is asked for."""
        same = ((self.connection, message["connection"]), (self.layer, message["layer"]))
        globs = ((self.stream, message["stream"]), (self.kind, message["kind"]))
        return all(pattern in (None, value) for pattern, value in same) and all(
            glob is None or fnmatchcase(value, glob) for glob, value in globs
        )


class TailResult(msgspec.Struct, kw_only=True):
    """Messages in their order."""

    messages: Annotated[
        list[dict[str, Any]],
        Meta(description="Messages: time (ms), connection, sender, layer, kind, stream, failure, said, bodies."),
    ]
    missed: Annotated[int, Meta(description="Messages that came faster than they were taken, and are not shown.")]
    next_cursor: Annotated[str, Meta(description="The cursor for what comes next.")]


async def _tail(events: PageEvents, arguments: TailArguments) -> TailResult:
    tail_part = _TailPart(arguments, *_place(events, arguments.cursor))
    async with events.opened():
        with trio.move_on_after(arguments.seconds):
            while not tail_part.full and (news := await events.news(tail_part.after)):
                for number, kind, line in news:
                    if not tail_part.full:
                        tail_part.take(number, kind, line)
    cursor = f"{events.resume_id(tail_part.after)}-{tail_part.nth}"
    return TailResult(messages=tail_part.messages, missed=tail_part.missed, next_cursor=cursor)


class _TailPart:
    """The messages that a call asks for. `after`: the event to go on after. `nth`: the ordinal of the last message,
    which tells how many were missed; 0: unknown."""

    def __init__(self, arguments: TailArguments, after: int, nth: int) -> None:
        self.after = after
        self.nth = nth
        self.missed = 0
        self.messages: list[dict[str, Any]] = []
        self._asked = arguments

    @property
    def full(self) -> bool:
        return len(self.messages) == self._asked.limit

    def take(self, number: int, kind: str, line: bytes) -> None:
        """Take an event of the page."""
        self.after = number
        if kind != "message":
            return
        message = msgspec.json.decode(line)
        del message["detail"]  # it repeats the other keys, at length
        self.missed += max(message["nth"] - self.nth - 1, 0) if self.nth else 0
        self.nth = message["nth"]
        if self._asked.wants(message):
            self.messages.append(message)


def _place(events: PageEvents, cursor: str | None) -> tuple[int, int]:
    """Return the event to go on after, and the ordinal of the last message (0: unknown)."""
    if cursor is None:
        return events.number, 0
    name, _, last = cursor.rpartition("-")
    number = events.number_of(name)
    if number is None:
        raise ToolFailed("cursor: the gateway was restarted since; call without a cursor")
    if _ORDINAL.fullmatch(last) is None:
        raise ToolFailed(f"cursor: {cursor!r:.80} is none that a call returned; call without a cursor")
    return number, int(last)


# ---- positions -------------------------------------------------------------------------------------------------------


class PositionsArguments(Arguments, frozen=True, kw_only=True):
    """Arguments of `positions`, as those of `GET /positions`."""

    stream: Annotated[str, Meta(description="The stream, as BASIN/STREAM.")]
    seq_num: Annotated[Annotated[int, Meta(ge=0)] | None, Meta(description="The record with this number.")] = None
    timestamp: Annotated[
        Annotated[int, Meta(ge=0)] | None, Meta(description="The first record at or after this time, in ms.")
    ] = None
    record_id: Annotated[str | None, Meta(description="The first record with this identifier MS-SEQ or later.")] = None
    offset: Annotated[
        Annotated[int, Meta(ge=0)] | None, Meta(description="The first record that begins at or after this byte.")
    ] = None
    tail_offset: Annotated[
        Annotated[int, Meta(ge=0)] | None, Meta(description="This many records before the tail.")
    ] = None
    listener: Annotated[str | None, Meta(description="Use the routes and names of this listener.")] = None
    identity: Annotated[str | None, Meta(description="Use the routes of this identity.")] = None


class PositionsResult(msgspec.Struct, kw_only=True):
    """The answer of `GET /positions`."""

    stream: str
    position: Annotated[dict[str, Any], Meta(description="seq_num, timestamp, record_id, offset and at_tail.")]
    read_on: Annotated[dict[str, Any], Meta(description="By protocol, how its clients read on; null if they cannot.")]


# ---- check -----------------------------------------------------------------------------------------------------------


class CheckArguments(Arguments, frozen=True, kw_only=True):
    """Arguments of `check`."""

    config: Annotated[
        Annotated[str, Meta(max_length=200_000)] | None,
        Meta(description="TOML to validate (default: the configuration in force)."),
    ] = None


class CheckPart(msgspec.Struct):
    """One part of the description."""

    title: str
    lines: list[str]


class CheckResult(msgspec.Struct, kw_only=True):
    """A configuration in words."""

    valid: bool
    problem: Annotated[str | None, Meta(description="What is invalid, and where.")] = None
    parts: Annotated[
        list[CheckPart],
        Meta(description="The description; none for a text that is invalid, or that a token for looking validates."),
    ] = []


def _check(controls: Controls, text: str | None, may_change: bool) -> CheckResult:
    try:
        config = controls.config() if text is None else parse_config(text, "config")
        if text is not None and not may_change:  # the description tells of files on this machine that the text names
            return CheckResult(valid=True)
        return CheckResult(valid=True, parts=[CheckPart(title, lines) for title, lines in report_parts(config)])
    except (ConfigError, CannotStart, ValueError) as error:
        return CheckResult(valid=False, problem=str(error))
