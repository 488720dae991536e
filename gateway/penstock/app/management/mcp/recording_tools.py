"""Tools about recordings: `recordings`, and `search`, `explain`, `diff` and `replay`, which run commands on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from penstock.app.management.command import object_of, run_command
from penstock.app.management.controls import Controls
from penstock.app.management.mcp.tool import Arguments, Cursor, Limit, Pager, PageResult, Tool, ToolFailed
from penstock.app.management.recorder_directory import RecorderDirectory
from penstock.app.management.traffic import Traffic
from penstock.protocols.plugin import server_kinds

__all__ = ["recording_tools"]

_SECONDS: Final = 60.0
"""Time for reading recordings."""
_MOST_RECORDINGS: Final = 50
_MOST_CONVERSATIONS: Final = 50
_SCHEMES: Final = ", ".join(server_kinds())

Recordings = Annotated[
    tuple[str, ...],
    Meta(min_length=1, max_length=_MOST_RECORDINGS, description="Names from the tool recordings; read as one."),
]
Side = Annotated[
    Literal["front", "back", "both"] | None,
    Meta(description="Connections of clients (front) or to servers (back); default: front, or what was recorded."),
]
Connections = Annotated[tuple[int, ...], Meta(max_length=50, description="Only these connections, by their numbers.")]
Streams = Annotated[tuple[str, ...], Meta(max_length=50, description="Only streams that match, such as 'basin/*'.")]


def recording_tools(traffic: Traffic, controls: Controls) -> list[Tool[Any]]:
    """Return the tools over the recordings of a gateway, which are the captures in its recorder's directory."""
    directory = RecorderDirectory(traffic, controls)

    async def recordings(arguments: RecordingsArguments, _may_change: bool) -> RecordingsResult:
        pager = Pager(arguments.cursor, arguments.limit)
        pager.take_all(
            {"name": entry.name, "bytes": entry.bytes, "recording": entry.recording}
            for entry in await directory.captures()
        )
        listed = msgspec.convert(pager.items, list[RecordingFile])
        return RecordingsResult(recordings=listed, next_cursor=pager.next_cursor)

    async def search(arguments: SearchArguments, _may_change: bool) -> SearchResult:
        options = [
            "--json",
            *(["--bodies"] if arguments.bodies else []),
            *_options("connection", arguments.connections),
            *_options("protocol", arguments.protocols),
            *_options("stream", arguments.streams),
            *_options("kind", arguments.kinds),
            *_options("text", [arguments.text] if arguments.text else []),
            *_options("side", [arguments.side] if arguments.side else []),
        ]
        listed, warnings = await _lines("show", options, await directory.paths(*arguments.recordings), arguments)
        return SearchResult(messages=listed.items, next_cursor=listed.next_cursor, warnings=warnings)

    async def explain(arguments: ExplainArguments, _may_change: bool) -> ExplainResult:
        options = ["--json", *_options("connection", arguments.connections)]
        options += _options("side", [arguments.side] if arguments.side else [])
        listed, warnings = await _lines("explain", options, await directory.paths(*arguments.recordings), arguments)
        return ExplainResult(errors=listed.items, next_cursor=listed.next_cursor, warnings=warnings)

    async def diff(arguments: DiffArguments, may_change: bool) -> DiffResult:
        return await _diff(directory, arguments, may_change)

    async def replay(arguments: ReplayArguments, _may_change: bool) -> ReplayResult:
        return await _replay(directory, arguments)

    return [
        Tool(
            name="recordings",
            title="List recordings",
            description="The capture files of this gateway, newest first; the other tools take their names.",
            arguments=RecordingsArguments,
            result=RecordingsResult,
            run=recordings,
        ),
        Tool(
            name="search",
            title="Search recorded messages",
            description=(
                "Messages in recordings, decoded, of all protocols, in the order of time: by connection, protocol, "
                "stream, kind, or a text in a message or a record."
            ),
            arguments=SearchArguments,
            result=SearchResult,
            run=search,
        ),
        Tool(
            name="explain",
            title="Explain recorded errors",
            description=(
                "Each error in recordings: bytes that break a protocol, and replies that report a failure, with the "
                "rule, the clause that states it, the request before it, and a dump of the bytes."
            ),
            arguments=ExplainArguments,
            result=ExplainResult,
            run=explain,
        ),
        Tool(
            name="diff",
            title="Compare records",
            description=(
                "Compares the records of two recordings, or of a recording and a server, stream by stream and across "
                "protocols."
            ),
            arguments=DiffArguments,
            result=DiffResult,
            run=diff,
            open_world=True,
        ),
        Tool(
            name="replay",
            title="Replay recorded clients",
            description=(
                "Plays the clients of recordings against a server, which stores what they append, and reports how its "
                "answers differ from the recorded ones. Needs a token that may change something."
            ),
            arguments=ReplayArguments,
            result=ReplayResult,
            run=replay,
            read_only=False,
            open_world=True,
        ),
    ]


