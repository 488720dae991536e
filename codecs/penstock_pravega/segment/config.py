"""Configuration tables of the segment protocol; see docs/configuration.md."""

from typing import Annotated, Literal

from penstock.core.address import Address
from penstock.core.config_fields import DEFAULT_BASIN, check_address, check_basin, check_server, key
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.failures import OperationFailed
from penstock.model.limits import KIB, MIB
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
from penstock.routing.loss.loss import Loss, LossPolicy
from penstock_pravega.segment.names import SegmentNames

__all__ = ["SegmentBackLoss", "SegmentBackTable", "SegmentListener", "SegmentListenerLimits", "SegmentLoss"]


class SegmentListenerLimits(ListenerLimits, frozen=True, kw_only=True):
    """Limits of one segment listener. The defaults suit Pravega's own clients, Java and Python."""

    max_connections: Annotated[int, MAX_CONNECTIONS] = 10_000
    max_message_bytes: Annotated[
        int,
        key(
            "Largest message of a client, in bytes without its header. The Python client sends events of up to 8 "
            "MiB in one message.",
            least=64 * KIB,
            most=16 * MIB - 1,
        ),
    ] = 16 * MIB - 1
    max_writers: Annotated[int, key("Most writers on one connection.", least=1)] = 10_000
    max_read_bytes: Annotated[
        int, key("Most bytes that one read returns, whatever the client suggests.", least=4 * KIB, most=8 * MIB)
    ] = 2 * MIB
    read_hold_seconds: Annotated[
        float,
        key(
            "Time that a read at the end of a segment waits for data before it is answered without any. Clients "
            "give up after 30 s.",
            least=1,
            most=120,
        ),
    ] = 20.0
    idle_timeout_seconds: Annotated[
        float,
        key(
            "Time after which a client is disconnected if it sends nothing and no operation is in progress. "
            "Clients keep idle connections for later use.",
            least=1,
        ),
    ] = 3600.0
    send_timeout_seconds: Annotated[
        float, key("Time after which a client is disconnected if it accepts none of its replies.", least=1)
    ] = 30.0


class SegmentLoss(LossTable, frozen=True, kw_only=True):
    """Treatment of records that an event cannot carry, when clients read them. "refuse": the read fails at such a
    record; "envelope": the event contains the whole record (docs/loss.md); "drop": the headers, or the whole record,
    are left out. A record's bytes are fixed when it is appended, since byte offsets never change: "envelope" applies to
    records that are appended from then on, and earlier envelopes remain."""

    headers: Annotated[LossWord, key("Records with headers.")] = "refuse"
    empty_body: Annotated[
        LossWord, key("Records with an empty body. An event without bytes stops Pravega's Python client for ever.")
    ] = "drop"
    command_records: Annotated[LossWord, key("Command records: fence and trim.")] = "drop"


class SegmentListener(ListenerTable, frozen=True, kw_only=True):
    """Pravega's segment store protocol over TCP or TLS: wire versions 5 to 16, and the draft. Pravega's clients find
    the listener through the controller. Omit the table to switch the listener off."""

    name: ListenerName = None
    bind: Annotated[str, key("Address, as HOST:PORT, or [::1]:12345 for IPv6; port 0 lets the system choose.")] = (
        "127.0.0.1:12345"
    )
    basin: Annotated[
        str, key("Basin of the streams in scopes whose names are not valid for basins (docs/names.md).")
    ] = DEFAULT_BASIN
    delegation_tokens: Annotated[
        bool,
        key(
            "Require a delegation token for each request. The controllers of this listener issue tokens to clients "
            "with the username and password of one of the [[identities]], and then require these for all calls "
            "(docs/access.md)."
        ),
    ] = False
    delegation_token_seconds: Annotated[int, key("Lifetime of a delegation token.", least=10, most=86_400)] = 600
    delegation_key_file: Annotated[
        str | None,
        key(
            "File with the key that signs delegation tokens, at least 32 bytes; absent: delegation.key in "
            "store.directory, created if it is missing.",
            example="delegation.key",
            path=True,
        ),
    ] = None
    anonymous: Anonymous = False
    loss: SegmentLoss = SegmentLoss()
    limits: SegmentListenerLimits = SegmentListenerLimits()

    def __post_init__(self) -> None:
        check_address("bind", self.bind)
        check_basin("basin", self.basin)
        self.check_tls()


