"""Generates docs/limits.md: every limit with its default and its effect."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from penstock.net.limits.settings import Limits
from penstock.protocols.plugin import listener_kinds

__all__ = ["LIMITS", "LimitRow", "limits_page"]

_TABLES: Final[dict[str, msgspec.Struct]] = {
    "limits": Limits(),
    **{f"listeners.{name}.limits": kind.table().limits for name, kind in listener_kinds().items()},
}
_WAITS: Final = "the gateway reads no more from the client"
_PAGE: Final = """\
# Limits

To bound what clients may use, set the limits below: each is a key of the [configuration](configuration.md) with a
default. A reload of the configuration changes the limits from the next request on. Most refusals are counted by
`penstock_limited_total{listener, limit}` ([metrics](metrics.md)): the last column below gives the value of the label
`limit`. `python -m penstock.app.config.document` generates this page.

## Clients

Limits are counted per client. A client is an authenticated identity (by a token, a certificate or a configured
network), else an address; for IPv6, the first 64 bits of an address. In a [sidecar](sidecar.md), all connections may
come from one loopback address: they are one client then, so its limits should suit the whole application.

## Too many connections

New connections do not queue behind those of a hostile client. A connection that exceeds `max_connections` (of the
listener, the process or the client) closes an idle one: first one of those that received nothing but refusals, if it
has been idle for a second; then one of all others, if it has been idle for five seconds since its last request. Among
these it is nearly the one that has been idle for longest. So idle connections cannot lock clients out, and no request
in progress is ever cut. If all connections are busy, the new one is refused with an error of its protocol, at most 64
at a time; over TLS it is closed without one, because a handshake would cost more than the connection. File descriptors
do not run out: a quarter of them, at most 1,024, are reserved for the store, backs and refusals. The management
listener has a limit of its own, so that operators can always connect.

## Memory

`max_inflight_bytes` counts bytes that were received and not executed yet, including incomplete messages, and answers
that wait for their clients. Beyond the limit, a connection that holds more than 64 KiB (16 KiB until one of its
requests was admitted) is not read, and no answer is fetched for it. A request that waits for longer than
`inflight_wait_seconds` is refused. A client that holds less than its share (the limit divided by the number of clients)
does not wait because of others. Of several large messages, one always proceeds, so that they do not block each other.
Bytes that are handed to the store count there (`append_inflight_bytes`). The decompressed records of a request of
Kafka count as received, each with 256 bytes more.

An append of more than 1,000 records or 1 MiB is stored in several batches at once, so a reader of one record has at
most 1,000 decoded, or 10,000 of a batch of Kafka's that is kept as it came. What all readers together have decoded and
not been given yet takes at most 64 MiB; a reader without room decodes it again when it reads on.

An answer on HTTP/2 whose client gives its stream no window takes nothing from other answers: what waits of a batch is
dropped, except 4 KiB, when these need the memory (`max_unsent_bytes`), and is read again when the window opens. The
stream is reset if the records are gone by then. Answers that are relayed from servers wait in memory.

## Abuse

These limits cannot be configured. Only hostile clients reach them. Each ends the connection and slows the client
(`limit` "calm"): for at least ten seconds, the connections of its address and of its identity begin one by one, every
half second, and only a tenth of the frames in the second item are tolerated. If the abuse is repeated within a minute,
the interval doubles, up to eight seconds. Connections that would wait for longer than a second are closed at once.

- more than 200 requests that were reset before they were answered, by the client or because of its errors
  (CVE-2023-44487);
- more than 2,000 HTTP/2 frames without effect (pings, settings, empty data, window updates for data that was not sent)
  or parts of a body that is no longer needed; the allowance grows by 100 each second, by 16 with each request, and by
  one with every 256 bytes of answers. For the segment protocol, more than 5,000 keep-alives, and 10 more each second
  (`limit` "noise");
- more than 250 connections, and 50 more each second, that are reset, or end before the gateway sent anything on them;
  each failed login of a Kafka client counts as one;
