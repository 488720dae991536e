"""What can be configured: one struct per TOML table, with every default, bound, unit and explanation.

Sizes are in bytes and times in seconds unless a key's name says else. `config/gateway.toml` and
`docs/configuration.md` are written from these structs (`penstock.config.document`), so they cannot drift apart.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from penstock.config.address import Address
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.limits import KIB, MIB
from penstock_codecs.s2.names import validate_basin_name

__all__ = [
    "DEFAULT_BASIN",
    "Basin",
    "Config",
    "Drain",
    "Listeners",
    "Log",
    "S2Limits",
    "S2Listener",
    "S3PLimits",
    "S3PListener",
    "S3PLoss",
    "Store",
    "default_config",
]

DEFAULT_BASIN = "penstock"


def _key(description: str, *, least: float | None = None, most: float | None = None, example: object = None) -> Meta:
    """What a key means, the bounds of its value, and an example where it has no default."""
    return Meta(description=description, ge=least, le=most, examples=None if example is None else [example])


def _check_address(text: str) -> None:
    try:
        Address.parse(text)
    except ValueError as error:
        raise ValueError(f"bind: {error}") from error


def _check_basin(key: str, name: str) -> None:
    try:
        validate_basin_name(name, FailureCode.INVALID)
    except OperationFailed as error:
        raise ValueError(f"{key}: {error.failure.message}") from error


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all tables."""


_MAX_CONNECTIONS = _key("Connections at once; more wait in the system's queue until one ends.", least=1)
_MANY = 10_000


class S2Limits(_Table, frozen=True, kw_only=True):
    """What one S2 listener bears. Sizes are those of one connection."""

    max_connections: Annotated[int, _MAX_CONNECTIONS] = _MANY
    keep_alive_seconds: Annotated[
        float, _key("A connection without a request under way is closed after this.", least=1)
    ] = 120.0
    head_timeout_seconds: Annotated[
        float, _key("A request head, or the TLS handshake, must be complete within this.", least=0.1)
    ] = 30.0
    slow_reader_seconds: Annotated[
        float, _key("A client that takes nothing for this long, while there is something for it, is cut off.", least=1)
    ] = 60.0
    max_head_bytes: Annotated[int, _key("Largest request line with all its headers.", least=4 * KIB)] = 64 * KIB
    max_streams: Annotated[int, _key("HTTP/2: requests at once on one connection.", least=1)] = 1000
    receive_buffer_bytes: Annotated[
        int, _key("HTTP/1.1: with this much unread request body the socket is not read any further.", least=16 * KIB)
    ] = 256 * KIB
    send_buffer_bytes: Annotated[
        int, _key("A reader is fed no further while more than this is on its way.", least=16 * KIB)
    ] = 1 * MIB


_Token = Annotated[str, Meta(pattern="^[!-~]+$")]
"""Visible ASCII without spaces, which is what every client can put into a header."""
_HostSuffix = Annotated[str, Meta(pattern="^[.].")]


class S2Listener(_Table, frozen=True, kw_only=True):
    """S2 over HTTP/1.1 and HTTP/2: S2S sessions, SSE, JSON and protobuf. Leave the table out to switch it off."""

    bind: Annotated[str, _key("HOST:PORT; [::1]:8080 for IPv6; port 0 lets the system choose.")] = "127.0.0.1:8080"
    tls_certificate: Annotated[
        str | None, _key("PEM file with the certificate chain; absent: no TLS.", example="certificate.pem")
    ] = None
    tls_key: Annotated[
        str | None, _key("PEM file with the private key; goes with tls_certificate.", example="key.pem")
    ] = None
    default_basin: Annotated[str | None, _key("Basin of requests that name none.", example="penstock")] = None
    basin_host_suffixes: Annotated[
        tuple[_HostSuffix, ...],
        _key("A host `<basin><suffix>` names its basin, for browsers, whose EventSource cannot send headers."),
    ] = (".localhost",)
    cors: Annotated[bool, _key("Answer browsers of any origin.")] = True
    auth_tokens: Annotated[
        tuple[_Token, ...], _key("Bearer tokens, each good for everything; none: no authentication.")
    ] = ()
    sse_dialect: Annotated[
        Literal["s2", "seed"], _key('"s2" is what S2 clients speak; "seed": colon ids, empty ping, `done` event.')
    ] = "s2"
    compress: Annotated[bool, _key("Compress answers for clients that accept it.")] = True
    limits: S2Limits = S2Limits()

    def __post_init__(self) -> None:
        _check_address(self.bind)
        if self.default_basin is not None:
            _check_basin("default_basin", self.default_basin)
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together: give both or neither")


