"""`penstock diff`: compare two recordings, or a recording and a live server, record by record."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click

from penstock.capture.dialogue import APPENDED, DELIVERED
from penstock.cli.captures.opened import ending_quietly, one_side, opened_captures, side_option
from penstock.cli.output import json_option, print_result
from penstock.core.errors import CannotStart
from penstock.model.failures import OperationFailed
from penstock.model.records import StreamRef
from penstock.recorder.captures.text import counted, printable
from penstock.tools.comparing import Comparison, DiffKind, Fields, RecordDifference, StreamComparison, compare_streams
from penstock.tools.comparing.comparison import NotComparable
from penstock.tools.comparing.pairing import called, join_names, wanted
from penstock.tools.comparing.record_table import ComparedStream, Input, RecordRow, RecordTable

__all__ = ["diff_command"]

_MOST_BODY: Final = 32
_MOST_NAMED: Final = 8
_DIFFERENT: Final = 1


class _CannotCompare(click.ClickException):
    exit_code = 2


@click.command("diff")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--by",
    type=click.Choice(["content", "position"]),
    default="content",
    show_default=True,
    help="Match records by position, or by content.",
)
@click.option("--action", type=click.Choice([APPENDED, DELIVERED]), help="Only appended, or only delivered records.")
@click.option("--ignore", multiple=True, metavar="FIELD", help="Do not compare: body, headers, or header:NAME.")
@click.option("--also", multiple=True, metavar="FIELD", help="Also compare: timestamp, or seq_num.")
@click.option("--stream", "streams", multiple=True, metavar="GLOB", help="Only these streams, by their names in A.")
@click.option(
    "--map",
    "named",
    multiple=True,
    metavar="A=B",
    help="Compare stream A of the first source with stream B of the second.",
)
@side_option("Connections of clients (front), or connections to servers (back).", both=False)
@click.option(
    "--limit", type=click.IntRange(0), default=20, show_default=True, help="Most differences to show per stream."
)
@click.option(
    "--basin", default="penstock", show_default=True, help="Basin of streams on a live server whose names have none."
)
@click.option(
    "--token",
    metavar="TOKEN",
    envvar="PENSTOCK_TOKEN",
    show_envvar=True,
    help="Bearer token for the server, if it takes one.",
)
@click.option("--tls-ca", type=click.Path(dir_okay=False, exists=True), help="PEM file of authorities to trust.")
@json_option
def diff_command(a: str, b: str, as_json: bool, **options: Any) -> None:
    """Compare the records of A with those of B. A is a recording (a file or directory); B is a recording or a live
    server's URL, such as s2://127.0.0.1:8080/my-basin; `penstock replay --help` lists the schemes.

    Records are compared by body and headers, in the order of their streams, across protocols. For streams with appends
    the appended records are compared, for others the delivered ones. Exits with 0 if all are equal, with 1 if any
    differ, with 2 if they cannot be compared.
    """
    from penstock.observe import configure_logging

    try:
        fields = Fields.of(options["ignore"], options["also"])
        named = dict(_pair(text) for text in options["named"])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    configure_logging("warning", "auto")
    with ending_quietly(_CannotCompare):
        comparison = _comparison(a, b, fields, named, options)
        if not comparison.streams:
            some = " with such a name" if options["streams"] else ""
            raise _CannotCompare(f"neither source has records to compare{some}")
        print_result(_as_json(comparison), _lines(comparison), as_json)
    if not comparison.equal:
        sys.exit(_DIFFERENT)


def _comparison(a: str, b: str, fields: Fields, named: dict[str, str], given_options: dict[str, Any]) -> Comparison:
    try:
        with RecordTable(fields) as table:
            _put(table, Input.A, a, given_options)
            named = _put_b(table, b, named, given_options)
            table.settle()
            options = {"by": given_options["by"], "action": given_options["action"], "globs": given_options["streams"]}
            return compare_streams(table, named=named, most_shown=given_options["limit"], **options)
    except OperationFailed as error:
        raise _CannotCompare(f"{b}: {error.failure.message}") from error
    except sqlite3.Error as error:
        raise _CannotCompare(f"cannot use the temporary file for the comparison: {error}") from error
    except (NotComparable, CannotStart, ValueError) as error:
        raise _CannotCompare(str(error)) from error


def _pair(text: str) -> tuple[str, str]:
    first, equals, second = text.partition("=")
    if not (first and equals and second):
        raise ValueError(f"--map: expected A=B, got {text!r}")
    return first, second


# ---- sources ---------------------------------------------------------------------------------------------------------


def _put(table: RecordTable, source: Input, path: str, options: dict[str, Any]) -> None:
    from penstock.tools.comparing.sources import put_capture

    try:
        with opened_captures([Path(path)], f"Reading {source.name}", prints=False) as captures:
            put_capture(table, source, captures, one_side([Path(path)], options["side"]))
    except click.ClickException as error:
        raise _CannotCompare(error.message) from error


def _put_b(table: RecordTable, b: str, named: dict[str, str], options: dict[str, Any]) -> dict[str, str]:
    """Load the second source; return the names of its streams by those of A. Raises NotComparable if A or B lacks a
    stream that `named` mentions."""
    from penstock.tools.comparing.sources import stream_on_server

    ours = join_names(table.streams(Input.A))
    _check_names("A", named, ours)
    if "://" not in b:
        _put(table, Input.B, b, options)
        _check_names("B", named.values(), join_names(table.streams(Input.B)))
        return named
    by_hand = {
        seen_stream.name: theirs for name, theirs in named.items() if (seen_stream := called(ours, name)) is not None
    }
    streams: dict[str, StreamRef] = {}
    names: dict[str, str] = {}
    for stream in ours:
        if not wanted(stream, options["streams"]):
            continue
        recorded = stream.name
        if recorded in by_hand:  # --map names streams as S2 does, whatever protocol A has
            stream = stream._replace(name=by_hand[recorded], layer="")
        there = stream_on_server(stream, options["basin"])
        if there is not None:
            names[recorded] = str(there)
            streams[str(there)] = there
    _put_live(table, b, streams, options)
    return names


def _put_live(table: RecordTable, url: str, streams: dict[str, StreamRef], given_options: dict[str, Any]) -> None:
    import trio

    from penstock.tools.comparing.sources import put_live
    from penstock.tools.target.back import TargetOptions, open_target_back
    from penstock.tools.target.url import parse_target

    options = TargetOptions(token=given_options["token"], tls_ca=given_options["tls_ca"], basin=given_options["basin"])

    async def read() -> None:
        async with open_target_back(parse_target(url), options) as back:
            await put_live(table, Input.B, back, streams)

    trio.run(read)


def _check_names(side: str, names: Iterable[str], streams: list[ComparedStream]) -> None:
    for name in names:
        if called(streams, name) is None:
            there = ", ".join(stream.name for stream in streams[:_MOST_NAMED]) or "none"
            more = ", ..." if len(streams) > _MOST_NAMED else ""
            raise NotComparable(f"--map: {side} has no stream {name!r}; its streams are {there}{more}")


# ---- output ----------------------------------------------------------------------------------------------------------


def _lines(comparison: Comparison) -> Iterator[str]:
    for compared in comparison.streams:
        yield _heading(compared)
        yield from (_in_words(difference) for difference in compared.shown)
        more = compared.different - len(compared.shown)
        if more and compared.a is not None and compared.b is not None:
            yield f"  and {more} more"
    different = sum(not stream.equal for stream in comparison.streams)
    some = counted(len(comparison.streams), "stream")
    yield f"different: {different} of {some}" if different else f"equal: {some}"


def _heading(compared: StreamComparison) -> str:
    if compared.a is None or compared.b is None:
        side, stream = ("A", compared.a) if compared.a is not None else ("B", compared.b)
        assert stream is not None, "one of the two is set"
        trimmed = ": trimmed in B" if compared.equal else ""
        records = counted(stream.records, "record")
        return f"{printable(stream.name)}: only in {side}, {records} {_action(stream)}{trimmed}"
    counts = ", ".join(f"{compared.counts[kind]} {kind.value}" for kind in DiffKind if compared.counts[kind])
    name = (
        printable(compared.a.name)
        if compared.a.name == compared.b.name
        else f"{printable(compared.a.name)} = {printable(compared.b.name)}"
    )
    sizes = f"{compared.a.records} {_action(compared.a)} in A, {compared.b.records} {_action(compared.b)} in B"
    return f"{name}: {sizes}: {counts or 'equal'}"


def _action(stream: ComparedStream) -> str:
    return APPENDED if stream.appended else DELIVERED


def _in_words(difference: RecordDifference) -> str:
    sides = [f"{name} {_row(row)}" for name, row in (("A", difference.a), ("B", difference.b)) if row is not None]
    joint = " -> " if difference.kind is DiffKind.REORDERED else " / "
    differ = "differs" if difference.fields in (("body",), ("timestamp",), ("seq_num",)) else "differ"
    fields = f"  {' and '.join(difference.fields)} {differ}" if difference.fields else ""
    return f"  {difference.kind.value:<9}  {joint.join(sides)}{fields}"


def _row(row: RecordRow) -> str:
    place = row.place or "no position"
    where = f", connection {row.conversation}" if row.conversation else ""
    return f"#{row.ordinal} ({place}{where}) {_body(row)}"


def _body(row: RecordRow) -> str:
    text = printable(row.preview[:_MOST_BODY].decode("utf-8", "backslashreplace"))
    return f"'{text}'{'...' if row.size > _MOST_BODY else ''} ({counted(row.size, 'byte')})"


def _as_json(comparison: Comparison) -> dict[str, Any]:
    return {"equal": comparison.equal, "streams": [_stream_json(stream) for stream in comparison.streams]}


def _stream_json(compared: StreamComparison) -> dict[str, Any]:
    return {
        "a": _side_json(compared.a),
        "b": _side_json(compared.b),
        "equal": compared.equal,
        "same": compared.same,
        "counts": {kind.value: count for kind, count in compared.counts.items()},
        "differences": [
            {
                "kind": difference.kind.value,
                "a": _row_json(difference.a),
                "b": _row_json(difference.b),
                "fields": difference.fields,
            }
            for difference in compared.shown
        ],
    }


def _side_json(stream: ComparedStream | None) -> dict[str, Any] | None:
    return None if stream is None else {"name": stream.name, "action": _action(stream), "records": stream.records}


def _row_json(row: RecordRow | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        "ordinal": row.ordinal,
        "position": row.place,
        "connection": row.conversation,
        "time_ns": row.time_ns,
        "size": row.size,
        "body_begins": row.preview.decode("utf-8", "backslashreplace"),
    }