class SegmentBackLoss(LossTable, frozen=True, kw_only=True):
    """Treatment of records that an event cannot carry, when clients append them. "refuse": the append fails;
    "envelope": the event contains the whole record (docs/loss.md); "drop": the headers are left out."""

    headers: Annotated[LossWord, key("Records with headers.")] = "refuse"
    empty_body: Annotated[
        Literal["refuse", "envelope", "keep"],
        key(
            'Records with an empty body; "keep": they become events without bytes, at which Pravega\'s Python '
            "client stops."
        ),
    ] = "refuse"
    command_records: Annotated[
        CommandLossWord,
        key("Command records: fence and trim. They cannot be dropped, because an acknowledgement counts them."),
    ] = "refuse"

    @property
    def keep_empty(self) -> bool:
        """True if records with an empty body are appended as events without bytes."""
        return self.empty_body == "keep"

    @property
    def policy(self) -> LossPolicy:
        """The policy that the table describes, beside `keep_empty`."""
        empty = Loss.REFUSE if self.keep_empty else Loss(self.empty_body)
        return LossPolicy(Loss(self.headers), empty, Loss(self.command_records))


class SegmentBackTable(NumberedBackTable, frozen=True, kw_only=True, tag_field="kind", tag="segment"):
    """A segment store: Pravega's, or any that speaks its protocol. The gateway assigns sequence numbers to its records,
    and keeps them in the embedded store."""

    address: Annotated[
        str | None,
        key("HOST:PORT of the segment store; absent: the controller gives it.", example="127.0.0.1:12346", usual=True),
    ] = None
    controller: Annotated[
        str | None,
        key("HOST:PORT of the controller, which creates streams and locates their segments.", example="127.0.0.1:9091"),
    ] = None
    dialect: Annotated[
        Literal["released", "draft"],
        key(
            'Dialect of the protocol. "released": that of Pravega\'s releases; "draft": the draft, which has no '
            "controller."
        ),
    ] = "released"
    basin: Annotated[
        str, key("Basin of the streams in scopes whose names are not valid for basins (docs/names.md).")
    ] = DEFAULT_BASIN
    username: Annotated[
        str | None,
        key(
            "User name of the gateway at the controller (Basic authentication); absent: no authentication.",
            example="penstock",
        ),
    ] = None
    password_file: Annotated[
        str | None,
        key("File with the password of username, read at the start.", example="password", path=True),
    ] = None
    delivery: Annotated[Literal["exactly-once", "at-least-once", "refuse"], key(LOST_ACK)] = "exactly-once"
    state_stream: Annotated[
        str | None,
        key(
            "Stream, as SCOPE/STREAM, for everything that the gateway would otherwise keep in its store's directory "
            "(docs/scaling.md); created if it is missing. Gateways with the same stream share it.",
            example="penstock-state/gateways",
        ),
    ] = None
    state_max_bytes: Annotated[
        int,
        key("Most memory for the content of state_stream. Changes that need more are refused.", least=1 * MIB),
    ] = 256 * MIB
    loss: SegmentBackLoss = SegmentBackLoss()

    def __post_init__(self) -> None:
        self.check()
        check_basin("basin", self.basin)
        if self.state_stream is not None:
            if self.dialect == "draft":
                raise ValueError("state_stream: the draft has no conditional appends")
            _check_scoped("state_stream", self.state_stream)
        if self.address is None and self.controller is None:
            raise ValueError("give address (of the segment store), controller, or both")
        if (self.username is None) != (self.password_file is None):
            raise ValueError("username and password_file go together: give both or neither")
        if self.username is not None and self.controller is None:
            raise ValueError("username is for the controller, but no controller is given")
        if self.dialect == "draft" and self.controller is not None:
            raise ValueError("the draft has no controller: remove it")
        for name, text in (("address", self.address), ("controller", self.controller)):
            if text is not None:
                check_server(name, text)

    @property
    def named(self) -> str:
        """The address to show to people: the controller's if there is one, else the segment store's."""
        return str(Address.parse(self.controller or self.address or ""))


def _check_scoped(name: str, text: str) -> None:
    """Raise ValueError, with the key's name, unless the text is SCOPE/STREAM, a stream that clients could have."""
    try:
        hidden = SegmentNames().to_stream(text).basin == INTERNAL_BASIN
    except OperationFailed as error:
        raise ValueError(f"{name}: {error.failure.message}") from error
    if hidden or text.count("/") != 1:
        raise ValueError(f"{name}: {text!r} is not SCOPE/STREAM")
