"""The metric families of one process, each with its name, type, labels, unit and meaning.

Names follow Prometheus: `penstock_` first, base units (bytes, seconds), `_total` for counters. Labels that several
families share mean the same everywhere, see `LABELS`. docs/metrics.md is generated from this table, and
`penstock.observe.metrics.exposition` exports all of it.

Events are counted here as they happen. Values that can be looked up at a scrape come from a source instead
(`penstock.observe.metrics.series.watching`); such families have no series of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.observe.metrics.series import Count, Family, Histogram, Kind, Merge

__all__ = ["FAMILIES", "LABELS", "SECTIONS", "AnyFamily"]  # and each family, by its own name

AnyFamily = Family[Count] | Family[Histogram]

LABELS: Final[Mapping[str, str]] = {
    "listener": "The listener by which a client came, as in the configuration: `listeners.s2`, or `listeners.s2.NAME` "
    "where there are several, and `management`. Empty: the gateway works for itself.",
    "route": "The name of the route. Empty: there are no routes, or what was asked is about no single one.",
    "back": "The name of the back, `embedded` for the store of the gateway.",
    "protocol": "For clients `s2s`, `sse`, `s2` (all else of S2's API), `s3p`, `segment` or `controller`; for "
    "connections, and for backs, as for recordings: `s2`, `s3p`, `segment`, `controller` or `management`.",
    "direction": "`in`: towards the gateway's streams. `out`: from them. Of connections: `in` is what the peer sent.",
    "code": "What went wrong, by the name that docs/protocols and S2's API have for it.",
    "operation": "What was asked for, as `create_stream`.",
    "limit": "The key of a limit, as it stands under [limits]: `max_connections_per_client`. That of a listener has "
    "`listener.` before it: `listener.max_connections`.",
    "reason": "Why, in one word.",
    "state": "One of a few words; the series of the one that holds has the value 1, the others 0.",
    "status": "The HTTP status.",
    "feature": "What of a record the protocol cannot carry: `headers`, `empty_body`, `command`.",
    "level": "`debug`, `info`, `warning`, `error` or `critical`.",
    "owner": "Whose certificates they are: a listener, as `listeners.s2`, or a back, as `backs.NAME`.",
    "file": "A file, as it stands in the configuration.",
    "subject": "Of a certificate, or the issuer of a revocation list.",
    "outcome": "`applied`: all that was asked for is in force. `refused`: everything stayed as it was.",
    "rule": "The name of a rule in [[faults]].",
    "action": "What a rule of [[faults]] did, as `delay`.",
    "version": "Penstock's version.",
    "python": "Python's version.",
}

FAMILIES: Final[list[AnyFamily]] = []
"""All families, in the order in which they are shown."""
SECTIONS: Final[list[tuple[str, int]]] = []
"""Titles of the documentation's sections, each with the number of families before it."""

_LISTENER: Final = ("listener", "protocol")
_BACK: Final = ("back", "protocol")
_WAY: Final = ("listener", "route", "back", "protocol")
_FLOW: Final = (*_WAY, "direction")

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_CHANGES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


def _section(title: str) -> None:
    SECTIONS.append((title, len(FAMILIES)))


def _counter(name: str, meaning: str, labels: Sequence[str] = ()) -> Family[Count]:
    return _kept(Family(name, Kind.COUNTER, meaning, labels, Count))


def _gauge(name: str, meaning: str, labels: Sequence[str] = (), merge: Merge = Merge.SUM) -> Family[Count]:
    return _kept(Family(name, Kind.GAUGE, meaning, labels, Count, merge))


def _histogram(
    name: str, meaning: str, labels: Sequence[str] = (), bounds: Sequence[float] = _SECONDS
) -> Family[Histogram]:
    family = Family(name, Kind.HISTOGRAM, meaning, labels, lambda: Histogram(bounds), bounds=bounds)
    FAMILIES.append(family)
    return family


def _kept(family: Family[Count]) -> Family[Count]:
    FAMILIES.append(family)
    return family


_section("Connections with clients")