- a header block that exceeds its limit, also by CONTINUATION frames or by references to earlier headers.

Connections of one client that arrive together begin one after the other, interleaved with those of other clients. A
connection whose many small frames take long to process is interrupted every 0.25 ms, and all connections of one client
share these turns; while other clients are served, it pauses for 1 to 2 ms after each turn. A connection that sends a
few bytes at a time is then read a few times per second, and once per second if it continues. `make hostile` prints how
much each of these attacks slows other clients.

## Long requests

A request for many topics, partitions, groups or keys is executed in turns of 0.25 ms; after each, other clients
are served. After eight turns, the connections of its client share the turns, and pause for a millisecond after each
while other clients are served. Each further eight turns count as a request in `requests_per_second`. The work ends when
the client has gone. A request of Kafka has at most `max_request_items` elements; a larger one ends its connection,
because Kafka's responses have no place for such an error, and the log says so.

## Transactions

A stream of the controller has at most 1,000 open transactions; a further one is refused with RESOURCE_EXHAUSTED. A
transaction stays open for its lease, at most 600 seconds; pings extend it, up to a day in total.
"""


def _by_protocol(limit: str) -> str:
    """Return the refusal of each protocol at a limit that all listeners share."""
    kinds = listener_kinds().values()
    return "; ".join(f"{kind.title}: {kind.refusals[limit]}" for kind in kinds if limit in kind.refusals)


class LimitRow(NamedTuple):
    """One limit: its table and key, its effect, and the `limit` label of its metric ("": refusals are counted with the
    protocol's errors, or nothing is refused)."""

    table: str
    key: str
    effect: str
    metric: str = ""


def _rows(table: str, *rows: tuple[str, str, str]) -> list[LimitRow]:
    return [LimitRow(table, *row) for row in rows]


_REFUSED: Final = f"{_by_protocol('max_connections')}; without an error for others, and over TLS"
_FULL: Final = f"the client waits, then: {_by_protocol('max_inflight_bytes')}"
LIMITS: Final = [
    *_rows(
        "limits",
        (
            "max_connections",
            f"closes the longest idle connection; if none is idle, refused: {_REFUSED}",
            "max_connections",
        ),
        ("max_connections_per_client", "the same, among the client's own connections", "max_connections_per_client"),
        ("max_inflight_bytes", _FULL, "max_inflight_bytes"),
        ("max_inflight_bytes_per_client", _FULL, "max_inflight_bytes_per_client"),
        ("inflight_wait_seconds", "the wait at the two limits above ends", ""),
        ("connections_per_second", "a new connection waits before it is served", "connections_per_second"),
        ("requests_per_second", _by_protocol("requests_per_second"), "requests_per_second"),
        ("bytes_per_second", _WAITS, "bytes_per_second"),
        ("burst_seconds", "bounds the bursts of all rates", ""),
        ("first_byte_seconds", "the connection is closed", "first_byte_seconds"),
        ("receive_grace_seconds", "min_receive_rate applies from then on", ""),
        ("min_receive_rate", _by_protocol("min_receive_rate"), "min_receive_rate"),
    ),
    *(
        LimitRow(f"listeners.{name}.limits", *row)
        for name, kind in listener_kinds().items()
        for row in (("max_connections", "as in `[limits]`", "listener.max_connections"), *kind.at_limits)
    ),
]


def limits_page() -> str:
    """Return the text of docs/limits.md."""
    parts = [_PAGE]
    for table in _TABLES:
        lines = [f"## `[{table}]`", "", "| limit | default | effect | counted as |", "|---|---|---|---|"]
        for row in LIMITS:
            if row.table == table:
                counted = f"`{row.metric}`" if row.metric else ""
                lines.append(f"| `{row.key}` | {_default(row)} | {row.effect} | {counted} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _default(row: LimitRow) -> str:
    value: Any = getattr(_TABLES[row.table], row.key)
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