# ---- recordings ------------------------------------------------------------------------------------------------------


class RecordingsArguments(Arguments, frozen=True, kw_only=True):
    """Arguments of `recordings`."""

    limit: Limit = 50
    cursor: Cursor = None


class RecordingFile(msgspec.Struct, kw_only=True):
    """A file. `recording`: the number of the running recording that writes it."""

    name: str
    bytes: int
    recording: int | None = None


class RecordingsResult(PageResult, kw_only=True):
    """Files, newest first."""

    recordings: list[RecordingFile]


# ---- search and explain ----------------------------------------------------------------------------------------------


class ExplainArguments(Arguments, frozen=True, kw_only=True):
    """Arguments of `explain`."""

    recordings: Recordings
    connections: Connections = ()
    side: Side = None
    limit: Limit = 20
    cursor: Cursor = None


class SearchArguments(ExplainArguments, frozen=True, kw_only=True):
    """Arguments of `search`; patterns are globs."""

    protocols: Annotated[tuple[str, ...], Meta(max_length=20, description="Only these protocols or framings.")] = ()
    streams: Streams = ()
    kinds: Annotated[tuple[str, ...], Meta(max_length=20, description="Only these kinds, such as 'problem'.")] = ()
    text: Annotated[
        Annotated[str, Meta(max_length=500)] | None,
        Meta(description="Only messages with this text in a field or a record."),
    ] = None
    bodies: Annotated[bool, Meta(description="Whether to return the records of each message.")] = False
    limit: Limit = 50


class ExplainResult(PageResult, kw_only=True):
    """Errors in the order of time. `warnings`: what could not be read."""

    errors: Annotated[
        list[dict[str, Any]],
        Meta(description="Errors: time, connection, sender, offset, rule or failure, clause, asked, before, dump."),
    ]
    warnings: list[str]


class SearchResult(PageResult, kw_only=True):
    """Messages in the order of time. `warnings`: what could not be read."""

    messages: Annotated[list[dict[str, Any]], Meta(description="Messages, as `penstock show --json` prints them.")]
    warnings: list[str]


async def _lines(
    command: str, options: list[str], paths: list[Path], tool_arguments: ExplainArguments
) -> tuple[Pager, list[str]]:
    """Run a command that prints JSON lines. Return the part that is asked for, and what could not be read."""
    pager = Pager(tool_arguments.cursor, tool_arguments.limit)
    arguments = [command, *options, "--", *map(str, paths)]
    end = await run_command(arguments, lambda line: pager.skip() or pager.take(msgspec.json.decode(line)), _SECONDS)
    if pager.next_cursor is not None:
        return pager, []  # the command was stopped
    if end.interrupted:
        raise ToolFailed(f"{command} took more than {_SECONDS:g} seconds: name fewer recordings, or connections")
    return pager, end.warnings


def _options(name: str, values: Iterable[object]) -> Iterator[str]:
    return (f"--{name}={value}" for value in values)


# ---- diff and replay -------------------------------------------------------------------------------------------------


class DiffArguments(Arguments, frozen=True, kw_only=True):
    """Arguments of `diff`."""

    a: Annotated[str, Meta(description="A recording.")]
    b: Annotated[
        str,
        Meta(description="Another recording, or a server's URL as for replay; a token for looking cannot name one."),
    ]
    by: Annotated[Literal["content", "position"], Meta(description="How records are matched.")] = "content"
    streams: Streams = ()
    basin: Annotated[str | None, Meta(description="Basin of streams of protocols without basins, on a server.")] = None
    differences: Annotated[int, Meta(ge=0, le=100, description="Most differences to return for each stream.")] = 20
    limit: Limit = 50
    cursor: Cursor = None