CONNECTIONS: Final = _gauge("penstock_connections", "Connections with clients that are open now.", _LISTENER)
CONNECTIONS_ACCEPTED: Final = _counter(
    "penstock_connections_accepted_total", "Connections that were accepted from clients.", _LISTENER
)
CONNECTIONS_REFUSED: Final = _counter(
    "penstock_connections_refused_total",
    "Connections of clients that ended before they were served: `limit` (a limit of the configuration), `handshake` "
    "(TLS failed, or the client showed no certificate that counts).",
    (*_LISTENER, "reason"),
)
NETWORK_BYTES: Final = _counter(
    "penstock_network_bytes_total",
    "Bytes of connections with clients, above TLS, protocols' overhead included.",
    (*_LISTENER, "direction"),
)
OUTFLOW_BYTES: Final = _gauge(
    "penstock_outflow_bytes", "Bytes that are ready for clients and wait for their sockets, now.", _LISTENER
)
PAUSED_SECONDS: Final = _counter(
    "penstock_paused_seconds_total",
    "Time during which connections stood still, added up: `in`: not read, since what came before was not taken yet; "
    "`out`: an answer waited for its client to take more.",
    (*_LISTENER, "direction"),
)
LIMITED: Final = _counter(
    "penstock_limited_total",
    "Refusals, cuts and waits by a named limit of the configuration.",
    ("listener", "limit"),
)
"""For all limits: `limit` is the key in the configuration, such as `max_connections_per_client`."""
FAULTS: Final = _counter(
    "penstock_faults_total",
    "Faults that were injected by a rule of the configuration's [[faults]].",
    ("rule", "action"),
)
HTTP_RESPONSES: Final = _counter(
    "penstock_http_responses_total",
    "Answers that were begun to requests by HTTP; a session is one.",
    ("listener", "status"),
)
CLIENT_ERRORS: Final = _counter(
    "penstock_client_errors_total",
    "Failures that clients were told in their protocol's words: of operations, and of requests that never became one "
    "(credentials, syntax, names, limits).",
    (*_LISTENER, "code"),
)

_section("What clients do")

RECORDS: Final = _counter(
    "penstock_records_total",
    "Records that were acknowledged (`in`) or read (`out`). Not counted where they are read as bytes without "
    "records, over the segment protocol.",
    _FLOW,
)
RECORD_BYTES: Final = _counter(
    "penstock_record_bytes_total",
    "Bytes of the same: metered as S2 does; of the segment protocol, and of sessions that are passed through, those "
    "that went by.",
    _FLOW,
)
BATCHES: Final = _counter(
    "penstock_batches_total",
    "Batches that were acknowledged (`in`), or pieces that were read (`out`).",
    _FLOW,
)
APPEND_SECONDS: Final = _histogram(
    "penstock_append_seconds",
    "From the moment at which a batch was handed over until its acknowledgement, waiting for room included.",
    _WAY,
)
APPEND_WAIT_SECONDS: Final = _counter(
    "penstock_append_wait_seconds_total",
    "Time during which sessions waited before their next batch was taken, added up: the store's or the server's "
    "back-pressure.",
    _WAY,
)
READ_FIRST_SECONDS: Final = _histogram(
    "penstock_read_first_seconds",
    "From the beginning of a read to its first batch, or until it is known that there is none yet.",
    _WAY,
)
OPERATION_SECONDS: Final = _histogram(
    "penstock_operation_seconds",
    "How long everything else took that was carried out: tails, creating, deleting, listing, configuring.",
    (*_WAY, "operation"),
)
SESSIONS: Final = _gauge("penstock_sessions", "Append sessions (`in`) and reads (`out`) that are open now.", _FLOW)
ERRORS: Final = _counter(
    "penstock_errors_total", "Operations and sessions that failed, by what their back said.", (*_WAY, "code")
)
RECORDS_DROPPED: Final = _counter(
    "penstock_records_dropped_total",
    "What was left out of records since the configuration says `drop` and the protocol cannot carry it.",
    (*_LISTENER, "feature"),
)

_section("Servers behind the gateway")

BACK_CONNECTIONS: Final = _gauge("penstock_back_connections", "Connections with servers that are open now.", _BACK)
BACK_CONNECTIONS_MADE: Final = _counter(
    "penstock_back_connections_made_total", "Connections that were made with servers.", _BACK
)
BACK_CONNECTIONS_FAILED: Final = _counter(
    "penstock_back_connections_failed_total",
    "Connections with servers that could not be made (`unmade`), or were lost before the server answered (`lost`).",
    ("back", "reason"),
)
BACK_NETWORK_BYTES: Final = _counter(
    "penstock_back_network_bytes_total",
    "Bytes of connections with servers, above TLS; `in` is what the server sent.",
    (*_BACK, "direction"),
)
BACK_OUTFLOW_BYTES: Final = _gauge(
    "penstock_back_outflow_bytes", "Bytes that are ready for servers and wait for their sockets, now.", _BACK
)
BACK_RETRIES: Final = _counter(
    "penstock_back_retries_total",
    "Requests that were made again, and sessions that were taken up again, after a server failed.",
    ("back",),
)
BACK_CIRCUIT: Final = _gauge(
    "penstock_back_circuit",
    "The state of a server's circuit breaker: `closed` (all is well), `open` or `half-open`.",
    ("back", "state"),
    Merge.MAX,
)
BACK_CIRCUIT_OPENED: Final = _counter(
    "penstock_back_circuit_opened_total", "How often a server's circuit was opened.", ("back",)
)

_section("The embedded store")

