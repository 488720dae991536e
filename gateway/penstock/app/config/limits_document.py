"""Generates docs/limits.md: every limit with its default and what happens when a client reaches it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from penstock.net.limits.settings import Limits
from penstock.protocols.plugin import listener_kinds

__all__ = ["LIMITS", "Row", "limits_page"]

_TABLES: Final[dict[str, msgspec.Struct]] = {
    "limits": Limits(),
    **{f"listeners.{name}.limits": kind.table().limits for name, kind in listener_kinds().items()},
}
_WAITS: Final = "the client waits: no more is read from it"


def _by_protocol(limit: str) -> str:
    """Return what clients of each protocol are told at a limit that all listeners share."""
    kinds = listener_kinds().values()
    return "; ".join(f"{kind.title}: {kind.refusals[limit]}" for kind in kinds if limit in kind.refusals)


class Row(NamedTuple):
    """One limit: its table and key, what happens when it is reached, and the `limit` label of its metric ("": refusals
    are counted with the protocol's errors, or nothing is refused)."""

    table: str
    key: str
    at_it: str
    metric: str = ""


def _rows(table: str, *rows: tuple[str, str, str]) -> list[Row]:
    return [Row(table, *row) for row in rows]


_REFUSED: Final = f"{_by_protocol('max_connections')}; else, and over TLS, closed"
_FULL: Final = f"waits, then: {_by_protocol('max_inflight_bytes')}"
LIMITS: Final = [
    *_rows(
        "limits",
        ("max_connections", f"the one that rests longest is closed; where none rests: {_REFUSED}", "max_connections"),
        ("max_connections_per_client", "the same among the client's own", "max_connections_per_client"),
        ("max_inflight_bytes", _FULL, "max_inflight_bytes"),
        ("max_inflight_bytes_per_client", _FULL, "max_inflight_bytes_per_client"),
        ("inflight_wait_seconds", "how long that waits", ""),
        ("connections_per_second", "it waits before it is served", "connections_per_second"),
        ("requests_per_second", _by_protocol("requests_per_second"), "requests_per_second"),
        ("bytes_per_second", _WAITS, "bytes_per_second"),
        ("burst_seconds", "what each rate may save", ""),
        ("first_byte_seconds", "closed", "first_byte_seconds"),
        ("receive_grace_seconds", "goes with the next", ""),
        ("min_receive_rate", _by_protocol("min_receive_rate"), "min_receive_rate"),
    ),
    *(
        Row(f"listeners.{name}.limits", *row)
        for name, kind in listener_kinds().items()
        for row in (("max_connections", "as for all", "listener.max_connections"), *kind.at_limits)
    ),
]

_PAGE: Final = """\
# Limits

Every limit is a key of the [configuration](configuration.md) with a default, and holds from the next request on when
the configuration is reloaded. Most refusals are counted by `penstock_limited_total{listener, limit}`
([metrics](metrics.md)); the last column has the value of its label `limit`. This page is written by `python -m
penstock.app.config.document`.

## Who is a client

An identity that was proved (a token, a certificate, a configured network), else an address; of an IPv6 address its
first 64 bits. What one client has used up is nothing to the others. Beside an application all connections may come
from one loopback address: they are one client, and its limits are as large as that.

## When there are too many connections

Nobody waits in a queue that a hostile client has filled. One connection more than `max_connections` (of the listener,
the process, or the client) closes another, which has nothing under way: first of those on which nothing but refusals
was ever answered, from a second after they came; then of all others, from five seconds after their last request. Of
each kind it is nearly the one that rests longest. So idle connections cannot lock anybody out, and what is under way
is never cut. Where all are busy the newcomer is told so in the protocol's own words, at most 64 at a time; over TLS
it is closed, since a handshake would cost more than the connection. There are never so many connections that
descriptors run out: a quarter of them, at most 1,024, are kept for the store, backs and refusals. The management
listener has a limit of its own, so that operators always get in.

## How much memory

`max_inflight_bytes` counts what was received and is not carried out, down to halves of messages, and answers that
wait for their clients. Beyond it a connection that holds more than 64 KiB (16 KiB, before anything was answered on
it) is not read, and no answer is fetched for it; who waits for longer than `inflight_wait_seconds` is refused. A
client that holds less than its share (the limit by the number of clients) does not wait for what others hold, and of
several large messages one always goes on, so that they do not wait for each other. What is handed to the store is
counted there (`append_inflight_bytes`).

## What only hostile clients do

These are not configured; each ends the connection, and slows the client (`limit` "calm"): for at least ten seconds one
connection of its address, and of what it proved to be, begins each half second, and a tenth of the second item is
borne on it. Each time that it goes on within a minute that is twice as long, up to eight seconds. Those that would wait
for longer than a second are closed before anything is done for them.

- more than 200 requests that were reset before they were answered, by the client or because of it (CVE-2023-44487);
- over 2,000 HTTP/2 frames that say nothing (pings, settings, empty data, window for what was not sent), or pieces of
  a body that nobody wants any more, and 100 more each second, 16 with each request and one for 256 bytes of answers;
  over 5,000 keep-alives of the segment protocol, and 10 more each second ("noise");
- over 250 connections, and 50 more each second, that are reset, or end before anything was said on them;
- a header block over its limit, also by CONTINUATION frames or by references to what was said before.

Connections of one client that come together begin one after the other, and what others do comes between them. A
connection whose small frames take long is interrupted every 0.25 ms, and all of one client's connections have one
turn between them; while others are served it rests for 1 to 2 ms after each. One that sends a few bytes at a time is
then read a few times in a second, and once a second if it goes on. `make hostile` prints how much slower others are
served beside each of these attacks.

## Transactions

A stream of the controller has at most 1,000 transactions that are open; one more is refused with RESOURCE_EXHAUSTED.
Each stays open for its lease, at most 600 seconds, which pings renew for at most a day.
"""


def limits_page() -> str:
    """Return the text of docs/limits.md."""
    parts = [_PAGE]
    for table in _TABLES:
        lines = [f"## `[{table}]`", "", "| limit | default | at it | counted as |", "|---|---|---|---|"]
        for row in LIMITS:
            if row.table == table:
                counted = f"`{row.metric}`" if row.metric else ""
                lines.append(f"| `{row.key}` | {_default(row)} | {row.at_it} | {counted} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _default(row: Row) -> str:
    value: Any = getattr(_TABLES[row.table], row.key)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
