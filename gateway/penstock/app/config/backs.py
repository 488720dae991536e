"""Configuration of the servers behind the gateway; see `penstock.app.config.schema` and docs/routes.md."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from penstock.core.address import Address
from penstock.core.config_fields import DEFAULT_BASIN, Table, Token, check_basin, check_server, check_tls, key
from penstock_codecs.limits import MIB

__all__ = [
    "BACK_KINDS",
    "EMBEDDED",
    "BackTable",
    "S2Back",
    "S2SseBack",
    "S3PBack",
    "S3PBackLimits",
    "S3PBackLoss",
    "SegmentBack",
    "SegmentBackLoss",
]

EMBEDDED = "embedded"
"""Name of the back that always exists: the store in this process."""

_Delivery = Literal["exactly-once", "at-least-once", "refuse"]
_AtBest = Literal["at-least-once", "refuse"]
_Loss = Literal["refuse", "envelope", "drop"]
_CommandLoss = Literal["refuse", "envelope"]
_Recover = Annotated[
    float, key("How long what was under way when a server was lost waits for it before it fails.", least=0)
]
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
_Exclusive = Annotated[
    bool,
    key(
        "Whether this gateway alone appends to the server's streams and trims them; then nobody else's records are "
        "looked for before an append is acknowledged."
    ),
]
_CreateStreams = Annotated[
    bool, key("Whether an append to a stream that is missing creates it, where its client allows that.")
]
_AUTHORITY = re.compile(r"[A-Za-z0-9._-]+(:[0-9]+)?")
_LOST_ACK = "What is done with an append whose acknowledgement got lost (docs/guarantees.md)."


class Upstream(Table, frozen=True, kw_only=True):
    """Connections to a server; the keys that all kinds of backs have."""

    tls: Annotated[bool, key("Whether the server is spoken to over TLS.")] = False
    tls_ca: Annotated[
        str | None,
        key(
            "PEM file with the authorities that may have signed its certificate; absent: the system's.",
            example="ca.pem",
            path=True,
        ),
    ] = None
    tls_server_name: Annotated[
        str | None,
        key("Name that its certificate must have; absent: the host of its address.", example="store.example"),
    ] = None
    tls_certificate: Annotated[
        str | None,
        key("PEM file with a certificate that the gateway shows to the server.", example="client.pem", path=True),
    ] = None
    tls_key: Annotated[
        str | None,
        key("PEM file with its private key; goes with tls_certificate.", example="client-key.pem", path=True),
    ] = None
    connect_seconds: Annotated[float, key("To connect, the TLS handshake included.", least=0.01)] = 3.0
    request_seconds: Annotated[
        float, key("For an answer, and for an acknowledgement; reads that follow a stream may wait longer.", least=0.01)
    ] = 5.0
    idle_seconds: Annotated[float, key("A connection that nobody used for so long is closed.", least=1)] = 60.0
    max_connections: Annotated[
        int,
        key(
            "Connections at once; who needs one more waits its turn. Over HTTP/1.1 and S3P, and for appends to "
            "segments, each session has one of its own.",
            least=1,
        ),
    ] = 1000
    recover_seconds: _Recover = 10.0
    breaker_failures: Annotated[
        int,
        key(
            "So many failures in a row to connect, or requests in a row that are not answered in time, open the "
            "circuit: requests then fail at once.",
            least=1,
        ),
    ] = 5
    breaker_open_seconds: Annotated[
        float, key("How long the circuit stays open before one request is let through.", least=0.01)
    ] = 1.0

    def check(self) -> None:
        """Raise ValueError for keys that do not go together."""
        check_tls(self.tls_certificate, self.tls_key)
        given = [name for name in ("tls_ca", "tls_server_name", "tls_certificate") if getattr(self, name) is not None]
        if given and not self.tls:
            raise ValueError(f"{given[0]} is for TLS: say tls = true, or leave it out")


class _WithCredentials(Upstream, frozen=True, kw_only=True):
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
    recover_seconds: _Recover = 30.0
    delivery: Annotated[_Delivery, key(_LOST_ACK)] = "exactly-once"

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
    recover_seconds: _Recover = 30.0

    def __post_init__(self) -> None:
        self.check()


class S3PBackLoss(Table, frozen=True, kw_only=True):
    """Appends of records that S3P cannot carry: "refuse" fails the append, "envelope" carries the whole record inside
    the body (docs/loss.md), "drop" leaves out what cannot be carried."""

    headers: Annotated[_Loss, key("Records with headers; dropped: their bodies are appended without.")] = "refuse"
    empty_body: Annotated[
        _CommandLoss, key("Records with an empty body. They cannot be left out: an acknowledgement counts them.")
    ] = "refuse"
    command_records: Annotated[
        _CommandLoss, key("Records that command the stream. They cannot be left out either.")
    ] = "refuse"


class S3PBackLimits(Table, frozen=True, kw_only=True):
    """Limits of the S3P server. The gateway never sends more."""

    max_records_per_append: Annotated[int, key("Most records of one APPEND.", least=1, most=1000)] = 1000
    max_record_bytes: Annotated[int, key("Largest record.", least=1, most=1 * MIB)] = 1 * MIB - 8
    max_append_bytes: Annotated[int, key("Most bytes of the records of one APPEND.", least=1, most=1 * MIB)] = 1 * MIB


class S3PBack(Upstream, frozen=True, kw_only=True, tag_field="kind", tag="s3p"):
    """An S3P server. The gateway numbers its records, and keeps the numbers in the embedded store."""

    address: Annotated[str, key("HOST:PORT of the server.", example="127.0.0.1:7600")]
    names: Annotated[
        Literal["fixed", "path"],
        key('"fixed": a stream of `basin` has its own name there; "path": basin/stream (docs/names.md).'),
    ] = "fixed"
    basin: Annotated[str, key('Basin whose streams the server has where names is "fixed".')] = DEFAULT_BASIN
    exclusive: _Exclusive = False
    create_streams: _CreateStreams = False
    split_appends: Annotated[
        bool,
        key(
            "Whether a batch that is larger than one APPEND may be goes in several, which are not applied together; "
            "else it is refused."
        ),
    ] = False
    trim_keeps_last: Annotated[
        bool,
        key(
            "Trimming all records leaves the last one at the server, unseen by the gateway's clients: for servers that "
            "forget with it which identifier was the last, as the Go reference does."
        ),
    ] = False
    delivery: Annotated[_AtBest, key(_LOST_ACK)] = "refuse"
    loss: S3PBackLoss = S3PBackLoss()
    limits: S3PBackLimits = S3PBackLimits()

    def __post_init__(self) -> None:
        self.check()
        check_server("address", self.address)
        check_basin("basin", self.basin)


class SegmentBackLoss(Table, frozen=True, kw_only=True):
    """Appends of records that an event cannot carry: "refuse" fails the append, "envelope" makes an event of the whole
    record (docs/loss.md), "drop" leaves out what cannot be carried."""

    headers: Annotated[_Loss, key("Records with headers; dropped: their bodies are appended without.")] = "refuse"
    empty_body: Annotated[
        Literal["refuse", "envelope", "keep"],
        key('Records with an empty body; "keep": as an event without bytes, at which Pravega\'s Python client stops.'),
    ] = "refuse"
    command_records: Annotated[
        _CommandLoss, key("Records that command the stream. They cannot be left out: an acknowledgement counts them.")
    ] = "refuse"


class SegmentBack(Upstream, frozen=True, kw_only=True, tag_field="kind", tag="segment"):
    """A segment store: Pravega's, or any that speaks its protocol. The gateway numbers its records, and keeps the
    numbers in the embedded store."""

    address: Annotated[
        str | None,
        key("HOST:PORT of the segment store; absent: the controller says it.", example="127.0.0.1:12346", usual=True),
    ] = None
    controller: Annotated[
        str | None, key("HOST:PORT of its controller, which creates streams and finds them.", example="127.0.0.1:9091")
    ] = None
    dialect: Annotated[
        Literal["released", "draft"], key("Pravega's released protocol, or the draft, which knows no controller.")
    ] = "released"
    basin: Annotated[str, key("Basin that holds the streams of scopes whose names are no basins' (docs/names.md).")] = (
        DEFAULT_BASIN
    )
    exclusive: _Exclusive = False
    create_streams: _CreateStreams = False
    username: Annotated[
        str | None, key("Who the gateway is to the controller (Basic); absent: nobody.", example="penstock")
    ] = None
    password_file: Annotated[
        str | None,
        key("File that holds its password, read at the start; goes with username.", example="password", path=True),
    ] = None
    delivery: Annotated[_Delivery, key(_LOST_ACK)] = "exactly-once"
    loss: SegmentBackLoss = SegmentBackLoss()

    def __post_init__(self) -> None:
        self.check()
        check_basin("basin", self.basin)
        if self.address is None and self.controller is None:
            raise ValueError("give address, the segment store's, or controller, or both")
        if (self.username is None) != (self.password_file is None):
            raise ValueError("username and password_file go together: give both or neither")
        if self.username is not None and self.controller is None:
            raise ValueError("username is for the controller, and none is given")
        if self.dialect == "draft" and self.controller is not None:
            raise ValueError("the draft knows no controller: leave it out")
        for name, text in (("address", self.address), ("controller", self.controller)):
            if text is not None:
                check_server(name, text)

    @property
    def named(self) -> str:
        """The address to show to people: the controller's if there is one, else the segment store's."""
        return str(Address.parse(self.controller or self.address or ""))


BackTable = S2Back | S2SseBack | S3PBack | SegmentBack
"""`[backs.NAME]`; `kind` selects the struct."""

BACK_KINDS: dict[str, type[BackTable]] = {"s2": S2Back, "s2-sse": S2SseBack, "s3p": S3PBack, "segment": SegmentBack}
"""The struct of each kind."""
