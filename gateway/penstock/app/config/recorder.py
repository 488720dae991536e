"""Configuration of the traffic recorder; see `penstock.app.config.schema`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Final, Literal

from penstock.core.config_fields import Table, key
from penstock.protocols.plugin import listener_kinds
from penstock_analysis.redaction.rules import SECRET_PARAMETERS, secret_headers
from penstock_codecs.expressions import compile_expression
from penstock_codecs.limits import MIB

__all__ = ["RecorderTable", "RedactTable"]

SECRET_HEADERS: Final = secret_headers()

if TYPE_CHECKING:
    _Protocol = str
else:
    _Protocol = Literal[tuple(listener_kinds())]


class RedactTable(Table, frozen=True, kw_only=True):
    """Secrets that are blanked before anything is recorded, or shown by `penstock tail`. Lengths stay. An empty array
    switches a rule off."""

    headers: Annotated[
        tuple[str, ...], key("Headers of HTTP and metadata of gRPC whose values are secret, in any case.")
    ] = SECRET_HEADERS
    parameters: Annotated[tuple[str, ...], key("Parameters of a URL's query whose values are secret, in any case.")] = (
        SECRET_PARAMETERS
    )
    tokens: Annotated[
        bool, key("Access and delegation tokens inside messages: S2's, the segment protocol's, the controller's.")
    ] = True
    record_headers: Annotated[tuple[str, ...], key("Headers of records whose values are secret.")] = ()
    patterns: Annotated[
        tuple[str, ...],
        key(
            "Regular expressions of Python, without backreferences and lookaround, for what is secret wherever it "
            "stands; a match of at most 1024 bytes."
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
    """Recordings of the traffic, as pcapng files that Wireshark reads (docs/management.md). `penstock tail` works
    without this table. A connection must match every array below that is not empty, each by one of its values."""

    directory: Annotated[
        str, key("Where files go; created where it is missing, for its owner alone.", example="./recordings", path=True)
    ]
    start: Annotated[bool, key("Record from the start; else only when `penstock record start` says so.")] = True
    listeners: Annotated[
        tuple[str, ...],
        key('Connections of clients by these: "s2" for all of a kind, "s2.NAME" for one.'),
    ] = ()
    backs: Annotated[
        tuple[str, ...], key("Connections with the servers of these backs; with `listeners`: those of either.")
    ] = ()
    protocols: Annotated[
        tuple[_Protocol, ...],
        key(f"Connections that speak one of these: {', '.join(map(json.dumps, listener_kinds()))}."),
    ] = ()
    routes: Annotated[
        tuple[str, ...],
        key("Connections with a request that took one of these routes, and those with its backs; globs."),
    ] = ()
    streams: Annotated[
        tuple[str, ...],
        key(
            "Connections of clients with a request about one of these: BASIN/STREAM, or without a slash of any basin; "
            "globs."
        ),
    ] = ()
    rotate_bytes: Annotated[
        int, key("A file that has grown so long is closed, and another begun; 0: never.", least=0)
    ] = 256 * MIB
    rotate_seconds: Annotated[
        float, key("A file that is so old is closed, if anything was recorded in it; 0: never.", least=0)
    ] = 0.0
    keep_files: Annotated[int, key("So many files stay, and the oldest go; 0: all.", least=0)] = 0
    keep_bytes: Annotated[int, key("So much they take together, as above; 0: as much as there is.", least=0)] = (
        16 * 1024 * MIB
    )
    compress: Annotated[
        Literal["none", "zstd"], key('What becomes of a closed file. "zstd": FILE.zst takes its place.')
    ] = "none"
    fsync: Annotated[
        Literal["never", "close", "interval"],
        key('When files are flushed to the disk itself. "close": once closed; "interval": every fsync_seconds too.'),
    ] = "close"
    fsync_seconds: Annotated[float, key('How often, where fsync is "interval".', least=0.1)] = 5.0
    queue_bytes: Annotated[
        int,
        key("How much may wait for the disk; then whole connections are dropped from the recording.", least=1 * MIB),
    ] = 64 * MIB
    priority: Annotated[
        Literal["traffic", "recording"],
        key(
            'Who goes first where processors are short. "traffic": recording takes a small share, and drops whole '
            'connections, bulk first; "recording": it takes what it needs, and traffic is the slower for it.'
        ),
    ] = "traffic"
    redact: RedactTable = RedactTable()

    def __post_init__(self) -> None:
        if not self.directory:
            raise ValueError("directory: a directory needs a name")
