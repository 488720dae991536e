"""Configuration of the traffic recorder; see `penstock.app.config.schema`."""

import json
from typing import TYPE_CHECKING, Annotated, Final, Literal

from penstock.capture.redaction.rules import SECRET_PARAMETERS, secret_headers
from penstock.core.config_fields import Table, key
from penstock.model.expressions import compile_expression
from penstock.model.limits import MIB
from penstock.protocols.plugin import listener_kinds

__all__ = ["RecorderTable", "RedactTable"]

SECRET_HEADERS: Final = secret_headers()

if TYPE_CHECKING:
    _Protocol = str
else:
    _Protocol = Literal[tuple(listener_kinds())]


class RedactTable(Table, frozen=True, kw_only=True):
    """Secrets that are replaced by asterisks of the same length before traffic is recorded or shown by `penstock tail`.
    An empty array switches a rule off."""

    headers: Annotated[
        tuple[str, ...], key("Names of HTTP headers and gRPC metadata whose values are secret; case is ignored.")
    ] = SECRET_HEADERS
    parameters: Annotated[
        tuple[str, ...], key("Names of URL query parameters whose values are secret; case is ignored.")
    ] = SECRET_PARAMETERS
    tokens: Annotated[
        bool,
        key("Replace access tokens, delegation tokens and credentials of SASL, inside messages."),
    ] = True
    record_headers: Annotated[tuple[str, ...], key("Names of record headers whose values are secret.")] = ()
    patterns: Annotated[
        tuple[str, ...],
        key(
            "Regular expressions for secrets anywhere in the traffic, in Python's syntax without backreferences "
            "and lookaround; a match has at most 1024 bytes."
        ),
    ] = ()

    def __post_init__(self) -> None:
        for index, pattern in enumerate(self.patterns):
            try:
                compile_expression(pattern.encode())
            except ValueError as error:
                raise ValueError(f"patterns[{index}]: {error}") from None

    @property
    def weakened(self) -> bool:
        """True if secrets are recorded that would be blanked by default."""
        kept = {name.lower() for name in self.headers}, {name.lower() for name in self.parameters}
        return not (self.tokens and kept[0] >= set(SECRET_HEADERS) and kept[1] >= set(SECRET_PARAMETERS))


class RecorderTable(Table, frozen=True, kw_only=True):
    """Recorder of the traffic, into pcapng files that Wireshark reads (docs/recorder.md); `penstock tail` works without
    it. A connection is recorded if, for every array below that is not empty, it matches one of the values."""

    directory: Annotated[
        str,
        key(
            "Directory of the files; created if it is missing, with access for its owner only.",
            example="./recordings",
            path=True,
        ),
    ]
    start: Annotated[bool, key("Record from the start; false: only after `penstock record start`.")] = True
    listeners: Annotated[
        tuple[str, ...],
        key('Connections of clients to these listeners: "s2" for all of a kind, "s2.NAME" for one.'),
    ] = ()
    backs: Annotated[
        tuple[str, ...],
        key("Connections to the servers of these backs; if `listeners` is given too, connections of both kinds."),
    ] = ()
    protocols: Annotated[
        tuple[_Protocol, ...],
        key(f"Connections that speak one of these: {', '.join(map(json.dumps, listener_kinds()))}."),
    ] = ()
    routes: Annotated[
        tuple[str, ...],
        key(
            "Globs of route names: connections with a request on such a route, and connections to the backs of "
            "such a route."
        ),
    ] = ()
    streams: Annotated[
        tuple[str, ...],
        key(
            "Globs of streams, as BASIN/STREAM, or STREAM for any basin: connections of clients with a request "
            "about such a stream."
        ),
    ] = ()
    rotate_bytes: Annotated[
        int, key("Size of a file at which it is closed and the next one begins; 0: unlimited.", least=0)
    ] = 256 * MIB
    rotate_seconds: Annotated[
        float,
        key("Age of a file at which it is closed and the next one begins, unless it is empty; 0: unlimited.", least=0),
    ] = 0.0
    keep_files: Annotated[int, key("Number of files to keep: the oldest ones are deleted; 0: all.", least=0)] = 0
    keep_bytes: Annotated[
        int, key("Total size of the files to keep: the oldest ones are deleted; 0: unlimited.", least=0)
    ] = 16 * 1024 * MIB
    compress: Annotated[
        Literal["none", "zstd"],
        key(
            'Treatment of a closed file. "none": it is kept as it is; "zstd": it is compressed and replaced by '
            "FILE.zst."
        ),
    ] = "none"
    fsync: Annotated[
        Literal["never", "close", "interval"],
        key(
            'Times at which files are synchronised to disk. "never": left to the system; "close": when a file is '
            'closed; "interval": also every fsync_seconds.'
        ),
    ] = "close"
    fsync_seconds: Annotated[float, key('Interval between synchronisations, if fsync is "interval".', least=0.1)] = 5.0
    queue_bytes: Annotated[
        int,
        key(
            "Most bytes that may wait to be written; beyond it, whole connections are dropped from the recording.",
            least=1 * MIB,
        ),
    ] = 64 * MIB
    priority: Annotated[
        Literal["traffic", "recording"],
        key(
            'Preference when processors are busy. "traffic": the recorder takes a small share and drops whole '
            'connections, those with bulk data first; "recording": it takes what it needs and slows the traffic.'
        ),
    ] = "traffic"
    redact: RedactTable = RedactTable()

    def __post_init__(self) -> None:
        if not self.directory:
            raise ValueError("directory: a directory needs a name")
