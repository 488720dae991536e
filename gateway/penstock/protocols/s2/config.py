"""Configuration tables of S2; see docs/configuration.md."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from penstock.core.config_fields import Token, check_address, check_basin, check_server, key
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
from penstock_codecs.limits import KIB, MIB

__all__ = ["S2Back", "S2Limits", "S2Listener", "S2SseBack"]


class S2Limits(ListenerLimits, frozen=True, kw_only=True):
    """Limits of one S2 listener. Sizes are per connection."""

    max_connections: Annotated[int, MAX_CONNECTIONS] = 10_000
    keep_alive_seconds: Annotated[
        float, key("A connection without a request under way is closed after this.", least=1)
    ] = 120.0
    head_timeout_seconds: Annotated[float, key("A request head must be complete within this.", least=0.1)] = 30.0
    slow_reader_seconds: Annotated[
        float, key("A client that takes nothing for this long, while there is something for it, is cut off.", least=1)
    ] = 60.0
    max_head_bytes: Annotated[int, key("Largest request line with all its headers.", least=4 * KIB)] = 64 * KIB
    max_streams: Annotated[int, key("HTTP/2: requests at once on one connection.", least=1)] = 1000
    max_streams_before_auth: Annotated[int, STREAMS_BEFORE_AUTH] = 100
    receive_buffer_bytes: Annotated[
        int, key("HTTP/1.1: with this much unread request body the socket is not read any further.", least=16 * KIB)
    ] = 256 * KIB
    send_buffer_bytes: Annotated[
        int, key("A reader is fed no further while more than this is on its way.", least=16 * KIB)
    ] = 1 * MIB
    max_unsent_bytes: Annotated[
        int,
        key(
            "HTTP/2: answers of one connection that wait for the client's window; beyond it reads wait.", least=1 * MIB
        ),
    ] = 8 * MIB


_HostSuffix = Annotated[str, Meta(pattern="^[.].")]
_Origin = Annotated[str, Meta(pattern=r"^([*]|https?://[^/?#@*\sA-Z]+)\Z")]
_Host = Annotated[str, Meta(pattern=r"^([*]|([*][.])?[^/?#@:*\s]+)\Z")]


class S2Listener(ListenerTable, frozen=True, kw_only=True):
    """S2 over HTTP/1.1 and HTTP/2: S2S sessions, SSE, JSON and protobuf. Leave the table out to switch it off."""

    name: ListenerName = None
    bind: Annotated[str, key("HOST:PORT; [::1]:8080 for IPv6; port 0 lets the system choose.")] = "127.0.0.1:8080"
    default_basin: Annotated[str | None, key("Basin of requests that name none.", example="penstock")] = None
    basin_host_suffixes: Annotated[
        tuple[_HostSuffix, ...],
        key("A host `<basin><suffix>` names its basin, for browsers, whose EventSource cannot send headers."),
    ] = (".localhost",)
    cors_origins: Annotated[
        tuple[_Origin, ...],
        key(
            "Origins whose web pages may use it, as https://app.example:8443; * for any. Pages of other origins are "
            "refused."
        ),
    ] = ()
    hosts: Annotated[
        tuple[_Host, ...],
        key(
            "Host names that requests may use, beside localhost, addresses and basin_host_suffixes: a name, "
            "*.example.org, or * for any. Checked where clients need no token and there is no TLS, against DNS "
            "rebinding."
        ),
    ] = ()
    auth_tokens: Annotated[
        tuple[Token, ...], key("Bearer tokens, each good for everything; none, and no [access]: no authentication.")
    ] = ()
    anonymous: Anonymous = False
    sse_dialect: Annotated[
        Literal["s2", "seed"], key('"s2" is what S2 clients speak; "seed": colon ids, empty ping, `done` event.')
    ] = "s2"
    compress: Annotated[bool, key("Compress answers for clients that accept it.")] = True
    limits: S2Limits = S2Limits()

    def __post_init__(self) -> None:
        check_address("bind", self.bind)
        if self.default_basin is not None:
            check_basin("default_basin", self.default_basin)
        self.check_tls()


_Http = Annotated[
    Literal["auto", "h1", "h2"],
    key('"h1": HTTP/1.1; "h2": HTTP/2; "auto": what TLS agrees on, and HTTP/1.1 in plaintext.'),
]
_BasinStyle = Annotated[
    Literal["header", "host"],
    key('How requests name their basin. "header": s2-basin; "host": also as the first label of the host\'s name.'),
]
_BasinAuthority = Annotated[
    str | None,
    key('With basin_style = "host": what follows the basin\'s label; absent: the address.', example="b.s2.dev"),
]
_AUTHORITY: Final = re.compile(r"[A-Za-z0-9._-]+(:[0-9]+)?")


class _WithCredentials(BackTable, frozen=True, kw_only=True):
    """A server that may require authentication."""

    address: Annotated[str, key("HOST:PORT of the server.", example="127.0.0.1:8090")]
    credentials: Annotated[
        Literal["none", "static", "pass", "swap"],
        key(
            'The bearer token that it is sent. "static": the one given here; "pass": the client\'s own; "swap": the '
            "one that [backs.NAME.tokens] has for the client's identity, the one given here for those without any."
        ),
    ] = "none"
    token: Annotated[Token | None, key("The token; better in a file.", example="secret")] = None
    token_file: Annotated[
        str | None,
        key("File that holds the token, read at the start; blanks around it do not count.", example="token", path=True),
    ] = None
    tokens: Annotated[dict[str, Token], key("For each identity its token.", example={"analytics": "secret-2"})] = (
        msgspec.field(default_factory=dict)
    )

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
            raise ValueError("token and token_file say the same: give one of them")
        own = self.token is not None or self.token_file is not None
        if self.credentials == "static" and not own:
            raise ValueError('credentials = "static" needs token or token_file')
        if self.credentials == "swap" and not (self.tokens or own):
            raise ValueError('credentials = "swap" needs tokens')
        if own and self.credentials not in ("static", "swap"):
            raise ValueError(f'token and token_file are for credentials = "static" or "swap", not "{self.credentials}"')
        if self.tokens and self.credentials != "swap":
            raise ValueError(f'tokens are for credentials = "swap", not "{self.credentials}"')


class S2Back(_WithCredentials, frozen=True, kw_only=True, tag_field="kind", tag="s2"):
    """Another S2 server: S2S sessions for appends and reads, protobuf and JSON for the rest."""

    http: _Http = "auto"
    basin_style: _BasinStyle = "header"
    basin_authority: _BasinAuthority = None
    compression: Annotated[
        Literal["none", "zstd", "gzip"], key("What sessions and messages to the server are compressed with.")
    ] = "none"
    recover_seconds: Recover = 30.0
    delivery: Annotated[Literal["exactly-once", "at-least-once", "refuse"], key(LOST_ACK)] = "exactly-once"

    def __post_init__(self) -> None:
        self.check()


class S2SseBack(_WithCredentials, frozen=True, kw_only=True, tag_field="kind", tag="s2-sse"):
    """Another S2 server that is only read, over SSE, for example through proxies that let nothing else pass."""

    http: _Http = "auto"
    basin_style: _BasinStyle = "header"
    basin_authority: _BasinAuthority = None
    sse_dialect: Annotated[
        Literal["s2", "seed"], key('How the server spells events; "seed": as a listener with sse_dialect = "seed".')
    ] = "s2"
    recover_seconds: Recover = 30.0

    def __post_init__(self) -> None:
        self.check()
