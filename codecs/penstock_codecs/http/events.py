"""What is said over HTTP, in either version and either direction, and the limits that a connection keeps.

A stream is one exchange: on HTTP/2 the stream of that number, on HTTP/1.1 the exchanges of a connection counted
from 1. A message is a head, any number of pieces of body, and its end; the end always comes as an event of its own.
Header names are in lower case, names and values are text of latin-1 characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from penstock_codecs.codec import Pull
from penstock_codecs.limits import KIB, MIB

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
    "Headers",
    "HttpCodec",
    "HttpLimits",
    "Noise",
    "Outgoing",
    "Received",
    "RequestHead",
    "Reset",
    "ResponseHead",
    "body_forbidden",
    "without_quotes",
]

Headers = Sequence[tuple[str, str]]
Buffer = bytes | bytearray | memoryview

# Error codes of resets and of GOAWAY (RFC 9113, 7).
NO_ERROR: Final = 0x0
INTERNAL_ERROR: Final = 0x2
REFUSED_STREAM: Final = 0x7
CANCEL: Final = 0x8
ENHANCE_YOUR_CALM: Final = 0xB

NOISE_FROM: Final = 16
"""After so many pieces in a row that say nothing comes `Noise`; one takes 10 to 60 us."""


@dataclass(slots=True)
class RequestHead:
    """The head of a request. `target` is path and query as sent; a server strips an absolute form to that.

    `expects_continue`: the client waits for `Continue` before it sends the body (RFC 9110, 10.1.1).
    """

    stream_id: int
    method: str
    target: str
    headers: Headers
    authority: str = ""
    scheme: str = "http"
    version: str = ""
    expects_continue: bool = False


@dataclass(slots=True)
class ResponseHead:
    """The head of a final response. Sent with `end`, it is the whole of it; received, it never has `end`."""

    stream_id: int
    status: int
    headers: Headers
    end: bool = False


@dataclass(slots=True)
class Continue:
    """100 Continue. Sending it where nobody waits for it does nothing."""

    stream_id: int


@dataclass(slots=True)
class Data:
    """A piece of body that came in. It holds `credit` bytes of the peer's window until they are given back."""

    stream_id: int
    data: bytes
    credit: int


@dataclass(slots=True)
class Body:
    """A piece of body to send, as parts that follow each other; on HTTP/1.1 one chunk. With `end`, the last."""

    stream_id: int
    parts: Sequence[Buffer]
    end: bool = False


@dataclass(slots=True)
class End:
    """The message is complete: the peer will send no more body on this stream, or we shall not.

    `trailers` come after the body (RFC 9110, 6.5). On HTTP/1.1 only a chunked body can have them: sending them after
    another raises LocalProtocolError.
    """

    stream_id: int
    trailers: Headers = ()


@dataclass(slots=True)
class Reset:
    """The exchange is over before its time. On HTTP/1.1 sending it means that the connection must be closed."""

    stream_id: int
    code: int = CANCEL


@dataclass(slots=True)
class Credit:
    """`length` bytes that came in as `Data` were consumed: the peer may send as many more. Only to send."""

    stream_id: int
    length: int


@dataclass(slots=True)
class GoAway:
    """No new exchanges on this connection, running ones go on (where `code` is NO_ERROR).

    Received: streams above `last_stream_id` were not processed. Sent: `last_stream_id` is filled in.
    """

    code: int = NO_ERROR
    last_stream_id: int = 0


@dataclass(slots=True)
class Ended:
    """The peer closed the connection between exchanges."""


@dataclass(slots=True)
class Noise:
    """Much was read that says nothing: pings, settings, empty or unwanted body. It only gives the caller its turn, so
    that it can let others have theirs."""


