"""Configuration tables of S3P; see docs/configuration.md."""

from typing import Annotated, Literal

from penstock.core.config_fields import DEFAULT_BASIN, Table, check_address, check_basin, check_server, key
from penstock.model.limits import MIB
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

__all__ = ["S3PBackLimits", "S3PBackLoss", "S3PBackTable", "S3PListener", "S3PListenerLimits", "S3PLoss"]


class S3PListenerLimits(ListenerLimits, frozen=True, kw_only=True):
    """Limits of one S3P listener. A command that exceeds one of them is answered with ERR_LIMITS."""

    max_connections: Annotated[int, MAX_CONNECTIONS] = 10_000
    max_name_bytes: Annotated[int, key("Longest name of a stream, in bytes.", least=1, most=512)] = 256
    max_records_per_append: Annotated[int, key("Most records in one APPEND.", least=1, most=1000)] = 1000
    max_record_bytes: Annotated[int, key("Largest record, in bytes.", least=1, most=1 * MIB - 8)] = 1 * MIB - 8
    max_append_bytes: Annotated[int, key("Most bytes of all records in one APPEND.", least=1, most=1 * MIB)] = 1 * MIB
    default_count: Annotated[int, key("Most records that a READ without COUNT returns.", least=1)] = 1000
    max_count: Annotated[int, key("Largest COUNT of a READ.", least=1)] = 1000
    max_read_bytes: Annotated[
        int, key("Most bytes of records that one READ returns, whatever its COUNT.", least=1 * MIB)
    ] = 2 * MIB
    max_block_ms: Annotated[int, key("Longest BLOCK of a READ, in milliseconds.", least=0)] = 10_000
    max_option_pairs: Annotated[int, key("Most options in one command.", least=4)] = 64
    max_option_bytes: Annotated[int, key("Longest command name, option key or option value, in bytes.", least=41)] = 256
    idle_timeout_seconds: Annotated[
        float, key("Time after which a client is disconnected if it sends no command.", least=1)
    ] = 300.0
    send_timeout_seconds: Annotated[
        float, key("Time after which a client is disconnected if it accepts none of its replies.", least=1)
    ] = 30.0

    def __post_init__(self) -> None:
        if self.default_count > self.max_count:
            raise ValueError(f"default_count: {self.default_count} is more than max_count, {self.max_count}")


class S3PLoss(LossTable, frozen=True, kw_only=True):
    """Treatment of records that S3P cannot carry, when clients read them. "refuse": the READ fails with an error that
    names the record; "envelope": the body contains the whole record (docs/loss.md); "drop": the headers, or the whole
    record, are left out."""

    headers: Annotated[LossWord, key("Records with headers.")] = "refuse"
    empty_body: Annotated[LossWord, key("Records with an empty body.")] = "refuse"
    command_records: Annotated[LossWord, key("Command records: fence and trim.")] = "drop"


class S3PListener(ListenerTable, frozen=True, kw_only=True):
    """S3P 0.2.0 over TCP or TLS. Omit the table to switch the listener off."""

    name: ListenerName = None
    bind: Annotated[str, key("Address, as HOST:PORT, or [::1]:7500 for IPv6; port 0 lets the system choose.")] = (
        "127.0.0.1:7500"
    )
    names: Annotated[
        Literal["fixed", "path"],
        key(
            'Meaning of S3P names (docs/names.md). "fixed": the whole name is that of a stream of `basin`; "path": '
            "the name is basin/stream."
        ),
    ] = "fixed"
    basin: Annotated[str, key('Basin of all streams, if names is "fixed".')] = DEFAULT_BASIN
    anonymous: Anonymous = False
    loss: S3PLoss = S3PLoss()
    limits: S3PListenerLimits = S3PListenerLimits()

    def __post_init__(self) -> None:
        check_address("bind", self.bind)
        check_basin("basin", self.basin)
        self.check_tls()


class S3PBackLoss(LossTable, frozen=True, kw_only=True):
    """Treatment of records that S3P cannot carry, when clients append them. "refuse": the append fails; "envelope": the
    body contains the whole record (docs/loss.md); "drop": the headers are left out."""

    headers: Annotated[LossWord, key("Records with headers.")] = "refuse"
    empty_body: Annotated[
        CommandLossWord,
        key("Records with an empty body. They cannot be dropped, because an acknowledgement counts them."),
    ] = "refuse"
    command_records: Annotated[
        CommandLossWord, key("Command records: fence and trim. They cannot be dropped either.")
    ] = "refuse"


class S3PBackLimits(Table, frozen=True, kw_only=True):
    """Limits of the S3P server. The gateway never sends more than they allow."""

    max_records_per_append: Annotated[int, key("Most records in one APPEND.", least=1, most=1000)] = 1000
    max_record_bytes: Annotated[int, key("Largest record, in bytes.", least=1, most=1 * MIB)] = 1 * MIB - 8
    max_append_bytes: Annotated[int, key("Most bytes of all records in one APPEND.", least=1, most=1 * MIB)] = 1 * MIB


class S3PBackTable(NumberedBackTable, frozen=True, kw_only=True, tag_field="kind", tag="s3p"):
    """An S3P server. The gateway assigns sequence numbers to its records, and keeps them in the embedded store."""

    address: Annotated[str, key("HOST:PORT of the server.", example="127.0.0.1:7600")]
    names: Annotated[
        Literal["fixed", "path"],
        key(
            'Names of streams on the server (docs/names.md). "fixed": a stream of `basin` has its own name; '
            '"path": basin/stream.'
        ),
    ] = "fixed"
    basin: Annotated[str, key('Basin of all streams on the server, if names is "fixed".')] = DEFAULT_BASIN
    split_appends: Annotated[
        bool,
        key(
            "Send a batch that is too large for one APPEND as several, which are not stored together as one; "
            "false: such a batch is refused."
        ),
    ] = False
    trim_keeps_last: Annotated[
        bool,
        key(
            "Keep the last record on the server, hidden from clients, when all records are trimmed. It is for "
            "servers that would otherwise forget the last identifier, as the Go reference does."
        ),
    ] = False
    delivery: Annotated[Literal["at-least-once", "refuse"], key(LOST_ACK)] = "refuse"
    loss: S3PBackLoss = S3PBackLoss()
    limits: S3PBackLimits = S3PBackLimits()

    def __post_init__(self) -> None:
        self.check()
        check_server("address", self.address)
        check_basin("basin", self.basin)