class S3PLimits(_Table, frozen=True, kw_only=True):
    """What one S3P listener bears. A command over these limits is answered ERR_LIMITS."""

    max_connections: Annotated[int, _MAX_CONNECTIONS] = _MANY
    max_name_bytes: Annotated[int, _key("Longest stream name.", least=1, most=512)] = 256
    max_records_per_append: Annotated[int, _key("Most records of one APPEND.", least=1, most=1000)] = 1000
    max_record_bytes: Annotated[int, _key("Largest record.", least=1, most=1 * MIB - 8)] = 1 * MIB - 8
    max_append_bytes: Annotated[int, _key("Most bytes of the records of one APPEND.", least=1, most=1 * MIB)] = 1 * MIB
    default_count: Annotated[int, _key("Most records that a READ without COUNT gives.", least=1)] = 1000
    max_count: Annotated[int, _key("Largest COUNT of a READ.", least=1)] = 1000
    max_read_bytes: Annotated[
        int, _key("Most bytes of records that one READ gives, whatever its COUNT.", least=1 * MIB)
    ] = 2 * MIB
    max_block_ms: Annotated[int, _key("Longest BLOCK of a READ, in milliseconds.", least=0)] = 10_000
    max_option_pairs: Annotated[int, _key("Most options of one command.", least=4)] = 64
    max_option_bytes: Annotated[int, _key("Longest command name, option key or option value.", least=41)] = 256
    idle_timeout_seconds: Annotated[
        float, _key("A client that sends nothing for this long, while a command is awaited, is cut off.", least=1)
    ] = 300.0
    send_timeout_seconds: Annotated[
        float, _key("A client that takes none of its replies for this long is cut off.", least=1)
    ] = 30.0

    def __post_init__(self) -> None:
        if self.default_count > self.max_count:
            raise ValueError(f"default_count: {self.default_count} is more than max_count, {self.max_count}")


_Loss = Literal["refuse", "envelope", "drop"]


class S3PLoss(_Table, frozen=True, kw_only=True):
    """What is done with records that S3P cannot carry: "refuse" fails the READ with an error that names the record,
    "envelope" carries the whole record inside the body (docs/loss.md), "drop" leaves out what cannot be carried."""

    headers: Annotated[_Loss, _key("Records with headers.")] = "refuse"
    empty_body: Annotated[_Loss, _key("Records with an empty body.")] = "refuse"
    command_records: Annotated[_Loss, _key("Records that command the stream: fence, trim.")] = "drop"


class S3PListener(_Table, frozen=True, kw_only=True):
    """S3P 0.2.0 over TCP. Leave the table out to switch it off."""

    bind: Annotated[str, _key("HOST:PORT; [::1]:7500 for IPv6; port 0 lets the system choose.")] = "127.0.0.1:7500"
    names: Annotated[
        Literal["fixed", "path"],
        _key('"fixed": the whole name is a stream of `basin`; "path": names are basin/stream (docs/names.md).'),
    ] = "fixed"
    basin: Annotated[str, _key('Basin that holds the streams where names is "fixed".')] = DEFAULT_BASIN
    loss: S3PLoss = S3PLoss()
    limits: S3PLimits = S3PLimits()

    def __post_init__(self) -> None:
        _check_address(self.bind)
        _check_basin("basin", self.basin)


