"""Configuration table of Durable Streams; see docs/configuration.md."""

import re
from typing import Annotated, Final, Literal

from msgspec import Meta

from penstock.core.config_fields import DEFAULT_BASIN, Table, Token, check_address, check_basin, check_server, key
from penstock.model.failures import OperationFailed
from penstock.model.limits import KIB, MIB
from penstock.protocols.tables import (
    LOST_ACK,
    MAX_CONNECTIONS,
    STREAMS_BEFORE_AUTH,
    Anonymous,
    ListenerLimits,
    ListenerName,
    ListenerTable,
    LossTable,
    NumberedBackTable,
    Recover,
)
from penstock.wire.media_types import DEFAULT_TYPE, essence

__all__ = ["DurableBackLoss", "DurableBackTable", "DurableListener", "DurableListenerLimits", "DurableLoss"]

_Word = Literal["refuse", "drop"]
_Origin = Annotated[str, Meta(pattern=r"^([*]|https?://[^/?#@*\sA-Z]+)\Z")]
_Host = Annotated[str, Meta(pattern=r"^([*]|([*][.])?[^/?#@:*\s]+)\Z")]
_PREFIX: Final = re.compile("/([A-Za-z0-9._~-]+/)*")


class DurableListenerLimits(ListenerLimits, frozen=True, kw_only=True):
    """Limits of one listener of Durable Streams."""

    max_connections: Annotated[int, MAX_CONNECTIONS] = 10_000
    max_append_bytes: Annotated[int, key("Most bytes of one append's body.", least=1, most=1 * MIB - 8)] = 1 * MIB - 8
    max_read_bytes: Annotated[
        int,
        key(
            "Bytes of records after which an answer ends; the client reads on behind it. Every record must fit.",
            least=1 * MIB,
            most=8 * MIB,
        ),
    ] = 1 * MIB
    long_poll_seconds: Annotated[float, key("Time that a long poll waits for data.", least=0, most=300)] = 20.0
    event_stream_seconds: Annotated[
        float,
        key(
            "Time after which an event stream ends and its client reconnects, so that caches can join readers.", least=1
        ),
    ] = 60.0
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


class DurableLoss(LossTable, frozen=True, kw_only=True):
    """Treatment of records that Durable Streams cannot carry, when clients read them. "refuse": the read fails with an
    error that names the record; "drop": the headers, or the whole record, are left out."""

    headers: Annotated[_Word, key("Records with headers.")] = "refuse"
    empty_body: Annotated[_Word, key("Records with an empty body. Dropped, they add nothing to a stream of bytes.")] = (
        "drop"
    )
    command_records: Annotated[_Word, key("Command records: fence and trim.")] = "drop"


class DurableListener(ListenerTable, frozen=True, kw_only=True):
    """Durable Streams over HTTP/1.1 and HTTP/2. Omit the table to switch the listener off."""

    name: ListenerName = None
    bind: Annotated[str, key("Address, as HOST:PORT, or [::1]:4437 for IPv6; port 0 lets the system choose.")] = (
        "127.0.0.1:4437"
    )
    path: Annotated[str, key("Path under which streams are; it begins and ends with a slash.")] = "/v1/stream/"
    names: Annotated[
        Literal["fixed", "path"],
        key(
            'Meaning of what follows the path (docs/names.md). "fixed": the name of a stream of `basin`; "path": '
            "basin/stream."
        ),
    ] = "fixed"
    basin: Annotated[str, key('Basin of all streams, if names is "fixed".')] = DEFAULT_BASIN
    content_type: Annotated[
        str, key("Content type of streams that other clients than those of Durable Streams created.")
    ] = DEFAULT_TYPE
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
            "Host names that requests may use, besides localhost and addresses: a name, *.example.org, or * for any. "
            "They are checked, against DNS rebinding, if clients need no token and there is no TLS."
        ),
    ] = ()
    auth_tokens: Annotated[
        tuple[Token, ...],
        key("Bearer tokens, each of which permits everything; empty, and without [access]: no authentication."),
    ] = ()
    anonymous: Anonymous = False
    loss: DurableLoss = DurableLoss()
    limits: DurableListenerLimits = DurableListenerLimits()

    def __post_init__(self) -> None:
        check_address("bind", self.bind)
        check_basin("basin", self.basin)
        _check_prefix(self.path)
        try:
            essence(self.content_type)
        except OperationFailed as error:
            raise ValueError(error.failure.message) from None
        self.check_tls()


class DurableBackLoss(Table, frozen=True, kw_only=True):
    """Treatment of headers, when clients append records. "refuse": streams of records keep them, and an append to a
    stream of JSON fails; "drop": they are left out on streams of both kinds."""

    headers: Annotated[_Word, key("Records with headers.")] = "refuse"


class DurableBackTable(NumberedBackTable, frozen=True, kw_only=True, tag_field="kind", tag="durable"):
    """A server of Durable Streams. The gateway counts its records, and keeps the numbers in the embedded store. It uses
    streams of JSON, and streams of its own content type; it leaves other streams of bytes alone."""

    address: Annotated[str, key("HOST:PORT of the server.", example="127.0.0.1:4438")]
    path: Annotated[str, key("Path under which the server has streams; it begins and ends with a slash.")] = (
        "/v1/stream/"
    )
    names: Annotated[
        Literal["fixed", "path"],
        key(
            'Names of streams on the server, behind the path (docs/names.md). "fixed": a stream of `basin` has its own '
            'name; "path": basin/stream.'
        ),
    ] = "fixed"
    basin: Annotated[str, key('Basin of all streams on the server, if names is "fixed".')] = DEFAULT_BASIN
    http: Annotated[
        Literal["auto", "h1", "h2"],
        key(
            'Version of HTTP. "h1": HTTP/1.1; "h2": HTTP/2; "auto": the version that TLS negotiates, or HTTP/1.1 '
            "without TLS."
        ),
    ] = "auto"
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
    create_as: Annotated[
        Literal["records", "json"],
        key(
            'Content of streams that the gateway creates. "records": any records, with headers, in the content type '
            'application/vnd.penstock.records; "json": application/json, which takes records that are JSON and, '
            "unless loss drops headers, have none."
        ),
    ] = "records"
    max_append_bytes: Annotated[
        int,
        key(
            "Largest body of a request that the server takes. A record takes some 8 bytes more than its body.",
            least=16,
            most=8 * MIB,
        ),
    ] = 2 * MIB
    recover_seconds: Recover = 30.0
    delivery: Annotated[Literal["exactly-once", "at-least-once", "refuse"], key(LOST_ACK)] = "exactly-once"
    loss: DurableBackLoss = DurableBackLoss()

    def __post_init__(self) -> None:
        self.check()
        check_server("address", self.address)
        check_basin("basin", self.basin)
        _check_prefix(self.path)
        if self.token is not None and self.token_file is not None:
            raise ValueError("token and token_file exclude each other: give one of them")


def _check_prefix(path: str) -> None:
    if _PREFIX.fullmatch(path) is None:
        raise ValueError(f"path: expected a path such as /v1/stream/, got {path!r:.80}")