class DiffResult(PageResult, kw_only=True):
    """The comparison, stream by stream."""

    equal: Annotated[bool, Meta(description="Whether all streams are equal, also those of other parts.")]
    streams: Annotated[list[dict[str, Any]], Meta(description="Streams, as `penstock diff --json` prints them.")]


async def _diff(directory: RecorderDirectory, arguments: DiffArguments, may_change: bool) -> DiffResult:
    (a,) = await directory.paths(arguments.a)
    if "://" not in arguments.b:
        b = str((await directory.paths(arguments.b))[0])
    elif may_change:
        b = arguments.b
    else:
        raise ToolFailed("b: a token that permits only looking cannot make the gateway connect to a server")
    options = [
        "--json",
        f"--by={arguments.by}",
        f"--limit={arguments.differences}",
        *_options("stream", arguments.streams),
    ]
    options += _options("basin", [arguments.basin] if arguments.basin else [])
    comparison = await object_of(["diff", *options, "--", str(a), b], _SECONDS)
    pager = Pager(arguments.cursor, arguments.limit)
    pager.take_all(comparison["streams"])
    return DiffResult(equal=comparison["equal"], streams=pager.items, next_cursor=pager.next_cursor)


class ReplayArguments(Arguments, frozen=True, kw_only=True):
    """Arguments of `replay`."""

    recordings: Recordings
    to: Annotated[str, Meta(description=f"The server's URL: SCHEME://HOST:PORT[/BASIN]; schemes: {_SCHEMES}.")]
    token: Annotated[str | None, Meta(description="Bearer token for the server, if it takes one.")] = None
    connections: Connections = ()
    streams: Streams = ()
    renames: Annotated[tuple[str, ...], Meta(max_length=50, description="GLOB=NAME: stream names there.")] = ()
    basin: Annotated[str | None, Meta(description="Basin for recorded clients that name none.")] = None
    speed: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="Times as fast as recorded; default: without delays, in order."),
    ] = None
    seconds: Annotated[float, Meta(ge=1, le=600, description="Time limit; what was played by then is reported.")] = 60.0


class ReplayResult(msgspec.Struct, kw_only=True):
    """The report of a replay, as `penstock replay --json` prints it."""

    same: Annotated[
        bool | None, Meta(description="Whether nothing differed from the recording; null if nothing was compared.")
    ]
    interrupted: Annotated[bool, Meta(description="Whether the time limit was reached.")]
    total: Annotated[dict[str, int], Meta(description="Counts of all conversations.")]
    conversations: Annotated[
        list[dict[str, Any]], Meta(description="Reports of conversations, those that differ first; of many, some.")
    ]
    left_out: Annotated[dict[str, int], Meta(description="Conversations that were not played, by reason.")]
    late_seconds: Annotated[float, Meta(description="The largest delay behind the pace.")]
    damage: Annotated[str | None, Meta(description="What is wrong with the recordings.")]


async def _replay(directory: RecorderDirectory, arguments: ReplayArguments) -> ReplayResult:
    options = [
        "--json",
        f"--to={arguments.to}",
        "--fast" if arguments.speed is None else f"--speed={arguments.speed:g}",
        *_options("connection", arguments.connections),
        *_options("stream", arguments.streams),
        *_options("rename", arguments.renames),
        *_options("basin", [arguments.basin] if arguments.basin else []),
    ]
    paths = await directory.paths(*arguments.recordings)
    environment = {} if arguments.token is None else {"PENSTOCK_TOKEN": arguments.token}
    report = await object_of(["replay", *options, "--", *map(str, paths)], arguments.seconds, environment)
    pager = Pager(None, _MOST_CONVERSATIONS)
    pager.take_all(sorted(report.pop("conversations"), key=lambda conversation: not conversation["different"]))
    return ReplayResult(**report, conversations=pager.items)
