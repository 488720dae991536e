"""Configuration tables of S2; see docs/configuration.md."""

import re
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from penstock.core.config_fields import Token, check_address, check_basin, check_server, key
from penstock.model.limits import KIB, MIB
from penstock.protocols.tables import (
    LOST_ACK,
    MAX_CONNECTIONS,
    STREAMS_BEFORE_AUTH,
    Anonymous,
    BackTable,
    ListenerLimits,
    ListenerName,
    ListenerTable,
    Recover,
)
from penstock_s2.codec.locations import DEFAULT_LOCATION, LOCATION_PATTERN

__all__ = ["S2BackTable", "S2Listener", "S2ListenerLimits", "S2SseBackTable"]

_HostSuffix = Annotated[str, Meta(pattern="^[.].")]
_Origin = Annotated[str, Meta(pattern=r"^([*]|https?://[^/?#@*\sA-Z]+)\Z")]
_Host = Annotated[str, Meta(pattern=r"^([*]|([*][.])?[^/?#@:*\s]+)\Z")]
_Http = Annotated[
    Literal["auto", "h1", "h2"],
    key(
        'Version of HTTP. "h1": HTTP/1.1; "h2": HTTP/2; "auto": the version that TLS negotiates, or HTTP/1.1 '
        "without TLS."
    ),
]
_BasinStyle = Annotated[
    Literal["header", "host"],
    key(
        'Place of the basin\'s name in requests. "header": the header s2-basin; "host": also the first '
        "label of the host name."
    ),
]
_BasinAuthority = Annotated[
    str | None,
    key(
        'With basin_style = "host": host name that follows the basin\'s label; absent: the address.', example="b.s2.dev"
    ),
]
_AUTHORITY: Final = re.compile(r"[A-Za-z0-9._-]+(:[0-9]+)?")


class S2ListenerLimits(ListenerLimits, frozen=True, kw_only=True):
    """Limits of one S2 listener. Sizes are per connection."""

    max_connections: Annotated[int, MAX_CONNECTIONS] = 10_000
    event_stream_seconds: Annotated[
        Annotated[float, Meta(ge=1)] | None,
        key(
            "Time after which an event stream ends and its client reconnects, at least 1; absent: 45 with sse_dialect "
            '= "seed", otherwise never.',
            example=60.0,
        ),
    ] = None
    keep_alive_seconds: Annotated[
        float, key("Time after which a connection without a request in progress is closed.", least=1)
    ] = 120.0
    head_timeout_seconds: Annotated[
        float, key("Time within which the head of a request must be complete.", least=0.1)
    ] = 30.0
    slow_reader_seconds: Annotated[
        float,
        key("Time after which a client is disconnected if it accepts none of the data that waits for it.", least=1),
    ] = 60.0
    max_head_bytes: Annotated[int, key("Most bytes of a request line with all its headers.", least=4 * KIB)] = 64 * KIB
    max_streams: Annotated[int, key("HTTP/2: most concurrent requests on one connection.", least=1)] = 1000
    max_streams_before_auth: Annotated[int, STREAMS_BEFORE_AUTH] = 100
    receive_buffer_bytes: Annotated[
        int,
        key("HTTP/1.1: bytes of an unread request body at which the gateway stops reading the socket.", least=16 * KIB),
    ] = 256 * KIB
    send_buffer_bytes: Annotated[
        int, key("Bytes on their way to one reader at which the gateway pauses its read.", least=16 * KIB)
    ] = 1 * MIB
    max_unsent_bytes: Annotated[
        int,
        key(
            "HTTP/2: bytes of answers on one connection, waiting for the client's window, at which the gateway "
            "pauses reads.",
            least=1 * MIB,
        ),
    ] = 8 * MIB