STORE_COMMITS: Final = _counter("penstock_store_commits_total", "Transactions of the embedded store that wrote.")
STORE_COMMIT_FAILURES: Final = _counter(
    "penstock_store_commit_failures_total", "Transactions that failed; everything in them was refused."
)
STORE_COMMIT_BYTES: Final = _counter("penstock_store_commit_bytes_total", "Bytes that were committed, about.")
STORE_COMMIT_CHANGES: Final = _histogram(
    "penstock_store_commit_changes", "Changes that shared a transaction, each an append or the like.", (), _CHANGES
)
STORE_COMMIT_SECONDS: Final = _histogram(
    "penstock_store_commit_seconds", "How long transactions took, the way to the writing thread included."
)
STORE_SYNC_SECONDS: Final = _histogram(
    "penstock_store_sync_seconds", "The part of it in which the log was written and synced to the disk (COMMIT)."
)
STORE_PENDING: Final = _gauge("penstock_store_pending_changes", "Changes that wait for the next transaction, now.")
STORE_INFLIGHT_BYTES: Final = _gauge(
    "penstock_store_inflight_bytes",
    "Bytes of appends that are not on disk yet (store.append_inflight_bytes bounds it).",
)
STORE_WAITING: Final = _gauge(
    "penstock_store_waiting_appends", "Appends that wait for room among the bytes in flight, now."
)
STORE_FILE_BYTES: Final = _gauge("penstock_store_file_bytes", "The size of the store's database file.")
STORE_LOG_BYTES: Final = _gauge("penstock_store_log_bytes", "The size of the store's write-ahead log.")

_section("Recordings and mirrors")

RECORDINGS: Final = _gauge("penstock_recordings", "Recordings that run now, into files and live.")
RECORDINGS_SUSPENDED: Final = _gauge(
    "penstock_recordings_suspended", "Those of them that cannot write now: the disk is full or failing."
)
RECORDED_BYTES: Final = _counter("penstock_recorded_bytes_total", "Bytes that were written into recordings.")
RECORDED_CONVERSATIONS: Final = _counter(
    "penstock_recorded_conversations_total", "Connections of which recordings were begun."
)
RECORDINGS_DROPPED: Final = _counter(
    "penstock_recorded_dropped_total",
    "Connections that recordings gave up, since the disk or the listener did not follow.",
)
RECORDER_QUEUE_BYTES: Final = _gauge("penstock_recorder_queue_bytes", "Bytes that wait to be written, now.")
MIRROR_LAG_RECORDS: Final = _gauge(
    "penstock_mirror_lag_records", "Records that a mirror has not copied and compared yet.", ("route",), Merge.MAX
)
MIRROR_LAG_SECONDS: Final = _gauge(
    "penstock_mirror_lag_seconds", "For how long the oldest of them has waited.", ("route",), Merge.MAX
)
MIRROR_STREAMS: Final = _gauge("penstock_mirror_streams", "Streams that a mirror knows.", ("route",), Merge.MAX)
MIRROR_STREAMS_STOPPED: Final = _gauge(
    "penstock_mirror_streams_stopped", "Those of them that it no longer copies.", ("route",), Merge.MAX
)
MIRROR_STREAMS_DIFFERING: Final = _gauge(
    "penstock_mirror_streams_differing", "Those of them in which the two sides differ.", ("route",), Merge.MAX
)

_section("Certificates")

CERTIFICATE_EXPIRY: Final = _gauge(
    "penstock_certificate_expiry_timestamp_seconds",
    "When a certificate or revocation list that is in use ends, in seconds since the Unix epoch.",
    ("owner", "file", "subject"),
    Merge.MIN,
)

_section("The process")

BUILD_INFO: Final = _gauge("penstock_build_info", "1; what runs.", ("version", "python"), Merge.MAX)
READY: Final = _gauge(
    "penstock_ready",
    "1 from when the gateway listens until it drains, else 0. `GET /ready` looks at the backs too.",
    (),
    Merge.MIN,
)
DRAINING: Final = _gauge("penstock_draining", "1 from the beginning of a drain, else 0.", (), Merge.MAX)
RELOADS: Final = _counter("penstock_reloads_total", "How often the configuration was read again.", ("outcome",))
RELOADED_SECONDS: Final = _gauge(
    "penstock_reloaded_timestamp_seconds",
    "When the configuration in force was read, in seconds since the Unix epoch.",
    (),
    Merge.MIN,
)
LOG_LINES: Final = _counter("penstock_log_lines_total", "Lines of the log.", ("level",))
SCRAPE_SECONDS: Final = _gauge(
    "penstock_scrape_seconds", "For how long the scrape before this one held everything else up at most.", (), Merge.MAX
)
CPU_SECONDS: Final = _counter("process_cpu_seconds_total", "Processor time, user and system.")
OPEN_FDS: Final = _gauge("process_open_fds", "Open file descriptors.")
MAX_FDS: Final = _gauge("process_max_fds", "How many there may be.")
VIRTUAL_BYTES: Final = _gauge("process_virtual_memory_bytes", "Virtual memory.")
RESIDENT_BYTES: Final = _gauge("process_resident_memory_bytes", "Resident memory.")
START_SECONDS: Final = _gauge(
    "process_start_time_seconds", "When the process started, in seconds since the Unix epoch.", (), Merge.MIN
)
