"""`penstock diff`: two recordings, or a recording and a live server, compared record by record."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import trio

from penstock.captures.text import counted, printable
from penstock.cli.captures.opened import ending_quietly, opened
from penstock.comparing import Comparison, Difference, Fields, Kind, Shelf, Source, StreamComparison, compare
from penstock.comparing.comparison import NotComparable
from penstock.comparing.pairing import called, joined, wanted
from penstock.comparing.shelf import Row, Stream
from penstock.comparing.sources import put_capture, put_live, stream_on_server
from penstock.errors import CannotStart
from penstock.observe import configure_logging
from penstock.replay.configuring import TargetOptions
from penstock.replay.gateway import open_target_gateway
from penstock.replay.target import Target
from penstock_codecs.capture import Side
from penstock_codecs.dialogue import APPENDED, DELIVERED
from penstock_codecs.failures import OperationFailed
from penstock_codecs.model import StreamRef

__all__ = ["diff_command"]

_SIDES: Final = {"front": Side.FRONT, "back": Side.BACK}
_MOST_BODY: Final = 32
_MOST_NAMED: Final = 8
_DIFFERENT: Final = 1


class _CannotCompare(click.ClickException):
    exit_code = 2


@click.command("diff")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--by", type=click.Choice(["content", "position"]), default="content", show_default=True, help="How.")
@click.option("--action", type=click.Choice([APPENDED, DELIVERED]), help="Only what was appended, or only delivered.")
@click.option("--ignore", multiple=True, metavar="FIELD", help="Not compared: body, headers, or header:NAME.")
@click.option("--also", multiple=True, metavar="FIELD", help="Compared as well: timestamp, or seq_num.")
@click.option("--stream", "streams", multiple=True, metavar="GLOB", help="Only these streams, as A names them.")
@click.option("--map", "named", multiple=True, metavar="A=B", help="The stream that A calls so is called so in B.")
@click.option("--side", type=click.Choice(list(_SIDES)), default="front", show_default=True, help="Whose connections.")
@click.option("--limit", type=click.IntRange(0), default=20, show_default=True, help="Differences shown of a stream.")
@click.option("--basin", default="penstock", show_default=True, help="Of S3P streams, on a live server; of scopes too.")
@click.option("--token", metavar="TOKEN", envvar="PENSTOCK_TOKEN", show_envvar=True, help="For an S2 server.")
@click.option("--tls-ca", type=click.Path(dir_okay=False, exists=True), help="PEM file, for a server over TLS.")
@click.option("--json", "as_json", is_flag=True, help="The result as one object of JSON.")
def diff_command(a: str, b: str, as_json: bool, **said: Any) -> None:
    """Compare the records of A with those of B: recordings (a file or directory), or for B a live server's URL, as
    s2://127.0.0.1:8080/my-basin, s3p://, segment:// or pravega://.

    Records are compared by body and headers, in the order of their streams, whatever protocols were spoken. Of a stream
    to which something was appended it is that which is compared, of others what was delivered. Ends with 0 where all
    are equal, with 1 where they are not, with 2 where it cannot be told.
    """
    try:
        fields = Fields.of(said["ignore"], said["also"])
        named = dict(_pair(text) for text in said["named"])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    configure_logging("warning", "auto")
    with ending_quietly(_CannotCompare):
        comparison = _comparison(a, b, fields, named, said)
        if not comparison.streams:
            some = " of such a name" if said["streams"] else ""
            raise _CannotCompare(f"there is no record to compare in either{some}")
        click.echo(json.dumps(_as_json(comparison), ensure_ascii=False) if as_json else "\n".join(_lines(comparison)))
    if not comparison.equal:
        sys.exit(_DIFFERENT)


def _comparison(a: str, b: str, fields: Fields, named: dict[str, str], said: dict[str, Any]) -> Comparison:
    try:
        with Shelf(fields) as shelf:
            _put(shelf, Source.A, a, said)
            named = _put_b(shelf, b, named, said)
            shelf.settle()
            options = {"by": said["by"], "action": said["action"], "globs": said["streams"]}
            return compare(shelf, named=named, most_shown=said["limit"], **options)
    except OperationFailed as error:
        raise _CannotCompare(f"{b}: {error.failure.message}") from error
    except sqlite3.Error as error:
        raise _CannotCompare(f"what is compared is kept in a temporary file meanwhile: {error}") from error
    except (NotComparable, CannotStart, ValueError) as error:
        raise _CannotCompare(str(error)) from error


def _pair(text: str) -> tuple[str, str]:
    first, equals, second = text.partition("=")
    if not (first and equals and second):
        raise ValueError(f"--map: expected A=B, got {text!r}")
    return first, second


# ---- what is compared ------------------------------------------------------------------------------------------------


def _put(shelf: Shelf, source: Source, path: str, said: dict[str, Any]) -> None:
    try:
        with opened([Path(path)], f"Reading {source.name}", prints=False) as captures:
            put_capture(shelf, source, captures, _SIDES[said["side"]])
    except click.ClickException as error:
        raise _CannotCompare(error.message) from error


def _put_b(shelf: Shelf, b: str, named: dict[str, str], said: dict[str, Any]) -> dict[str, str]:
    """The second source; gives the names of its streams by those of A. Raises NotComparable where A or B has no stream
    of a name that is given."""
    ours = joined(shelf.streams(Source.A))
    _check_names("A", named, ours)
    if "://" not in b:
        _put(shelf, Source.B, b, said)
        _check_names("B", named.values(), joined(shelf.streams(Source.B)))
        return named
    by_hand = {one.name: theirs for name, theirs in named.items() if (one := called(ours, name)) is not None}
    streams: dict[str, StreamRef] = {}
    found: dict[str, str] = {}
    for stream in ours:
        if not wanted(stream, said["streams"]):
            continue
        recorded = stream.name
        if recorded in by_hand:  # said as S2 says it, whatever protocol A spoke
            stream = stream._replace(name=by_hand[recorded], layer="")
        there = stream_on_server(stream, said["basin"])
        if there is not None:
            found[recorded] = str(there)
            streams[str(there)] = there
    options = TargetOptions(token=said["token"], tls_ca=said["tls_ca"], basin=said["basin"])

    async def read() -> None:
        async with open_target_gateway(Target.parse(b), options) as gateway:
            await put_live(shelf, Source.B, gateway.back, streams)

    trio.run(read)
    return found


def _check_names(side: str, names: Iterable[str], streams: list[Stream]) -> None:
    for name in names:
        if called(streams, name) is None:
            there = ", ".join(one.name for one in streams[:_MOST_NAMED]) or "none"
            more = ", ..." if len(streams) > _MOST_NAMED else ""
            raise NotComparable(f"--map: {side} has no stream {name!r}: there are {there}{more}")


# ---- what is said ----------------------------------------------------------------------------------------------------


def _lines(comparison: Comparison) -> Iterator[str]:
    for one in comparison.streams:
        yield _heading(one)
        yield from (_in_words(difference) for difference in one.shown)
        more = one.counts.total() - len(one.shown)
        if more and one.a is not None and one.b is not None:
            yield f"  and {more} more"
    different = sum(not one.equal for one in comparison.streams)
    some = counted(len(comparison.streams), "stream")
    yield f"different: {different} of {some}" if different else f"equal: {some}"


def _heading(one: StreamComparison) -> str:
    if one.a is None or one.b is None:
        side, stream = ("A", one.a) if one.a is not None else ("B", one.b)
        assert stream is not None, "one of the two is there"
        return f"{printable(stream.name)}: only in {side}, {counted(stream.records, 'record')} {_action(stream)}"
    counts = ", ".join(f"{one.counts[kind]} {kind.value}" for kind in Kind if one.counts[kind])
    name = printable(one.a.name) if one.a.name == one.b.name else f"{printable(one.a.name)} = {printable(one.b.name)}"
    sizes = f"{one.a.records} {_action(one.a)} in A, {one.b.records} {_action(one.b)} in B"
    return f"{name}: {sizes}: {counts or 'equal'}"


def _action(stream: Stream) -> str:
    return APPENDED if stream.appended else DELIVERED


def _in_words(difference: Difference) -> str:
    sides = [f"{name} {_row(row)}" for name, row in (("A", difference.a), ("B", difference.b)) if row is not None]
    joint = " -> " if difference.kind is Kind.REORDERED else " / "
    differ = "differs" if difference.fields in (("body",), ("timestamp",), ("seq_num",)) else "differ"
    fields = f"  {' and '.join(difference.fields)} {differ}" if difference.fields else ""
    return f"  {difference.kind.value:<9}  {joint.join(sides)}{fields}"


def _row(row: Row) -> str:
    place = row.place or "no position"
    where = f", connection {row.conversation}" if row.conversation else ""
    return f"#{row.ordinal} ({place}{where}) {_body(row)}"


def _body(row: Row) -> str:
    text = printable(row.preview[:_MOST_BODY].decode("utf-8", "backslashreplace"))
    return f"'{text}'{'...' if row.size > _MOST_BODY else ''} ({counted(row.size, 'byte')})"


def _as_json(comparison: Comparison) -> dict[str, Any]:
    return {"equal": comparison.equal, "streams": [_stream_json(one) for one in comparison.streams]}


def _stream_json(one: StreamComparison) -> dict[str, Any]:
    return {
        "a": _side_json(one.a),
        "b": _side_json(one.b),
        "equal": one.equal,
        "same": one.same,
        "counts": {kind.value: count for kind, count in one.counts.items()},
        "differences": [
            {
                "kind": difference.kind.value,
                "a": _row_json(difference.a),
                "b": _row_json(difference.b),
                "fields": difference.fields,
            }
            for difference in one.shown
        ],
    }


def _side_json(stream: Stream | None) -> dict[str, Any] | None:
    return None if stream is None else {"name": stream.name, "action": _action(stream), "records": stream.records}


def _row_json(row: Row | None) -> dict[str, Any] | None:
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