Received = RequestHead | ResponseHead | Continue | Data | End | Reset | GoAway | Ended | Noise
Outgoing = RequestHead | ResponseHead | Continue | Body | End | Reset | Credit | GoAway


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one connection. Sizes in bytes."""

    max_head: int = 64 * KIB
    """Request or status line with all headers; on HTTP/2 the header list as RFC 9113, 6.5.2 counts it."""
    stream_window: int = 1 * MIB
    """HTTP/2: most unconsumed body of one stream. Clients send batches of 1 MiB (S2 fact sheet 2.5)."""
    connection_window: int = 4 * MIB
    """HTTP/2: most unconsumed body of all streams together, which bounds the memory of a connection."""
    max_frame: int = 64 * KIB
    """HTTP/2: largest frame that is accepted."""
    max_streams: int = 1000
    """HTTP/2: most streams open at once."""
    max_discard: int = 2 * MIB
    """Server: once a response is complete, this much of the rest of its request is read and dropped, so that the
    client comes to read the answer; then the stream is reset (HTTP/2) or the connection closed."""
    max_abandoned: int = 200
    """HTTP/2: how many more requests than it let be answered a client may reset (CVE-2023-44487)."""

    def __post_init__(self) -> None:
        """Raises ValueError for what HTTP/2 cannot express (RFC 9113, 6.5.2 and 6.9)."""
        for name, value, least, most in (
            ("stream_window", self.stream_window, 1, 2**31 - 1),
            ("connection_window", self.connection_window, 65536, 2**31 - 1),
            ("max_frame", self.max_frame, 16384, 2**24 - 1),
        ):
            if not least <= value <= most:
                raise ValueError(f"{name} must be from {least} to {most}, not {value}")


class HttpCodec(Protocol):
    """One HTTP connection of either version and role, sans-IO.

    Bytes go in by `receive`, events come out by `next_event`; what is to be said goes in by `send` and what is to
    be written comes out by `output`, together with what the protocol itself has to say (settings, window updates,
    answers to PING, the last word after an error of the peer).
    """

    version: str
    given: int
    """Bytes of body that `output` has given out so far; on HTTP/1.1 always 0."""
    noise: int
    """How many frames have come that say nothing."""

    def receive(self, data: Buffer) -> None:
        """Take bytes from the peer, copying them; b"" says that the peer has finished sending."""

    def next_event(self) -> Received | Pull:
        """The next event, NEED_DATA or PAUSED (nothing will be read until the exchange has been answered).

        Raises RemoteProtocolError where the peer broke the protocol; every later call raises the same.
        """

    def send(self, event: Outgoing) -> None:
        """Say `event`. What is said of a stream that the peer has reset is dropped.

        Raises LocalProtocolError where the protocol does not allow it now.
        """

    def output(self, room: int) -> list[Buffer]:
        """What may be written now, in order. Body is held back once there are `room` bytes, or without window."""

    def unsent(self, stream_id: int) -> int:
        """Bytes of body given to `send` that `output` has not given out. The sender bounds it by waiting."""

    @property
    def held(self) -> int:
        """Bytes of all parts of body, of all streams, that `output` has not given out to the last byte."""

    def window(self, stream_id: int) -> int:
        """Bytes of body that the peer would take now, on this stream and on the connection."""

    def new_stream(self) -> int:
        """The number for the next request of a client."""

    @property
    def peer_streams(self) -> int:
        """How many exchanges the peer lets a client have open at once, as far as it has said (RFC 9113, 5.1.2)."""

    @property
    def buffered(self) -> int:
        """Bytes received and not yet delivered."""

    @property
    def amid_answered(self) -> bool:
        """Server: whether a request still comes that has been answered to the end."""

    @property
    def closed(self) -> bool:
        """Nothing more will be said by either side: after the last `output` the connection can be closed."""


def body_forbidden(method: str, status: int) -> bool:
    """Whether a response has no body whatever its headers say (RFC 9110, 6.4.1)."""
    return method == "HEAD" or status in (204, 304) or status < 200


_QUOTED: Final = re.compile(r"[ :(]*(?:bytearray\()?\bb['\"]")


def without_quotes(message: str) -> str:
    """What h11 or h2 says is wrong, without the peer's bytes that it quotes: they may be a secret, and are long."""
    return _QUOTED.split(message, maxsplit=1)[0]
