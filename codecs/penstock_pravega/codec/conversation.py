"""One segment connection, sans-IO: `SegmentServer` receives requests and sends replies, `SegmentClient` the reverse.

The legal order of messages is in two tables: `released_order.TRANSITIONS` and `draft_order.TRANSITIONS`.
"""

from __future__ import annotations

from typing import Final

from penstock.model.failures import Failure, FailureCode, LocalProtocolError, RemoteProtocolError
from penstock.wire.codec import NEED_DATA, PAUSED, Pull
from penstock_pravega.codec import draft
from penstock_pravega.codec.appends import Violation
from penstock_pravega.codec.decoder import (
    DecodedEvent,
    DraftRequestDecoder,
    MessageDecoder,
    ReleasedRequestDecoder,
    ReplyDecoder,
)
from penstock_pravega.codec.draft_order import DraftRequests
from penstock_pravega.codec.encoder import DraftRequestEncoder, OutgoingEvent, ReleasedRequestEncoder, ReplyEncoder
from penstock_pravega.codec.frames import FrameFault, Frames
from penstock_pravega.codec.layout import Dialect, Direction, SegmentMessage
from penstock_pravega.codec.limits import SegmentLimits
from penstock_pravega.codec.released import Hello
from penstock_pravega.codec.released_order import ReleasedRequests

__all__ = ["DEFAULT_LIMITS", "SegmentClient", "SegmentServer"]

DEFAULT_LIMITS: Final = SegmentLimits()
_HELLO: Final = Hello.type_id.to_bytes(4, "big", signed=True)
_TYPE_BYTES: Final = 4


class _Conversation:
    """Shared base of both roles: bytes in, messages out, and the end of the conversation."""

    _gone: FailureCode  # failure if the peer goes away within a message or block

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._decoder: MessageDecoder | None = None
        self._ended = False
        self._failure: Failure | None = None

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the peer; b"" means that the peer has finished sending."""
        if self._failure is not None or self._ended:
            return
        if data:
            self._frames.receive(data)
        else:
            self._ended = True

    def next_event(self) -> DecodedEvent | Pull:
        """Return the next message, NEED_DATA, or PAUSED once the peer has finished. Raises RemoteProtocolError."""
        if self._failure is not None:
            raise RemoteProtocolError(self._failure)
        try:
            event = self._next()
        except FrameFault as fault:
            raise self._broken(fault.code, f"{fault.text} (byte {fault.at})") from None
        except Violation as violation:
            raise self._broken(FailureCode.BAD_FRAME, f"{violation} (byte {self._frames.start})") from None
        if event is not None:
            return event
        return self._at_end() if self._ended else NEED_DATA

    def _next(self) -> DecodedEvent | None:
        raise NotImplementedError

    def _at_end(self) -> Pull:
        held = self._frames.held
        unfinished = None if self._decoder is None else self._decoder.unfinished
        if held or unfinished:
            where = f"{held} bytes into a message" if held else f"inside {unfinished}"
            raise self._broken(self._gone, f"the connection ended {where} (byte {self._frames.position + held})")
        return PAUSED

    def _broken(self, code: FailureCode, text: str) -> RemoteProtocolError:
        self._failure = Failure(code, text)
        self._frames.clear()
        return RemoteProtocolError(self._failure)

    @property
    def buffered(self) -> int:
        """Bytes received and not yet delivered."""
        if self._failure is not None:
            return 0
        return self._frames.held + (0 if self._decoder is None else self._decoder.held)


class SegmentServer(_Conversation):
    """The server's end. The first four bytes tell the client's dialect (reading 2).

    Released appends are delivered as BlockAppended whatever form the client chose; the content of draft blocks as
    BlockData between BeginAppendBlock and EndAppendBlock, and may be stored as it comes. A Hello is delivered even if
    we speak none of its versions, which is the fault that follows. After RemoteProtocolError the caller may send
    replies still owed, and closes the connection without an error message.

    `observer`: requests are accepted without our replies having been sent, as when reading a capture of one direction.
    """

    _gone = FailureCode.CLIENT_HANGUP

    def __init__(self, limits: SegmentLimits = DEFAULT_LIMITS, *, observer: bool = False) -> None:
        super().__init__(Frames(Direction.REQUEST, Dialect.DRAFT, limits.max_message_bytes))
        self._limits = limits
        self._observer = observer
        self._draft = DraftRequests(limits, observer=observer)
        self._encoder: ReplyEncoder | None = None

    @property
    def dialect(self) -> Dialect | None:
        """The client's dialect; None until it has sent four bytes."""
        return None if self._decoder is None else self._frames.dialect

    @property
    def version(self) -> int:
        """The wire version that both understand; meaningful after the client's Hello."""
        return self._frames.version

    def _next(self) -> DecodedEvent | None:
        if self._decoder is None:
            if self._frames.held < _TYPE_BYTES:
                return None
            self._choose()
            assert self._decoder is not None, "just chosen"
        return self._decoder.next()

    def _choose(self) -> None:
        if self._frames.data.startswith(_HELLO):
            self._frames.dialect = Dialect.RELEASED
            self._decoder = ReleasedRequestDecoder(self._frames, ReleasedRequests(self._limits))
        else:
            self._decoder = DraftRequestDecoder(self._frames, self._draft, self._limits)
        self._encoder = ReplyEncoder(self._frames.dialect)

    def send(self, event: SegmentMessage) -> list[bytes]:
        """Return the bytes of a reply. Raises LocalProtocolError for anything but a reply of the client's dialect, and
        before Hello; in the draft also for an AppendSetup without a request, and for Partials out of order."""
        if self._encoder is None:
            raise LocalProtocolError("no reply can precede the client's first message, which determines the dialect")
        try:
            pieces = self._encoder.encode(event, self._frames.version)
            if isinstance(event, draft.AppendSetup):
                self._draft.set_up(event.connection_id, event.connection_offset_ack_level)
        except Violation as violation:
            raise LocalProtocolError(str(violation)) from None
        return pieces


class SegmentClient(_Conversation):
    """The client's end, for one dialect. In the released one, Hello must be sent first."""

    _gone = FailureCode.UNAVAILABLE

    def __init__(self, dialect: Dialect, limits: SegmentLimits = DEFAULT_LIMITS) -> None:
        super().__init__(Frames(Direction.REPLY, dialect, limits.max_message_bytes))
        self._decoder = ReplyDecoder(self._frames, limits)
        self._draft = DraftRequests(limits)
        self._encoder: ReleasedRequestEncoder | DraftRequestEncoder = (
            ReleasedRequestEncoder(ReleasedRequests(limits))
            if dialect is Dialect.RELEASED
            else DraftRequestEncoder(self._draft)
        )

    @property
    def dialect(self) -> Dialect:
        """The dialect of the connection."""
        return self._frames.dialect

    def _next(self) -> DecodedEvent | None:
        assert self._decoder is not None, "chosen from the start"
        event = self._decoder.next()
        if isinstance(event, draft.AppendSetup):
            self._draft.set_up(event.connection_id, event.connection_offset_ack_level)
        return event

    def send(self, event: OutgoingEvent) -> list[bytes]:
        """Return the bytes of a request. Raises LocalProtocolError if the protocol does not allow it now.

        After such an error within a block or Partials the connection cannot be used any more.
        """
        if self._failure is not None:
            raise LocalProtocolError("the conversation has ended")
        try:
            pieces = self._encoder.encode(event)
        except Violation as violation:
            raise LocalProtocolError(str(violation)) from None
        if isinstance(event, Hello):
            self._frames.version = min(self._frames.version, event.high_version)
        return pieces
