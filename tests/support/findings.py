"""Findings for a page, with as much variety as a busy day."""

from __future__ import annotations

import math
from typing import Any

from penstock_spark.report.findings import Findings, Top

__all__ = ["HOSTILE", "START_US", "found"]

HOSTILE = "b/<script>alert('$x^2$')</script>&\u202e\x00\"_"
"""A stream's name that does all it can."""
START_US = 1_700_000_040_000_000
_MINUTE = 60_000_000
_PERCENTILES = ("p50_us", "p90_us", "p99_us", "p999_us", "max_us")


def found() -> Findings:
    """A page's worth of them."""
    return Findings(
        START_US,
        START_US + 45 * _MINUTE,
        60,
        throughput=Top(_throughput()),
        latency=Top(_latency(), 2),
        latency_totals=Top(_totals()),
        usage={by: _usage(by) for by in ("client", "stream", "protocol")},
        quality=Top(_quality(), 7),
        verdicts=Top(_verdicts()),
        differences=Top(_differences(), 1_204),
    )


def _throughput() -> list[dict[str, Any]]:
    rows = []
    for protocol, scale in (("s2", 40_000_000), ("s3p", 9_000_000), ("segment", 5_000_000), ("management", 20_000)):
        for minute in range(46):
            if protocol == "s3p" and 20 <= minute < 25:
                continue
            size = int(scale * (1.2 + math.sin(minute / 6 + len(protocol))))
            rows.append(
                {"start": START_US + minute * _MINUTE, "side": "front", "protocol": protocol, "messages": size // 900,
                 "bytes": size, "records": size // 300}
            )  # fmt: skip
    return rows


def _latency() -> list[dict[str, Any]]:
    rows = []
    for kind, routes in (("answer", ("main", None, HOSTILE, "legacy")), ("delivery", ("main", "legacy"))):
        for at, route in enumerate(routes):
            for minute in range(46):
                if route == "legacy" and 20 <= minute < 25:
                    continue
                middle = (400 + 90 * at) * (1 + 0.4 * math.sin(minute / 5 + at)) * (3 if 30 < minute < 34 else 1)
                values = [int(middle * factor) for factor in (1, 2.1, 7, 22, 40)]
                key = {"kind": kind, "side": "front", "route": route, "count": 1_000 - 100 * at}
                rows.append(key | {"start": START_US + minute * _MINUTE} | dict(zip(_PERCENTILES, values, strict=True)))
    return rows


def _totals() -> list[dict[str, Any]]:
    values = dict(zip(_PERCENTILES, (420, 1_310, 8_800, 61_000, 1_900_000), strict=True))
    return [
        {"kind": kind, "side": side, "route": route, "protocol": protocol, "count": 41_208} | values
        for kind, side, route, protocol in (
            ("answer", "front", "main", "s2"), ("answer", "front", HOSTILE, "s3p"), ("answer", "back", None, "s2"),
            ("delivery", "front", "main", "s2"),
        )
    ]  # fmt: skip


def _usage(by: str) -> Top:
    names = {
        "client": ["127.0.0.1", "alice", "10.1.4.17", HOSTILE],
        "stream": ["penstock/orders", "penstock/a/very/long/name" + "/part" * 20, HOSTILE, None],
        "protocol": ["s2", "s3p", "segment", None],
    }[by]
    return Top(
        [
            {by: name, "bytes": 8_000_000_000 // 7**at, "connections": 40 - at, "messages": 91_000 // 3**at,
             "appended": 810_000 // 5**at, "delivered": 2_400_000 // 5**at, "record_bytes": 9_000_000_000 // 7**at,
             "compression_ratio": None if at else 3.417, "errors": 3 * at,
             "error_codes": {"not_found": 2, "ERR_<b>": 7, "PROTOCOL": 1, "unavailable": 1} if at else None}
            for at, name in enumerate(names)
        ],
        1_093,
    )  # fmt: skip


def _quality() -> list[dict[str, Any]]:
    good = {
        "stream": "penstock/orders", "action": "appended", "side": "front", "verdict": "good", "records": 810_000,
        "readers": 1, "first_seq_num": 0, "last_seq_num": 809_999, "gaps": 0, "missing": 0, "gap_examples": [],
        "duplicates": 0, "altered_duplicates": 0, "disorder": 0, "times_back": 0, "most_back_ms": None,
        "interval_ms": 20, "silences": 0, "heartbeats_missed": 0, "longest_silence_ms": 340,
    }  # fmt: skip
    gaps = [{"after": 17, "before": 20}, {"after": 400, "before": 402}, {"after": 900, "before": 99_000}]
    bad = {"stream": HOSTILE, "verdict": "bad", "gaps": 3, "missing": 98_102, "gap_examples": gaps, "duplicates": 4}
    quiet = {"stream": "penstock/quiet", "action": "delivered", "verdict": "doubtful", "silences": 2, "readers": 4}
    plain = {"stream": "legacy", "first_seq_num": None, "last_seq_num": None, "gaps": None, "missing": None}
    return [
        good | bad | {"altered_duplicates": 1},
        good | quiet | {"heartbeats_missed": 5, "longest_silence_ms": 61_000},
        good,
        good | plain,
    ]


def _verdicts() -> list[dict[str, Any]]:
    counts = {"lost": 0, "added": 0, "doubled": 0, "reordered": 0, "altered": 0}
    row = {"right_stream": "orders", "left_records": 10_000_000, "right_records": 10_000_000} | counts
    return [
        row | {"stream": HOSTILE, "verdict": "different", "left_digest": "ab" * 32, "right_digest": "cd" * 32,
               "lost": 2, "altered": 1},
        row | {"stream": "penstock/only", "verdict": "only left", "right_stream": None, "right_records": 0,
               "lost": 10_000_000, "left_digest": "01" * 32, "right_digest": None},
        row | {"stream": "penstock/orders", "verdict": "equal", "left_digest": "ef" * 32, "right_digest": "ef" * 32},
    ]  # fmt: skip


def _differences() -> list[dict[str, Any]]:
    nothing = {"left_position": None, "right_position": None, "left_sample": None, "right_sample": None}
    row = {"stream": HOSTILE, "fields": None} | nothing
    return [
        row | {"kind": "lost", "left_position": "seq_num 17", "left_sample": b"order 17 <i>"},
        row | {"kind": "altered", "fields": ["body"], "left_position": "seq_num 40", "left_sample": b"\x00\xff\x10",
               "right_position": "id 1700000040000-3", "right_sample": b"order 40"},
    ]  # fmt: skip