class Listeners(_Table, frozen=True, kw_only=True):
    """Where clients connect; a protocol without a table is off."""

    s2: S2Listener | None = None
    s3p: S3PListener | None = None


class Basin(_Table, frozen=True, kw_only=True):
    """A basin that is there from the start. What is said here is what holds, whatever it was before."""

    name: Annotated[str, _key("8 to 48 of a-z, 0-9 and -, with a letter or digit at both ends.")]
    create_stream_on_append: Annotated[bool, _key("An append to a stream that is not there creates it.")] = True
    create_stream_on_read: Annotated[bool, _key("A read of a stream that is not there creates it.")] = True
    retention_seconds: Annotated[
        int, _key("How long records are kept, where the stream does not say; 0: for ever.", least=0)
    ] = 604_800
    timestamping_mode: Annotated[
        Literal["client-prefer", "client-require", "arrival"],
        _key("Whose clock stamps records, where the stream does not say."),
    ] = "client-prefer"

    def __post_init__(self) -> None:
        _check_basin("name", self.name)


class Store(_Table, frozen=True, kw_only=True):
    """The embedded store."""

    directory: Annotated[str, _key("Relative to the working directory; created where it is missing.")] = "./data"
    append_inflight_bytes: Annotated[
        int, _key("Appends that are not yet on disk, over all streams; more wait their turn.", least=1 * MIB)
    ] = 128 * MIB
    tail_cache_bytes: Annotated[
        int, _key("The newest batches, kept in memory for those who follow.", least=1 * MIB)
    ] = 32 * MIB
    read_ahead_batches: Annotated[
        int, _key("Batches, of up to 1 MiB each, that are read ahead of slow readers, over all reads.", least=1)
    ] = 64
    cached_streams: Annotated[int, _key("Idle streams whose heads stay in memory, about 1 KiB each.", least=1)] = 10_000
    reader_threads: Annotated[int, _key("Catch-up reads that use the disk at once.", least=1, most=64)] = 4
    sweep_interval_seconds: Annotated[
        float, _key("How often records past their retention, and empty streams, are looked for.", least=0.1)
    ] = 30.0
    basins: tuple[Basin, ...] = ()

    def __post_init__(self) -> None:
        names = [basin.name for basin in self.basins]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"basin {name} stands twice in [[store.basins]]")


class Drain(_Table, frozen=True, kw_only=True):
    """What happens on SIGTERM and SIGINT."""

    grace_seconds: Annotated[
        float, _key("How long S2 sessions, advised to reconnect, go on before they are ended in order.", least=0)
    ] = 3.0
    deadline_seconds: Annotated[
        float, _key("How long clients have to finish in all; then their connections are cut.", least=0)
    ] = 10.0


class Log(_Table, frozen=True, kw_only=True):
    """The log, on standard error."""

    level: Annotated[Literal["debug", "info", "warning", "error"], _key("The least that is logged.")] = "info"
    format: Annotated[
        Literal["auto", "json", "console"],
        _key('"json": one object a line; "auto": console on a terminal, else json.'),
    ] = "auto"


class Config(_Table, frozen=True, kw_only=True):
    """The whole configuration of one gateway."""

    listeners: Listeners = Listeners()
    store: Store = Store()
    drain: Drain = Drain()
    log: Log = Log()

    def __post_init__(self) -> None:
        if self.listeners.s2 is None and self.listeners.s3p is None:
            raise ValueError("there is nothing to run: give [listeners.s2] or [listeners.s3p]")


def default_config() -> Config:
    """What runs without a file: both listeners and a basin `penstock`. `config/gateway.toml` says the same."""
    return Config(
        listeners=Listeners(s2=S2Listener(), s3p=S3PListener()), store=Store(basins=(Basin(name=DEFAULT_BASIN),))
    )
