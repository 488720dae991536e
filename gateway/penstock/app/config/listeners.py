"""Configuration of the listeners; see `penstock.app.config.schema`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from penstock.app.config.access import Anonymous
from penstock.app.config.tls import TlsListener
from penstock.core.address import Address
from penstock.core.config_fields import DEFAULT_BASIN, ONE_OR_MORE, Table, Token, check_address, check_basin, key
from penstock_codecs.limits import KIB, MIB, SEGMENT_MAX_LENGTH

__all__ = [
    "AnyListener",
    "ControllerLimits",
    "ControllerListener",
    "Listeners",
    "S2Limits",
    "S2Listener",
    "S3PLimits",
    "S3PListener",
    "S3PLoss",
    "SegmentLimits",
    "SegmentListener",
    "SegmentLoss",
]

_Name = Annotated[
    Annotated[str, Meta(pattern="^[a-z0-9-]+$")] | None,
    key("What tells it from others of its kind, which [[listeners.KIND]] makes room for.", example="public"),
]
_MAX_CONNECTIONS = key(
    "Connections at once. One more closes the one that has been at rest longest; where none is at rest it is refused.",
    least=1,
)
_MANY = 10_000
_BEFORE_AUTH = key("HTTP/2: the same until the first that is not refused for want of authentication.", least=1)


class S2Limits(Table, frozen=True, kw_only=True):
    """Limits of one S2 listener. Sizes are per connection."""

    max_connections: Annotated[int, _MAX_CONNECTIONS] = _MANY
    keep_alive_seconds: Annotated[
        float, key("A connection without a request under way is closed after this.", least=1)
    ] = 120.0
    head_timeout_seconds: Annotated[float, key("A request head must be complete within this.", least=0.1)] = 30.0
    slow_reader_seconds: Annotated[
        float, key("A client that takes nothing for this long, while there is something for it, is cut off.", least=1)
    ] = 60.0
    max_head_bytes: Annotated[int, key("Largest request line with all its headers.", least=4 * KIB)] = 64 * KIB
    max_streams: Annotated[int, key("HTTP/2: requests at once on one connection.", least=1)] = 1000
    max_streams_before_auth: Annotated[int, _BEFORE_AUTH] = 100
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


class S2Listener(TlsListener, frozen=True, kw_only=True):
    """S2 over HTTP/1.1 and HTTP/2: S2S sessions, SSE, JSON and protobuf. Leave the table out to switch it off."""

    name: _Name = None
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


class S3PLimits(Table, frozen=True, kw_only=True):
    """Limits of one S3P listener. A command over these limits is answered ERR_LIMITS."""

    max_connections: Annotated[int, _MAX_CONNECTIONS] = _MANY
    max_name_bytes: Annotated[int, key("Longest stream name.", least=1, most=512)] = 256
    max_records_per_append: Annotated[int, key("Most records of one APPEND.", least=1, most=1000)] = 1000
    max_record_bytes: Annotated[int, key("Largest record.", least=1, most=1 * MIB - 8)] = 1 * MIB - 8
    max_append_bytes: Annotated[int, key("Most bytes of the records of one APPEND.", least=1, most=1 * MIB)] = 1 * MIB
    default_count: Annotated[int, key("Most records that a READ without COUNT gives.", least=1)] = 1000
    max_count: Annotated[int, key("Largest COUNT of a READ.", least=1)] = 1000
    max_read_bytes: Annotated[
        int, key("Most bytes of records that one READ gives, whatever its COUNT.", least=1 * MIB)
    ] = 2 * MIB
    max_block_ms: Annotated[int, key("Longest BLOCK of a READ, in milliseconds.", least=0)] = 10_000
    max_option_pairs: Annotated[int, key("Most options of one command.", least=4)] = 64
    max_option_bytes: Annotated[int, key("Longest command name, option key or option value.", least=41)] = 256
    idle_timeout_seconds: Annotated[
        float, key("A client that sends nothing for this long, while a command is awaited, is cut off.", least=1)
    ] = 300.0
    send_timeout_seconds: Annotated[
        float, key("A client that takes none of its replies for this long is cut off.", least=1)
    ] = 30.0

    def __post_init__(self) -> None:
        if self.default_count > self.max_count:
            raise ValueError(f"default_count: {self.default_count} is more than max_count, {self.max_count}")


_Loss = Literal["refuse", "envelope", "drop"]


class S3PLoss(Table, frozen=True, kw_only=True):
    """Reads of records that S3P cannot carry: "refuse" fails the READ with an error that names the record, "envelope"
    carries the whole record inside the body (docs/loss.md), "drop" leaves out what cannot be carried."""

    headers: Annotated[_Loss, key("Records with headers.")] = "refuse"
    empty_body: Annotated[_Loss, key("Records with an empty body.")] = "refuse"
    command_records: Annotated[_Loss, key("Records that command the stream: fence, trim.")] = "drop"


class S3PListener(TlsListener, frozen=True, kw_only=True):
    """S3P 0.2.0 over TCP or TLS. Leave the table out to switch it off."""

    name: _Name = None
    bind: Annotated[str, key("HOST:PORT; [::1]:7500 for IPv6; port 0 lets the system choose.")] = "127.0.0.1:7500"
    names: Annotated[
        Literal["fixed", "path"],
        key('"fixed": the whole name is a stream of `basin`; "path": names are basin/stream (docs/names.md).'),
    ] = "fixed"
    basin: Annotated[str, key('Basin that holds the streams where names is "fixed".')] = DEFAULT_BASIN
    anonymous: Anonymous = False
    loss: S3PLoss = S3PLoss()
    limits: S3PLimits = S3PLimits()

    def __post_init__(self) -> None:
        check_address("bind", self.bind)
        check_basin("basin", self.basin)
        self.check_tls()


class SegmentLimits(Table, frozen=True, kw_only=True):
    """Limits of one segment listener. The defaults suit Pravega's own clients, Java and Python."""

    max_connections: Annotated[int, _MAX_CONNECTIONS] = _MANY
    max_message_bytes: Annotated[
        int,
        key(
            "Largest message of a client, without its header. The Python client sends events of up to 8 MiB in one.",
            least=64 * KIB,
            most=SEGMENT_MAX_LENGTH,
        ),
    ] = SEGMENT_MAX_LENGTH
    max_writers: Annotated[int, key("Most writers that are set up on one connection.", least=1)] = 10_000
    max_read_bytes: Annotated[
        int, key("Most bytes that one read gives, whatever the client suggests.", least=4 * KIB, most=8 * MIB)
    ] = 2 * MIB
    read_hold_seconds: Annotated[
        float,
        key(
            "A read at the end of a segment waits this long for more before it is answered without any. "
            "Clients give up after 30.",
            least=1,
            most=120,
        ),
    ] = 20.0
    idle_timeout_seconds: Annotated[
        float,
        key(
            "A client that sends nothing for this long, while nothing is under way for it, is cut off. Clients keep "
            "connections for later.",
            least=1,
        ),
    ] = 3600.0
    send_timeout_seconds: Annotated[
        float, key("A client that takes none of its replies for this long is cut off.", least=1)
    ] = 30.0


