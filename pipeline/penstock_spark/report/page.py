"""The HTML page: sections, tables and plots. All text from outside goes through `text`.

`STYLE` suits light and dark themes, screens and paper.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from penstock_spark.report.findings import Findings, Row, Top
from penstock_spark.report.plots import SERIES, latency_plot, throughput_plot
from penstock_spark.report.text import bits, clock, count, duration, name, plain, size

__all__ = ["STYLE", "page"]

STYLE: Final = """
:root { color-scheme: light dark;
  --paper: #fcfcfa; --ink: #1c2530; --soft: #5a6672; --line: #d5d9dd; --band: #f1f3f4; --bar: #b9d3ea;
  --good: #1a6b35; --good-back: #dff2e3; --doubt: #7a5200; --doubt-back: #fbeecb; --bad: #a01818; --bad-back: #fbe0de;
  --s0: #2a6fb0; --s1: #d2691e; --s2: #3a8a4d; --s3: #a33b8f; --s4: #8a7a14; --s5: #5b5fc7; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14181d; --ink: #e3e7eb; --soft: #9aa6b2; --line: #3a434d; --band: #1c2229; --bar: #264b6e;
  --good: #8fd8a3; --good-back: #17361f; --doubt: #efc872; --doubt-back: #3d3011; --bad: #ff9d96; --bad-back: #471b1b;
  --s0: #6db3f2; --s1: #f2994a; --s2: #6fcf86; --s3: #dd86cb; --s4: #d6c44a; --s5: #a3a6ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 80rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .3rem; }
h3 { font-size: .95rem; margin: 1.2rem 0 .2rem; }
p { margin: .3rem 0 .6rem; max-width: 60rem; }
.soft, .more, .absent { color: var(--soft); }
.absent { font-style: italic; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; margin: .6rem 0 0; }
a { color: var(--s0); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; margin: .3rem 0; }
caption { text-align: left; color: var(--soft); padding: .2rem 0; }
th, td { padding: .25rem .7rem .25rem 0; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { color: var(--soft); font-weight: 600; border-bottom: 2px solid var(--line); vertical-align: bottom; }
th.text, td.text { text-align: left; }
tbody th { font-weight: 500; }
.name { white-space: normal; overflow-wrap: anywhere; min-width: 9rem; max-width: 22rem; }
tbody tr:hover { background: var(--band); }
.verdict { display: inline-block; padding: 0 .55em; border-radius: 1em; font-weight: 600; }
.good { color: var(--good); background: var(--good-back); }
.doubtful { color: var(--doubt); background: var(--doubt-back); }
.bad { color: var(--bad); background: var(--bad-back); }
.bar { width: 9rem; text-align: left; }
.codes { white-space: normal; min-width: 16rem; }
.bar span { display: block; height: .8em; margin-top: .35em; background: var(--bar); border-radius: 2px;
  min-width: 1px; }
.plot { display: block; width: 100%; max-width: 60rem; height: auto; margin: .3rem 0; font-family: inherit; }
.key { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; list-style: none; padding: 0; margin: .2rem 0;
  font-size: .85rem; }
.key i { display: inline-block; width: 1.3em; height: .7em; border-radius: 2px; margin-right: .4em; }
code { font: .9em ui-monospace, monospace; }
@media print { body { max-width: none; } nav { display: none; } }
""".strip()
"""The page's style sheet."""


_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_PERCENTILES: Final = {"p50_us": "p50", "p90_us": "p90", "p99_us": "p99", "p999_us": "p99.9"}
_KINDS: Final = {"answer": "Request to answer", "delivery": "Append to delivery"}
_LOOKS: Final = {
    "good": "good", "equal": "good", "doubtful": "doubtful", "bad": "bad", "different": "bad", "only left": "bad",
    "only right": "bad",
}  # fmt: skip


class _Cell(NamedTuple):
    """A column of a table: its head, a function that gives a cell's HTML, and its class."""

    head: str
    show: Callable[[Row], str]
    look: str = ""


def _named(head: str, column: str, absent: str = "none") -> _Cell:
    return _Cell(head, lambda row: name(row.get(column), absent), "text name")


def _number(head: str, column: str) -> _Cell:
    return _Cell(head, lambda row: count(row.get(column)))


def _verdict(row: Row) -> str:
    verdict = str(row["verdict"])
    return f'<span class="verdict {_LOOKS.get(verdict, "doubtful")}">{html.escape(verdict)}</span>'


def page(findings: Findings, title: str = "Penstock") -> str:
    """Return the HTML. Findings that are None have no section."""
    sections = [
        ("streams", "Streams", findings.streams is not None, _streams),
        ("throughput", "Throughput", findings.throughput is not None, _throughput),
        ("latency", "Latency", findings.latency is not None, _latency),
        ("usage", "Usage", bool(findings.usage), _usage),
        ("quality", "Quality", findings.quality is not None, _quality),
        ("audit", "Audit", findings.verdicts is not None, _audit),
    ]
    shown = [(place, head, make(findings)) for place, head, wanted, make in sections if wanted]
    links = "".join(f'<li><a href="#{place}">{head}</a></li>' for place, head, _ in shown)
    body = "".join(
        f'<section id="{place}" aria-labelledby="{place}-h"><h2 id="{place}-h">{head}</h2>{text}</section>'
        for place, head, text in shown
    )
    heading = name(title)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{plain(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>\n{STYLE}\n</style></head>\n<body><header><h1>{heading}</h1>{_span(findings)}"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>\n<main>{body}</main></body></html>\n'
    )


def _span(findings: Findings) -> str:
    if findings.start_us is None or findings.end_us is None:
        return "" if findings.throughput is None else '<p class="soft">Nothing was recorded.</p>'
    lasted = duration(findings.end_us - findings.start_us)
    return f'<p class="soft">{clock(findings.start_us)} to {clock(findings.end_us)}, {lasted}</p>'


def _table(caption: str, cells: Sequence[_Cell], top: Top) -> str:
    if not top.rows:
        return f'<p class="soft">{caption}: none.</p>'
    looks = [f' class="{cell.look}"' if cell.look else "" for cell in cells]
    heads = "".join(f'<th scope="col"{look}>{cell.head}</th>' for cell, look in zip(cells, looks, strict=True))
    lines = []
    for row in top.rows:
        shown = [cell.show(row) for cell in cells]
        rest = "".join(f"<td{look}>{text}</td>" for text, look in zip(shown[1:], looks[1:], strict=True))
        lines.append(f'<tr><th scope="row"{looks[0]}>{shown[0]}</th>{rest}</tr>')
    more = f'<p class="more">and {top.more:,} more</p>' if top.more else ""
    return (
        f'<div class="wide"><table><caption>{caption}</caption><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>{more}"
    )


def _key(names: Sequence[str]) -> str:
    """Return the legend of a plot's colours; the names are HTML."""
    items = "".join(
        f'<li><i style="background: var(--s{at % SERIES})"></i>{each}</li>' for at, each in enumerate(names)
    )
    return f'<ul class="key">{items}</ul>'


def _throughput(findings: Findings) -> str:
    said = f"Traffic between clients and the gateway, in windows of {_every(findings)}."
    return _over_time(findings.throughput or Top(), findings.every_s, said, "throughput")


def _streams(findings: Findings) -> str:
    windows = duration(findings.growth_every_s * 1_000_000)
    said = f"Growth of streams by the records' timestamps, in windows of {windows}."
    return _over_time(findings.growth or Top(), findings.growth_every_s, said, "growth") + _judged(findings.streams)


def _over_time(top: Top, every_s: int, said: str, identity: str) -> str:
    """Return bytes and records of each window, by protocol; `said`: a description. `identity`: of the plot."""
    rows = top.rows
    if not rows:
        return '<p class="soft">No records with a timestamp.</p>'
    totals: dict[str | None, int] = {}
    for row in rows:
        totals[row["protocol"]] = totals.get(row["protocol"], 0) + (row["bytes"] or 0)
    protocols = sorted(totals, key=lambda each: (-totals[each], str(each)))
    shown, others = protocols[: SERIES - 1], protocols[SERIES - 1 :]
    layers: list[dict[int, float]] = [{} for _ in range(len(shown) + bool(others))]
    records: dict[int, float] = {}
    for row in rows:
        at = shown.index(row["protocol"]) if row["protocol"] in shown else len(shown)
        layers[at][row["start"]] = layers[at].get(row["start"], 0) + (row["bytes"] or 0)
        records[row["start"]] = records.get(row["start"], 0) + (row["records"] or 0)
    names = [f"{name(each, 'not known')}, {size(totals[each])}" for each in shown]
    if others:
        names.append(f"{len(others)} others, {size(sum(totals[each] for each in others))}")
    return f"<p>{said}</p>{_key(names)}{throughput_plot(layers, records, every_s, identity)}"


def _every(findings: Findings) -> str:
    return duration(findings.every_s * 1_000_000)


def _latency(findings: Findings) -> str:
    top = findings.latency or Top()
    parts = []
    for kind, head in _KINDS.items():
        rows = [row for row in top.rows if row["kind"] == kind]
        if rows:
            parts.append(f"<h3>{head}, in windows of {_every(findings)}</h3>{_panels(rows, findings, kind)}")
    if top.more:
        parts.append(f'<p class="more">and {top.more:,} more routes</p>')
    cells = [
        _Cell("kind", lambda row: _KINDS.get(row["kind"], ""), "text"),
        _named("side", "side"),
        _named("route", "route", "no route"),
        _named("protocol", "protocol", "not known"),
        _number("count", "count"),
        *(_timed(head, column) for column, head in _PERCENTILES.items()),
        _timed("slowest", "max_us"),
    ]
    parts.append(
        _table("Over the whole time; back: the gateway's waits for servers", cells, findings.latency_totals or Top())
    )
    return "".join(parts)


_LATE: Final = _number("late", "disorder")


def _timed(head: str, column: str) -> _Cell:
    return _Cell(head, lambda row: duration(row.get(column)))


def _panels(rows: Sequence[Row], findings: Findings, kind: str) -> str:
    routes: dict[str | None, int] = {}
    for row in rows:
        routes[row["route"]] = routes.get(row["route"], 0) + row["count"]
    order = sorted(routes, key=lambda each: (-routes[each], str(each)))
    panels = []
    for at, route in enumerate(order):
        own = [row for row in rows if row["route"] == route]
        lines = [{row["start"]: float(max(row[column], 1)) for row in own} for column in _PERCENTILES]
        panels.append((chr(ord("A") + at), lines))
    names = "".join(
        f"<li><b>{chr(ord('A') + at)}</b> {name(route, 'no route')} ({routes[route]:,})</li>"
        for at, route in enumerate(order)
    )
    plot = latency_plot(panels, findings.every_s, kind)
    return f'{_key(list(_PERCENTILES.values()))}<ul class="key">{names}</ul>{plot}'


def _usage(findings: Findings) -> str:
    parts = []
    for by, top in findings.usage.items():
        most = max((row["bytes"] or 0 for row in top.rows), default=0) or 1
        cells = [
            _named(by, by, "about none" if by == "stream" else "not known"),
            _Cell("bytes", lambda row: size(row["bytes"])),
            _Cell("share", _bar(most), "bar"),
            *(_number(head, head) for head in ("connections", "messages", "appended", "delivered")),
            _Cell("record bytes", lambda row: size(row["record_bytes"])),
            _Cell("record / wire bytes", _ratio),
            _number("errors", "errors"),
            _Cell("codes", _codes, "text codes"),
        ]
        parts.append(f"<h3>By {by}</h3>{_table('Bytes of messages on the wire', cells, top)}")
    return "".join(parts)


def _bar(most: int) -> Callable[[Row], str]:
    return lambda row: f'<span style="width: {100 * (row["bytes"] or 0) / most:.1f}%"></span>'


def _ratio(row: Row) -> str:
    ratio = row["compression_ratio"]
    return "" if ratio is None else f"{ratio:.2f}"


def _codes(row: Row) -> str:
    codes: dict[str, int] = row["error_codes"] or {}
    first = sorted(codes.items(), key=lambda each: (-each[1], each[0]))[:3]
    more = f" and {len(codes) - 3} more" if len(codes) > 3 else ""
    return ", ".join(f"{name(code)} {times:,}" for code, times in first) + more


def _quality(findings: Findings) -> str:
    return _judged(findings.quality, _Cell("seen", _seen, "text"), _number("readers", "readers"), _LATE)


def _judged(top: Top | None, *captured: _Cell) -> str:
    """Return a table of the quality of streams; `captured`: columns that only recordings have."""
    cells = [
        _named("stream", "stream"),
        _Cell("verdict", _verdict, "text"),
        *captured,
        _number("records", "records"),
        _Cell("numbers", _numbers, "text"),
        _Cell("gaps", _gaps, "text name"),
        _Cell("doubled", lambda row: _with(row, "duplicates", "altered_duplicates", "altered")),
        _number("times back", "times_back"),
        _Cell("silences", lambda row: _with(row, "silences", "heartbeats_missed", "missed")),
        _Cell("longest silence", lambda row: duration(_ms(row["longest_silence_ms"]))),
    ]
    return _table("Worst first", cells, top or Top())


def _ms(value: int | None) -> int | None:
    return None if value is None else value * 1_000


def _numbers(row: Row) -> str:
    first, last = row["first_seq_num"], row["last_seq_num"]
    return "" if first is None else f"{first:,} to {last:,}"


def _seen(row: Row) -> str:
    return ", ".join(name(row[column]) for column in ("action", "side") if row[column])


def _gaps(row: Row) -> str:
    if not row["gaps"]:
        return count(row["gaps"])
    around = ", ".join(f"{gap['after']:,} to {gap['before']:,}" for gap in (row["gap_examples"] or [])[:3])
    return f"{row['gaps']:,}, {row['missing']:,} missing: {around}" + (" ..." if row["gaps"] > 3 else "")


def _with(row: Row, column: str, part: str, what: str) -> str:
    """Return a number, followed by that of a worse part in brackets."""
    return count(row[column]) + (f" ({row[part]:,} {what})" if row[part] else "")


def _audit(findings: Findings) -> str:
    kinds = ("lost", "added", "doubled", "reordered", "altered")
    cells = [
        _named("stream", "stream"),
        _Cell("verdict", _verdict, "text"),
        _named("on the right", "right_stream", ""),
        _number("left", "left_records"),
        _number("right", "right_records"),
        *(_number(kind, kind) for kind in kinds),
        _Cell("digest", _digest, "text"),
    ]
    parts = [_table("Streams; equal digests are the proof", cells, findings.verdicts or Top())]
    if findings.differences is not None:
        parts.append("<h3>Differences</h3>" + _table("The first of each stream", _DIFFERENCES, findings.differences))
    return "".join(parts)


def _digest(row: Row) -> str:
    digests = dict.fromkeys(each for each in (row["left_digest"], row["right_digest"]) if each)
    return " and ".join(f"<code>{each[:12]}</code>" for each in digests)


_DIFFERENCES: Final = (
    _named("stream", "stream"),
    _Cell("kind", lambda row: name(row["kind"]), "text"),
    _Cell("differs", lambda row: ", ".join(row["fields"] or ()), "text"),
    _named("left", "left_position", ""),
    _Cell("begins", lambda row: bits(row["left_sample"]), "text name"),
    _named("right", "right_position", ""),
    _Cell("begins", lambda row: bits(row["right_sample"]), "text name"),
)
