"""Configuration tables of the segment protocol; see docs/configuration.md."""

from __future__ import annotations

from typing import Annotated, Literal

from penstock.core.address import Address
from penstock.core.config_fields import DEFAULT_BASIN, check_address, check_basin, check_server, key
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
from penstock_codecs.limits import KIB, MIB, SEGMENT_MAX_LENGTH

__all__ = ["SegmentBack", "SegmentBackLoss", "SegmentLimits", "SegmentListener", "SegmentLoss"]


class SegmentLimits(ListenerLimits, frozen=True, kw_only=True):
    """Limits of one segment listener. The defaults suit Pravega's own clients, Java and Python."""

    max_connections: Annotated[int, MAX_CONNECTIONS] = 10_000
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


class SegmentLoss(LossTable, frozen=True, kw_only=True):
    """Reads of records that are not events: "refuse" fails the read at such a record, "envelope" makes an event of the
    whole record (docs/loss.md), "drop" leaves out what cannot be carried. A record's bytes are fixed when it is
    appended, since byte offsets never change: "envelope" applies to records appended from then on, and records
    enveloped before stay so."""

    headers: Annotated[LossWord, key("Records with headers.")] = "refuse"
    empty_body: Annotated[
        LossWord, key("Records with an empty body; an event without any bytes stops Pravega's Python client for ever.")
    ] = "drop"
    command_records: Annotated[LossWord, key("Records that command the stream: fence, trim.")] = "drop"


class SegmentListener(ListenerTable, frozen=True, kw_only=True):
    """Pravega's segment store protocol over TCP or TLS: wire versions 5 to 16, and the draft. Clients of Pravega find
    it through the controller. Leave the table out to switch it off."""

    name: ListenerName = None
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


class SegmentBackLoss(LossTable, frozen=True, kw_only=True):
    """Appends of records that an event cannot carry: "refuse" fails the append, "envelope" makes an event of the whole
    record (docs/loss.md), "drop" leaves out what cannot be carried."""

    headers: Annotated[LossWord, key("Records with headers; dropped: their bodies are appended without.")] = "refuse"
    empty_body: Annotated[
        Literal["refuse", "envelope", "keep"],
        key('Records with an empty body; "keep": as an event without bytes, at which Pravega\'s Python client stops.'),
    ] = "refuse"
    command_records: Annotated[
        CommandLossWord,
        key("Records that command the stream. They cannot be left out: an acknowledgement counts them."),
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


class SegmentBack(NumberedBackTable, frozen=True, kw_only=True, tag_field="kind", tag="segment"):
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
    username: Annotated[
        str | None, key("Who the gateway is to the controller (Basic); absent: nobody.", example="penstock")
    ] = None
    password_file: Annotated[
        str | None,
        key("File that holds its password, read at the start; goes with username.", example="password", path=True),
    ] = None
    delivery: Annotated[Literal["exactly-once", "at-least-once", "refuse"], key(LOST_ACK)] = "exactly-once"
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
