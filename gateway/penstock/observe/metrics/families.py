"""The metric families of one process, each with its name, type, labels, unit and meaning.

Names follow Prometheus: `penstock_` first, base units (bytes, seconds), `_total` for counters. Labels that several
families share mean the same everywhere, see `LABELS`. docs/metrics.md is generated from this table, and
`penstock.observe.metrics.exposition` exports all of it.

Events are counted here as they happen. Values that can be looked up at a scrape come from a source instead
(`penstock.observe.metrics.series.sampling`); such families have no series of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.observe.metrics.series import Count, Family, Histogram, MetricKind

__all__ = ["FAMILIES", "LABELS", "SECTIONS", "AnyFamily"]  # and each family, by its own name

AnyFamily = Family[Count] | Family[Histogram]

LABELS: Final[Mapping[str, str]] = {
    "listener": "The client's listener, as in the configuration: `listeners.s2`, or `listeners.s2.NAME` if "
    "there are several, or `management`. Empty: work of the gateway itself, not for a client.",
    "route": "The name of the route. Empty: no routes are configured, or the request does not concern a single one.",
    "back": "The name of the back; `embedded` is the gateway's own store.",
    "protocol": "For operations of clients: the kind of their listener, such as `s2`, or a protocol within it, such as "
    "`s2s` or `sse`. For connections and backs: the protocol, such as `s2`, or `management`, as in recordings.",
    "direction": "`in`: to the gateway's streams; `out`: from them. For connections, `in` counts the bytes "
    "that the peer sent.",
    "code": "The error code, as named in docs/protocols and in S2's API.",
    "operation": "The name of the operation, such as `create_stream`.",
    "limit": "The key of the limit under [limits], such as `max_connections_per_client`. Limits of a listener "
    "are prefixed with `listener.`, such as `listener.max_connections`.",
    "reason": "The reason, in one word.",
    "state": "The state. The series of the current state has the value 1, the others 0.",
    "status": "The HTTP status code.",
    "feature": "The part of a record that the protocol cannot carry: `headers`, `empty_body` or `command`.",
    "level": "The log level: `debug`, `info`, `warning`, `error` or `critical`.",
    "owner": "The owner of the certificate: a listener, such as `listeners.s2`, or a back, such as `backs.NAME`.",
    "file": "The path of the file, as given in the configuration.",
    "subject": "The subject of the certificate, or the issuer of the revocation list.",
    "outcome": "`applied`: the new configuration is in force. `refused`: it was rejected, and the running one is "
    "unchanged.",
    "rule": "The name of the rule in [[faults]].",
    "action": "The action of the rule in [[faults]], such as `delay`.",
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
    return _kept(Family(name, MetricKind.COUNTER, meaning, labels, Count))


def _gauge(name: str, meaning: str, labels: Sequence[str] = ()) -> Family[Count]:
    return _kept(Family(name, MetricKind.GAUGE, meaning, labels, Count))


def _histogram(
    name: str, meaning: str, labels: Sequence[str] = (), bounds: Sequence[float] = _SECONDS
) -> Family[Histogram]:
    family = Family(name, MetricKind.HISTOGRAM, meaning, labels, lambda: Histogram(bounds), bounds=bounds)
    FAMILIES.append(family)
    return family


def _kept(family: Family[Count]) -> Family[Count]:
    FAMILIES.append(family)
    return family


_section("Connections with clients")

CONNECTIONS: Final = _gauge("penstock_connections", "Open connections from clients.", _LISTENER)
CONNECTIONS_ACCEPTED: Final = _counter(
    "penstock_connections_accepted_total", "Connections accepted from clients.", _LISTENER
)
CONNECTIONS_REFUSED: Final = _counter(
    "penstock_connections_refused_total",
    "Connections from clients that were closed before a request was served: `limit` (a configured limit), "
    "`handshake` (the TLS handshake failed, or the client sent no valid certificate), `proxy` (it is not from a proxy, "
    "or without a valid header of the PROXY protocol).",
    (*_LISTENER, "reason"),
)
NETWORK_BYTES: Final = _counter(
    "penstock_network_bytes_total",
    "Bytes sent and received on connections with clients, without TLS overhead but with protocol overhead.",
    (*_LISTENER, "direction"),
)
OUTFLOW_BYTES: Final = _gauge(
    "penstock_outflow_bytes", "Bytes buffered for clients until their sockets accept them.", _LISTENER
)
PAUSED_SECONDS: Final = _counter(
    "penstock_paused_seconds_total",
    "Total time in which connections were blocked: `in`: the gateway did not read, because earlier data was "
    "still unprocessed; `out`: a response waited for the client to read.",
    (*_LISTENER, "direction"),
)
LIMITED: Final = _counter(
    "penstock_limited_total",
    "Requests that a configured limit refused, cut off or delayed.",
    ("listener", "limit"),
)
"""For all limits: `limit` is the key in the configuration, such as `max_connections_per_client`."""
FAULTS: Final = _counter(
    "penstock_faults_total",
    "Faults injected by a rule in [[faults]].",
    ("rule", "action"),
)
HTTP_RESPONSES: Final = _counter(
    "penstock_http_responses_total",
    "HTTP responses started; a session counts as one.",
    ("listener", "status"),
)
CLIENT_ERRORS: Final = _counter(
    "penstock_client_errors_total",
    "Errors sent to clients: failed operations, and requests rejected before they became one (credentials, "
    "syntax, names, limits).",
    (*_LISTENER, "code"),
)

_section("Operations of clients")

RECORDS: Final = _counter(
    "penstock_records_total",
    "Records acknowledged (`in`) or read (`out`). Bytes read without record boundaries are not counted.",
    _FLOW,
)
RECORD_BYTES: Final = _counter(
    "penstock_record_bytes_total",
    "Bytes of these records, metered as S2 does. For streams as bytes and for passthrough sessions, the transferred "
    "bytes.",
    _FLOW,
)
RESTAMPED_RECORDS: Final = _counter(
    "penstock_restamped_records_total",
    "Records stored with another timestamp than their client gave, which is not kept: it fell, lay in the future, or "
    "the stream stamps its records. Where a server tells only the first and the last timestamp of an append, all of "
    "its records count if either differs. Passthrough sessions are not counted.",
    _WAY,
)
BATCHES: Final = _counter(
    "penstock_batches_total",
    "Batches acknowledged (`in`), or chunks read (`out`).",
    _FLOW,
)
APPEND_SECONDS: Final = _histogram(
    "penstock_append_seconds",
    "Time from submitting a batch to its acknowledgement, including the wait for buffer space.",
    _WAY,
)
APPEND_WAIT_SECONDS: Final = _counter(
    "penstock_append_wait_seconds_total",
    "Total time that sessions waited until their next batch was accepted: back-pressure of the store or the server.",
    _WAY,
)
READ_FIRST_SECONDS: Final = _histogram(
    "penstock_read_first_seconds",
    "Time from the start of a read to its first batch, or until it is known to be at the tail.",
    _WAY,
)
OPERATION_SECONDS: Final = _histogram(
    "penstock_operation_seconds",
    "Duration of all other operations: checking tails, creating, deleting, listing, configuring.",
    (*_WAY, "operation"),
)
SESSIONS: Final = _gauge("penstock_sessions", "Open append sessions (`in`) and reads (`out`).", _FLOW)
ERRORS: Final = _counter(
    "penstock_errors_total", "Failed operations and sessions, by the error code of the back.", (*_WAY, "code")
)
RECORDS_DROPPED: Final = _counter(
    "penstock_records_dropped_total",
    "Parts of records that were left out, because the protocol cannot carry them and the configuration says `drop`.",
    (*_LISTENER, "feature"),
)

_section("Servers behind the gateway")

BACK_CONNECTIONS: Final = _gauge("penstock_back_connections", "Open connections to servers.", _BACK)
BACK_CONNECTIONS_MADE: Final = _counter(
    "penstock_back_connections_made_total", "Connections established to servers.", _BACK
)
BACK_CONNECTIONS_FAILED: Final = _counter(
    "penstock_back_connections_failed_total",
    "Connections to servers that could not be established (`unmade`), or were lost before the server answered "
    "(`lost`).",
    ("back", "reason"),
)
BACK_NETWORK_BYTES: Final = _counter(
    "penstock_back_network_bytes_total",
    "Bytes on connections to servers, without TLS overhead; `in` counts bytes that the server sent.",
    (*_BACK, "direction"),
)
BACK_OUTFLOW_BYTES: Final = _gauge(
    "penstock_back_outflow_bytes", "Bytes buffered for servers until their sockets accept them.", _BACK
)
BACK_RETRIES: Final = _counter(
    "penstock_back_retries_total",
    "Requests repeated and sessions resumed after a failure of a server.",
    ("back",),
)
BACK_CIRCUIT: Final = _gauge(
    "penstock_back_circuit",
    "The state of a server's circuit breaker: `closed` (requests pass), `open` (requests are refused) or "
    "`half-open` (one request probes the server).",
    ("back", "state"),
)
BACK_CIRCUIT_OPENED: Final = _counter(
    "penstock_back_circuit_opened_total", "Number of times a server's circuit breaker opened.", ("back",)
)

_section("The embedded store")

STORE_COMMITS: Final = _counter("penstock_store_commits_total", "Write transactions of the embedded store.")
STORE_COMMIT_FAILURES: Final = _counter(
    "penstock_store_commit_failures_total", "Failed write transactions; each refuses all of its changes."
)
STORE_COMMIT_BYTES: Final = _counter("penstock_store_commit_bytes_total", "Approximate number of bytes committed.")
STORE_COMMIT_CHANGES: Final = _histogram(
    "penstock_store_commit_changes", "Changes per transaction; an append is one change.", (), _CHANGES
)
STORE_COMMIT_SECONDS: Final = _histogram(
    "penstock_store_commit_seconds", "Duration of a transaction, including the wait for the writing thread."
)
STORE_SYNC_SECONDS: Final = _histogram(
    "penstock_store_sync_seconds",
    "Duration of writing the log and syncing it to disk (COMMIT); part of `penstock_store_commit_seconds`.",
)
STORE_PENDING: Final = _gauge("penstock_store_pending_changes", "Changes waiting for the next transaction.")
STORE_INFLIGHT_BYTES: Final = _gauge(
    "penstock_store_inflight_bytes",
    "Bytes of appends that are not on disk yet; at most `store.append_inflight_bytes`.",
)
STORE_WAITING: Final = _gauge(
    "penstock_store_waiting_appends", "Appends waiting because `store.append_inflight_bytes` is used up."
)
STORE_FILE_BYTES: Final = _gauge("penstock_store_file_bytes", "Size of the store's database file.")
STORE_LOG_BYTES: Final = _gauge("penstock_store_log_bytes", "Size of the store's write-ahead log.")
STORE_DAMAGED_READS: Final = _counter(
    "penstock_store_damaged_reads_total",
    "Reads that met records whose stored payload differs from its checksum; `penstock store check` finds them all.",
)
STORE_PAYLOAD_BYTES: Final = _gauge("penstock_store_payload_bytes", "Disk space of the store's files of payloads.")

_section("Recordings and mirrors")

RECORDINGS: Final = _gauge("penstock_recordings", "Running recordings, both to files and live.")
RECORDINGS_SUSPENDED: Final = _gauge(
    "penstock_recordings_suspended", "Recordings that currently cannot write, because the disk is full or failing."
)
RECORDED_BYTES: Final = _counter("penstock_recorded_bytes_total", "Bytes written to recordings.")
RECORDED_CONVERSATIONS: Final = _counter(
    "penstock_recorded_conversations_total", "Connections whose recording was started."
)
RECORDINGS_DROPPED: Final = _counter(
    "penstock_recorded_dropped_total",
    "Connections dropped from recordings, because the disk or the receiver of a live recording was too slow.",
)
RECORDER_QUEUE_BYTES: Final = _gauge("penstock_recorder_queue_bytes", "Bytes waiting to be written to recordings.")
MIRROR_LAG_RECORDS: Final = _gauge(
    "penstock_mirror_lag_records",
    "Records that the mirror has not copied and compared yet.",
    ("route",),
)
MIRROR_LAG_SECONDS: Final = _gauge(
    "penstock_mirror_lag_seconds",
    "Time that the oldest record not yet copied and compared has waited.",
    ("route",),
)
MIRROR_STREAMS: Final = _gauge("penstock_mirror_streams", "Streams that the mirror tracks.", ("route",))
MIRROR_STREAMS_STOPPED: Final = _gauge(
    "penstock_mirror_streams_stopped", "Streams that the mirror has stopped copying.", ("route",)
)
MIRROR_STREAMS_DIFFERING: Final = _gauge(
    "penstock_mirror_streams_differing",
    "Streams whose records differ between the two backs.",
    ("route",),
)

_section("Certificates")

CERTIFICATE_EXPIRY: Final = _gauge(
    "penstock_certificate_expiry_timestamp_seconds",
    "Expiry time of a certificate or revocation list in use, in seconds since the Unix epoch.",
    ("owner", "file", "subject"),
)

_section("The process")

BUILD_INFO: Final = _gauge("penstock_build_info", "Always 1; the labels give the versions.", ("version", "python"))
READY: Final = _gauge(
    "penstock_ready",
    "1 while the gateway listens and does not drain, else 0. `GET /ready` also checks the backs.",
    (),
)
DRAINING: Final = _gauge("penstock_draining", "1 while the gateway drains, else 0.")
RELOADS: Final = _counter("penstock_reloads_total", "Reloads of the configuration.", ("outcome",))
RELOADED_SECONDS: Final = _gauge(
    "penstock_reloaded_timestamp_seconds",
    "Time at which the running configuration was loaded, in seconds since the Unix epoch.",
    (),
)
LOG_LINES: Final = _counter("penstock_log_lines_total", "Lines written to the log.", ("level",))
SCRAPE_SECONDS: Final = _gauge(
    "penstock_scrape_seconds", "Longest time for which the previous scrape blocked other work."
)
CPU_SECONDS: Final = _counter("process_cpu_seconds_total", "User and system CPU time.")
OPEN_FDS: Final = _gauge("process_open_fds", "Number of open file descriptors.")
MAX_FDS: Final = _gauge("process_max_fds", "Maximum number of open file descriptors.")
VIRTUAL_BYTES: Final = _gauge("process_virtual_memory_bytes", "Virtual memory size.")
RESIDENT_BYTES: Final = _gauge("process_resident_memory_bytes", "Resident memory size.")
START_SECONDS: Final = _gauge(
    "process_start_time_seconds", "Start time of the process, in seconds since the Unix epoch."
)
