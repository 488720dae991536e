"""Configuration tables of S3P; see docs/configuration.md."""

from __future__ import annotations

from typing import Annotated, Literal

from penstock.core.config_fields import DEFAULT_BASIN, Table, check_address, check_basin, check_server, key
from penstock.protocols.tables import (
    LOST_ACK,
    MAX_CONNECTIONS,
    Anonymous,
    CommandLossWord,
    ListenerLimits,
    ListenerName,
    ListenerTable,
    LossTable,
    LossWord,
    NumberedBackTable,
)
from penstock_codecs.limits import MIB

__all__ = ["S3PBack", "S3PBackLimits", "S3PBackLoss", "S3PLimits", "S3PListener", "S3PLoss"]


class S3PLimits(ListenerLimits, frozen=True, kw_only=True):
    """Limits of one S3P listener. A command over these limits is answered ERR_LIMITS."""

    max_connections: Annotated[int, MAX_CONNECTIONS] = 10_000
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


class S3PLoss(LossTable, frozen=True, kw_only=True):
    """Reads of records that S3P cannot carry: "refuse" fails the READ with an error that names the record, "envelope"
    carries the whole record inside the body (docs/loss.md), "drop" leaves out what cannot be carried."""

    headers: Annotated[LossWord, key("Records with headers.")] = "refuse"
    empty_body: Annotated[LossWord, key("Records with an empty body.")] = "refuse"
    command_records: Annotated[LossWord, key("Records that command the stream: fence, trim.")] = "drop"


class S3PListener(ListenerTable, frozen=True, kw_only=True):
    """S3P 0.2.0 over TCP or TLS. Leave the table out to switch it off."""

    name: ListenerName = None
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


class S3PBackLoss(LossTable, frozen=True, kw_only=True):
    """Appends of records that S3P cannot carry: "refuse" fails the append, "envelope" carries the whole record inside
    the body (docs/loss.md), "drop" leaves out what cannot be carried."""

    headers: Annotated[LossWord, key("Records with headers; dropped: their bodies are appended without.")] = "refuse"
    empty_body: Annotated[
        CommandLossWord, key("Records with an empty body. They cannot be left out: an acknowledgement counts them.")
    ] = "refuse"
    command_records: Annotated[
        CommandLossWord, key("Records that command the stream. They cannot be left out either.")
    ] = "refuse"


class S3PBackLimits(Table, frozen=True, kw_only=True):
    """Limits of the S3P server. The gateway never sends more."""

    max_records_per_append: Annotated[int, key("Most records of one APPEND.", least=1, most=1000)] = 1000
    max_record_bytes: Annotated[int, key("Largest record.", least=1, most=1 * MIB)] = 1 * MIB - 8
    max_append_bytes: Annotated[int, key("Most bytes of the records of one APPEND.", least=1, most=1 * MIB)] = 1 * MIB


class S3PBack(NumberedBackTable, frozen=True, kw_only=True, tag_field="kind", tag="s3p"):
    """An S3P server. The gateway numbers its records, and keeps the numbers in the embedded store."""

    address: Annotated[str, key("HOST:PORT of the server.", example="127.0.0.1:7600")]
    names: Annotated[
        Literal["fixed", "path"],
        key('"fixed": a stream of `basin` has its own name there; "path": basin/stream (docs/names.md).'),
    ] = "fixed"
    basin: Annotated[str, key('Basin whose streams the server has where names is "fixed".')] = DEFAULT_BASIN
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
    delivery: Annotated[Literal["at-least-once", "refuse"], key(LOST_ACK)] = "refuse"
    loss: S3PBackLoss = S3PBackLoss()
    limits: S3PBackLimits = S3PBackLimits()

    def __post_init__(self) -> None:
        self.check()
        check_server("address", self.address)
        check_basin("basin", self.basin)