class S2Listener(ListenerTable, frozen=True, kw_only=True):
    """S2 over HTTP/1.1 and HTTP/2: S2S sessions, SSE, JSON and protobuf. Omit the table to switch the listener off."""

    name: ListenerName = None
    bind: Annotated[str, key("Address, as HOST:PORT, or [::1]:8080 for IPv6; port 0 lets the system choose.")] = (
        "127.0.0.1:8080"
    )
    default_basin: Annotated[str | None, key("Basin of requests that name none.", example="penstock")] = None
    location: Annotated[
        str,
        key("Name of the gateway as S2's location, in which all basins are: up to 64 letters, digits and `:.-`."),
    ] = DEFAULT_LOCATION
    basin_host_suffixes: Annotated[
        tuple[_HostSuffix, ...],
        key(
            "Suffixes of host names that begin with a basin: `<basin><suffix>`. They are for browsers, whose "
            "EventSource cannot send headers."
        ),
    ] = (".localhost",)
    cors_origins: Annotated[
        tuple[_Origin, ...],
        key(
            "Origins of web pages that may use the listener, such as https://app.example:8443, or * for any. Pages "
            "of other origins are refused."
        ),
    ] = ()
    hosts: Annotated[
        tuple[_Host, ...],
        key(
            "Host names that requests may use, besides localhost, addresses and basin_host_suffixes: a name, "
            "*.example.org, or * for any. They are checked, against DNS rebinding, if clients need no token and "
            "there is no TLS."
        ),
    ] = ()
    auth_tokens: Annotated[
        tuple[Token, ...],
        key("Bearer tokens, each of which permits everything; empty, and without [access]: no authentication."),
    ] = ()
    anonymous: Anonymous = False
    sse_dialect: Annotated[
        Literal["s2", "seed"],
        key(
            'Format of server-sent events. "s2": that of S2 clients; "seed": that of older pages about S2 '
            "(docs/protocols/s2.md)."
        ),
    ] = "s2"
    compress: Annotated[bool, key("Compress answers for clients that accept it.")] = True
    limits: S2ListenerLimits = S2ListenerLimits()

    def __post_init__(self) -> None:
        check_address("bind", self.bind)
        if re.fullmatch(LOCATION_PATTERN, self.location) is None:
            raise ValueError(f"location: {self.location!r:.80} is not 1 to 64 letters, digits and :.-")
        if self.default_basin is not None:
            check_basin("default_basin", self.default_basin)
        self.check_tls()


class _WithCredentials(BackTable, frozen=True, kw_only=True):
    """A server that may require authentication."""

    address: Annotated[str, key("HOST:PORT of the server.", example="127.0.0.1:8090")]
    credentials: Annotated[
        Literal["none", "static", "pass", "swap"],
        key(
            'Bearer token that the gateway sends to the server. "static": that of `token` or `token_file`; "pass": '
            "the client's own; \"swap\": that of the client's identity in [backs.NAME.tokens], or `token` or "
            "`token_file` for all others."
        ),
    ] = "none"
    token: Annotated[
        Token | None,
        key("Bearer token for the server; token_file keeps it out of the configuration.", example="secret"),
    ] = None
    token_file: Annotated[
        str | None,
        key(
            "File with the bearer token for the server, read at the start, without blanks around it.",
            example="token",
            path=True,
        ),
    ] = None
    tokens: Annotated[
        dict[str, Token],
        key(
            'Bearer tokens by the identity of the client, for credentials = "swap".', example={"analytics": "secret-2"}
        ),
    ] = msgspec.field(default_factory=dict)

    def check(self) -> None:
        """Raise ValueError for keys that do not go together."""
        super().check()
        check_server("address", self.address)
        authority = getattr(self, "basin_authority", None)
        if authority is not None and getattr(self, "basin_style", None) != "host":
            raise ValueError('basin_authority is for basin_style = "host"')
        if authority is not None and not _AUTHORITY.fullmatch(authority):
            raise ValueError(f"basin_authority: expected HOST or HOST:PORT, got {authority!r}")
        if self.token is not None and self.token_file is not None:
            raise ValueError("token and token_file exclude each other: give one of them")
        own = self.token is not None or self.token_file is not None
        if self.credentials == "static" and not own:
            raise ValueError('credentials = "static" needs token or token_file')
        if self.credentials == "swap" and not (self.tokens or own):
            raise ValueError('credentials = "swap" needs tokens')
        if own and self.credentials not in ("static", "swap"):
            raise ValueError(f'token and token_file are for credentials = "static" or "swap", not "{self.credentials}"')
        if self.tokens and self.credentials != "swap":
            raise ValueError(f'tokens are for credentials = "swap", not "{self.credentials}"')


class S2BackTable(_WithCredentials, frozen=True, kw_only=True, tag_field="kind", tag="s2"):
    """Another S2 server. It gets appends and reads in S2S sessions, and all other requests in protobuf and JSON."""

    http: _Http = "auto"
    basin_style: _BasinStyle = "header"
    basin_authority: _BasinAuthority = None
    compression: Annotated[
        Literal["none", "zstd", "gzip"], key("Compression of sessions and messages to the server.")
    ] = "none"
    recover_seconds: Recover = 30.0
    delivery: Annotated[Literal["exactly-once", "at-least-once", "refuse"], key(LOST_ACK)] = "exactly-once"

    def __post_init__(self) -> None:
        self.check()


class S2SseBackTable(_WithCredentials, frozen=True, kw_only=True, tag_field="kind", tag="s2-sse"):
    """Another S2 server that is only read, over SSE, for example through proxies that pass nothing else."""

    http: _Http = "auto"
    basin_style: _BasinStyle = "header"
    basin_authority: _BasinAuthority = None
    sse_dialect: Annotated[
        Literal["s2", "seed"], key("Format of the server's events, as for sse_dialect of a listener.")
    ] = "s2"
    recover_seconds: Recover = 30.0

    def __post_init__(self) -> None:
        self.check()