class SegmentLoss(Table, frozen=True, kw_only=True):
    """Reads of records that are not events: "refuse" fails the read at such a record, "envelope" makes an event of the
    whole record (docs/loss.md), "drop" leaves out what cannot be carried. A record's bytes are fixed when it is
    appended, since byte offsets never change: "envelope" applies to records appended from then on, and records
    enveloped before stay so."""

    headers: Annotated[_Loss, key("Records with headers.")] = "refuse"
    empty_body: Annotated[
        _Loss, key("Records with an empty body; an event without any bytes stops Pravega's Python client for ever.")
    ] = "drop"
    command_records: Annotated[_Loss, key("Records that command the stream: fence, trim.")] = "drop"


class SegmentListener(TlsListener, frozen=True, kw_only=True):
    """Pravega's segment store protocol over TCP or TLS: wire versions 5 to 16, and the draft. Clients of Pravega find
    it through the controller. Leave the table out to switch it off."""

    name: _Name = None
    bind: Annotated[str, key("HOST:PORT; [::1]:12345 for IPv6; port 0 lets the system choose.")] = "127.0.0.1:12345"
    basin: Annotated[str, key("Basin that holds the streams of scopes whose names are no basins' (docs/names.md).")] = (
        DEFAULT_BASIN
    )
    delegation_tokens: Annotated[
        bool,
        key(
            "Requests need a delegation token. The controllers of this listener give it to clients that show the "
            "username and password of one of the [[identities]], which all their calls then need (docs/access.md)."
        ),
    ] = False
    delegation_token_seconds: Annotated[int, key("How long one is good for.", least=10, most=86_400)] = 600
    delegation_key_file: Annotated[
        str | None,
        key(
            "The key that they are signed with, at least 32 bytes; absent: delegation.key in store.directory, which is "
            "made where it is missing.",
            example="delegation.key",
            path=True,
        ),
    ] = None
    anonymous: Anonymous = False
    loss: SegmentLoss = SegmentLoss()
    limits: SegmentLimits = SegmentLimits()

    def __post_init__(self) -> None:
        check_address("bind", self.bind)
        check_basin("basin", self.basin)
        self.check_tls()


