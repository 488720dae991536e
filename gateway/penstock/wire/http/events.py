"""Events of HTTP connections, of either version and direction, and the limits of a connection.

A stream is one exchange: on HTTP/2 the stream of that number, on HTTP/1.1 the exchanges of a connection counted from 1.
A message is a head, any number of pieces of body, and its end; the end is always an event of its own. Header names are
in lower case; names and values are text of latin-1 characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from penstock.model.limits import KIB, MIB
from penstock.wire.codec import Pull

__all__ = [
    "CANCEL",
    "ENHANCE_YOUR_CALM",
    "INTERNAL_ERROR",
    "NOISE_FROM",
    "NO_ERROR",
    "REFUSED_STREAM",
    "Body",
    "Buffer",
    "Continue",
    "Credit",
    "Data",
    "End",
    "Ended",
    "GoAway",
    "HttpCodec",
    "HttpHeaders",
    "HttpLimits",
    "Noise",
    "Outgoing",
    "Preludes",
    "Received",
    "RequestHead",
    "Reset",
    "ResponseHead",
    "body_forbidden",
    "without_quotes",
]

HttpHeaders = Sequence[tuple[str, str]]
Buffer = bytes | bytearray | memoryview

# Error codes of resets and of GOAWAY (RFC 9113, 7).
NO_ERROR: Final = 0x0
INTERNAL_ERROR: Final = 0x2
REFUSED_STREAM: Final = 0x7
CANCEL: Final = 0x8
ENHANCE_YOUR_CALM: Final = 0xB

NOISE_FROM: Final = 16
"""Number of consecutive frames or pieces without an event after which `Noise` is delivered; each takes 10 to 60 us."""
_QUOTED: Final = re.compile(r"(?<![ :(])[ :(]*+(?:bytearray\()?\bb['\"]")


class FramePieces(list[Buffer]):
    """Pieces of a body that are whole frames together, of a protocol above HTTP. `frames`: their number."""

    __slots__ = ("frames",)

    def __init__(self, pieces: Iterable[Buffer] = (), frames: int = 0) -> None:
        super().__init__(pieces)
        self.frames = frames


class RequestHead(Struct):
    """The head of a request. `target` is path and query as sent; a server strips an absolute form to that.

    `expects_continue`: the client waits for `Continue` before it sends the body (RFC 9110, 10.1.1).
    """

    stream_id: int
    method: str
    target: str
    headers: HttpHeaders
    authority: str = ""
    scheme: str = "http"
    version: str = ""
    expects_continue: bool = False


class ResponseHead(Struct):
    """The head of a final response. Sent with `end`, it is the whole response; received, it never has `end`."""

    stream_id: int
    status: int
    headers: HttpHeaders
    end: bool = False


class Continue(Struct):
    """100 Continue. Sending it has no effect unless the client waits for it."""

    stream_id: int


class Data(Struct):
    """A piece of received body, which never changes. It occupies `credit` bytes of the peer's window until they are
    returned."""

    stream_id: int
    data: Buffer
    credit: int


class Body(Struct):
    """A piece of body to send, in consecutive parts; on HTTP/1.1 one chunk. With `end`, the last."""

    stream_id: int
    parts: Sequence[Buffer]
    end: bool = False


class End(Struct):
    """The end of a message: no more body is received, or sent, on this stream.

    `trailers` come after the body (RFC 9110, 6.5). On HTTP/1.1 only a chunked body can have them: sending them after
    another raises LocalProtocolError.
    """

    stream_id: int
    trailers: HttpHeaders = ()


class Reset(Struct):
    """The exchange ended early. On HTTP/1.1 sending it means that the connection must be closed.

    `reason`: received only, how the peer's message broke the protocol; "" if the peer itself has reset it.
    """

    stream_id: int
    code: int = CANCEL
    reason: str = ""


class Credit(Struct):
    """`length` bytes of received `Data` were consumed: the peer may send as many more. Only to send."""

    stream_id: int
    length: int


class GoAway(Struct):
    """The end of new exchanges on this connection; running ones continue (if `code` is NO_ERROR).

    Received: streams above `last_stream_id` were not processed. Sent: `last_stream_id` is filled in.
    """

    code: int = NO_ERROR
    last_stream_id: int = 0


class Ended(Struct):
    """The peer closed the connection between exchanges."""


class Noise(Struct):
    """Much was read without an event: pings, settings, empty or unwanted body. It only returns control to the caller,
    so that it can let others run."""


Received = RequestHead | ResponseHead | Continue | Data | End | Reset | GoAway | Ended | Noise
Outgoing = RequestHead | ResponseHead | Continue | Body | End | Reset | Credit | GoAway


class HttpLimits(Struct, frozen=True):
    """Limits of one connection. Sizes in bytes."""

    max_head: int = 64 * KIB
    """Request or status line with all headers; on HTTP/2 the header list as RFC 9113, 6.5.2 counts it."""
    max_short: int = 16 * KIB
    """HTTP/1.1 server: largest request, with its body, that is taken without h11 if its headers are known
    (`penstock.wire.http.h1_short`)."""
    stream_window: int = 1 * MIB
    """HTTP/2: most unconsumed body of one stream. Clients send batches of 1 MiB (S2 fact sheet 2.5)."""
    connection_window: int = 4 * MIB
    """HTTP/2: most unconsumed body of all streams together, which bounds the memory of a connection."""
    max_frame: int = 64 * KIB
    """HTTP/2: largest frame that is accepted."""
    max_streams: int = 1000
    """HTTP/2: most streams open at once."""
    max_discard: int = 2 * MIB
    """Server: once a response is complete, this much of the rest of its request is read and dropped, so that the client
    gets to read the answer; then the stream is reset (HTTP/2) or the connection closed."""
    max_abandoned: int = 200
    """HTTP/2: most requests that a client may reset unanswered, beyond the number answered (CVE-2023-44487)."""

    def __post_init__(self) -> None:
        """Raise ValueError for values that HTTP/2 cannot express (RFC 9113, 6.5.2 and 6.9)."""
        for name, value, least, most in (
            ("stream_window", self.stream_window, 1, 2**31 - 1),
            ("connection_window", self.connection_window, 65536, 2**31 - 1),
            ("max_frame", self.max_frame, 16384, 2**24 - 1),
        ):
            if not least <= value <= most:
                raise ValueError(f"{name} must be from {least} to {most}, not {value}")


class Preludes(NamedTuple):
    """Preludes of one connection at one moment. `received` and `sent`: for the peer's bytes and for ours. `held`: the
    last bytes received, which follow `received`. `unwritten`: number of bytes that `sent` already covers though they
    are not written yet."""

    received: bytes
    sent: bytes
    held: bytes
    unwritten: int


class HttpCodec(Protocol):
    """One HTTP connection of either version and role, sans-IO.

    `receive` takes bytes, `next_event` returns events; `send` takes events, and `output` returns the bytes to write,
    including the protocol's own frames (settings, window updates, answers to PING, the last frame after an error of the
    peer).
    """

    version: str
    given: int
    """Bytes of body that `output` has returned so far; on HTTP/1.1 always 0."""
    noise: int
    """Number of frames received that had no event."""

    def receive(self, data: Buffer) -> None:
        """Take bytes from the peer; b"" means that the peer has finished sending. `bytes` may be kept, all else is
        copied."""

    @property
    def keeps(self) -> bool:
        """True while most of what comes next is a body that is kept without copying it, if it comes as `bytes`."""

    def next_event(self) -> Received | Pull:
        """Return the next event, NEED_DATA or PAUSED (nothing will be read until the exchange has been answered).

        Raises RemoteProtocolError if the peer broke the protocol; every later call raises the same.
        """

    def send(self, event: Outgoing) -> None:
        """Send `event`. Events of a stream that the peer has reset are dropped.

        Raises LocalProtocolError if the protocol does not allow it now.
        """

    def framed(self, stream_id: int, piece: bytes) -> bytes | None:
        """Return the bytes that send a small piece of a streamed body, to be written at once and before any `output`;
        this counts as sent. None, and nothing is sent, if only `send` can do it: something else waits to be written,
        there is no window, or the stream does not take a body."""

    def output(self, room: int) -> list[Buffer]:
        """Return the bytes that may be written now, in order. Body is held back after `room` bytes, or without
        window."""

    @property
    def has_output(self) -> bool:
        """False if `output` would return nothing. True does not promise that it returns anything."""

    def unsent(self, stream_id: int) -> int:
        """Return the bytes of body given to `send` that `output` has not returned. The sender bounds it by waiting."""

    @property
    def held(self) -> int:
        """Bytes of all parts of body, of all streams, that `output` has not returned to the last byte."""

    def window(self, stream_id: int) -> int:
        """Return the bytes of body that the peer would accept now, on this stream and on the connection."""

    def new_stream(self) -> int:
        """Return the number of a client's next request."""

    @property
    def peer_streams(self) -> int:
        """Number of exchanges that the peer lets a client have open at once, as announced so far (RFC 9113, 5.1.2)."""

    @property
    def buffered(self) -> int:
        """Bytes received and not yet delivered."""

    def preludes(self) -> Preludes | None:
        """Return data that brings readers of either direction into the connection's present state; None if there is
        none, as within a head, or after a fault."""

    @property
    def amid_answered(self) -> bool:
        """Server: True while a request that has been answered completely is still being received."""

    @property
    def closed(self) -> bool:
        """True once neither side will send more: after the last `output` the connection can be closed."""


def body_forbidden(method: str, status: int) -> bool:
    """Return whether a response has no body whatever its headers say (RFC 9110, 6.4.1)."""
    return method == "HEAD" or status in (204, 304) or status < 200


def without_quotes(message: str) -> str:
    """Return h11's or h2's error message without the peer's bytes that it quotes: they may be secret, and are long."""
    return _QUOTED.split(message, maxsplit=1)[0]
