"""`penstock stats`: a capture in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from penstock.cli.captures.opened import capture_argument, choice_options, opened_captures
from penstock.cli.output import json_option, print_json
from penstock.recorder.captures.choosing import CaptureFilter
from penstock.recorder.captures.lines import utc
from penstock.recorder.captures.stats import PERCENTILES, CountKey, GroupCounts, Statistics
from penstock.recorder.captures.text import column, columns, duration, printable, size

__all__ = ["stats_command"]

_ROW: Final = "{:<11} {} {} {:>6} {:>9} {:>9} {:>9} {:>10} {:>6} {:>9} {:>9} {:>9} {:>9}"
_MOST_NAME: Final = 28
_MOST_STREAM: Final = 64
_HEADS: Final = (
    *("CONNS", "MESSAGES", "APPENDED", "DELIVERED", "BYTES", "ERRORS"),
    *(f"P{percent}" for percent in PERCENTILES),
    "MAX",
)
_PERIOD: Final = "{:<28} {:>12} {:>12} {:>12}"
_BAR_WIDTH: Final = 30


@click.command("stats")
@capture_argument
@choice_options
@json_option
def stats_command(
    captures: tuple[Path, ...],
    connections: Sequence[int],
    protocols: Sequence[str],
    streams: Sequence[str],
    side: str | None,
    as_json: bool,
) -> None:
    """Count what CAPTURE holds: connections, messages, records, bytes, errors, answer times, and rates over time.

    Answer times run from the last byte of a request to the last byte of its first answer; their percentiles are at most
    1/32 too large.
    """
    from penstock.capture.dialogue.dialogues import Dialogues

    choice = CaptureFilter(connections, protocols, streams)
    statistics = Statistics(choice)
    with opened_captures(captures, "Counting", False, side, connections) as events:
        dialogues = Dialogues(choice.conversation)
        for event in events:
            if choice.conversation(event.conversation):
                statistics.count(event, dialogues)
        statistics.end(dialogues)
    if as_json:
        print_json(statistics.as_line())
        return
    for line in _lines(statistics):
        click.echo(line)


def _lines(statistics: Statistics) -> Iterator[str]:
    if statistics.start_ns is None:
        yield "Nothing was recorded."
        return
    lasted = statistics.end_ns - statistics.start_ns
    yield f"from {utc(statistics.start_ns)}, {duration(lasted)}, {size(statistics.size)}"
    yield ""
    groups = sorted(statistics.groups.items())
    names = _width(["AT", *(group.name for group, _ in groups)], _MOST_NAME)
    streams = _width(["STREAM", *(group.stream for group, _ in groups)], _MOST_STREAM)
    yield _ROW.format("PROTOCOL", column("AT", names), column("STREAM", streams), *_HEADS)
    for group, count in [*groups, (CountKey("all", "", ""), statistics.total)]:
        yield _row(group, count, names, streams)
    yield ""
    yield _PERIOD.format("FROM", "BYTES/S", "MESSAGES/S", "RECORDS/S")
    seconds = statistics.period_ns / 1_000_000_000
    most = max((period.size for period in statistics.periods), default=0) or 1
    for period in statistics.periods:
        rates = (
            size(int(period.size / seconds)),
            f"{period.messages / seconds:.1f}",
            f"{period.records / seconds:.1f}",
        )
        yield f"{_PERIOD.format(utc(period.start_ns), *rates)}  {'#' * round(_BAR_WIDTH * period.size / most)}".rstrip()


def _width(texts: list[str], most: int) -> int:
    """Return the width of a column with these texts, all of which are known before the first row is printed."""
    return min(most, max(columns(printable(text)) for text in texts))


def _row(group: CountKey, count: GroupCounts, names: int, streams: int) -> str:
    answers = [duration(count.answers.percentile(percent)) for percent in PERCENTILES]
    return _ROW.format(
        group.protocol or "?",
        column(printable(group.name), names),
        column(printable(group.stream), streams),
        count.connections,
        count.messages,
        count.appended,
        count.delivered,
        size(count.size),
        count.errors,
        *answers,
        duration(count.answers.most) if count.answers.count else "",
    ).rstrip()