class ControllerLimits(Table, frozen=True, kw_only=True):
    """Limits of one controller."""

    max_connections: Annotated[int, _MAX_CONNECTIONS] = _MANY
    keep_alive_seconds: Annotated[
        float, key("A connection without a call under way is closed after this.", least=1)
    ] = 3600.0
    head_timeout_seconds: Annotated[float, key("The head of a call must be complete within this.", least=0.1)] = 30.0
    slow_reader_seconds: Annotated[
        float, key("A client that takes nothing for this long, while there is something for it, is cut off.", least=1)
    ] = 60.0
    max_streams: Annotated[int, key("Calls at once on one connection.", least=1)] = 1000
    max_streams_before_auth: Annotated[int, _BEFORE_AUTH] = 100


class ControllerListener(TlsListener, frozen=True, kw_only=True):
    """Pravega's controller, gRPC over HTTP/2: scopes, streams, and the location of their segments, which is always the
    segment listener. Leave the table out to switch it off."""

    name: _Name = None
    segment_listener: Annotated[
        str | None,
        key("Name of the segment listener that it sends its clients to; absent: the first one.", example="public"),
    ] = None
    bind: Annotated[str, key("HOST:PORT; [::1]:9090 for IPv6; port 0 lets the system choose.")] = "127.0.0.1:9090"
    advertise: Annotated[
        str | None,
        key(
            "HOST:PORT of the segment listener as clients reach it; absent: the host by which they reached the "
            "controller, and the port that the segment listener is bound to.",
            example="gateway.example:12345",
        ),
    ] = None
    segments: Annotated[
        Literal["separate", "single", "refuse"],
        key(
            'What becomes of a stream that is to have several segments. "separate": each is a stream of its own, and '
            'order holds within it only; "single": it has one all the same, one order for all protocols; "refuse": it '
            "is not created."
        ),
    ] = "separate"
    anonymous: Anonymous = False
    limits: ControllerLimits = ControllerLimits()

    def __post_init__(self) -> None:
        check_address("bind", self.bind)
        self.check_tls()
        if self.advertise is not None:
            check_address("advertise", self.advertise)
            if Address.parse(self.advertise).port == 0:
                raise ValueError(f"advertise: clients cannot connect to port 0, got {self.advertise!r}")


S2Listeners = Annotated[tuple[S2Listener, ...], ONE_OR_MORE]
S3PListeners = Annotated[tuple[S3PListener, ...], ONE_OR_MORE]
SegmentListeners = Annotated[tuple[SegmentListener, ...], ONE_OR_MORE]
ControllerListeners = Annotated[tuple[ControllerListener, ...], ONE_OR_MORE]
AnyListener = S2Listener | S3PListener | SegmentListener | ControllerListener


class Listeners(Table, frozen=True, kw_only=True):
    """Listeners for clients; a protocol without a table is off."""

    s2: S2Listeners = ()
    s3p: S3PListeners = ()
    segment: SegmentListeners = ()
    controller: ControllerListeners = ()

    def __post_init__(self) -> None:
        if self.controller and not self.segment:
            raise ValueError("[listeners.controller] needs [listeners.segment], which is where it sends its clients")
        labels = [label for label, _ in self.labelled()]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"there are several listeners {label}: give each a name of its own")
        for controller in self.controller:
            self.segment_of(controller)

    def labelled(self) -> Iterator[tuple[str, AnyListener]]:
        """Yield every listener with its label in routes: its kind, and its name if it has one (`s2`, `s2.public`)."""
        for kind in self.__struct_fields__:
            for listener in getattr(self, kind):
                yield f"{kind}.{listener.name}" if listener.name else kind, listener

    def segment_of(self, controller: ControllerListener) -> SegmentListener:
        """Return the segment listener that a controller sends its clients to. Raises ValueError if there is none."""
        wanted = controller.segment_listener
        found = [one for one in self.segment if wanted is None or one.name == wanted]
        if not found:
            raise ValueError(f"segment_listener: there is no segment listener {wanted!r}")
        return found[0]
