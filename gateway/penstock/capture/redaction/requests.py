"""Match HTTP requests and responses: state that the two sides of a connection share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from google.protobuf.descriptor import Descriptor

from penstock.capture.pcapng import Sender
from penstock.capture.redaction.contents import Content
from penstock.capture.redaction.flow import Flow
from penstock.capture.redaction.leaves import Leaves
from penstock.capture.redaction.units import BodyFormat

__all__ = ["UNKNOWN", "Fields", "HttpBodies", "OpenRequests", "RequestParts", "value_of"]

_MOST: Final = 10_000
"""Most pending requests that are remembered; older ones count as unknown when they are answered, and over HTTP/1.1 so
do those behind them."""


Fields = Mapping[bytes, list[bytes]]
"""Headers that tell what follows, by their names in lower case, with their values in lower case."""


def value_of(fields: Fields, name: bytes) -> bytes:
    """Return a header's value, b"" if it is missing, or all values if there are different ones."""
    values = fields.get(name)
    return b", ".join(dict.fromkeys(values)) if values else b""


class RequestParts(msgspec.Struct, frozen=True):
    """Parts of a request that determine the format of both bodies.

    `known` is False if the request passed before the recording began.
    """

    method: bytes = b""
    path: bytes = b""
    fields: Fields = msgspec.field(default_factory=dict)
    known: bool = True


UNKNOWN: Final = RequestParts(known=False)


class OpenRequests:
    """Requests that wait for their responses."""

    def __init__(self) -> None:
        self.in_order: deque[RequestParts] = deque(maxlen=_MOST)
        """HTTP/1.1: those that are answered next come first."""
        self.certain = True
        """True if all requests were recorded; otherwise a response may be to an unknown one."""
        self.joining = False
        """True while a prelude is read: bodies whose heads are in it are read from their middle."""
        self.resets: dict[Sender, Callable[[int], None]] = {}
        """HTTP/2: called with streams that either side resets."""
        self._by_stream: dict[int, RequestParts] = {}

    def append(self, request: RequestParts) -> None:
        """HTTP/1.1: add a request."""
        self.certain = self.certain and len(self.in_order) < _MOST
        self.in_order.append(request)

    def next_answered(self) -> RequestParts:
        """HTTP/1.1: return the request of the next response. A response to no request makes later matches uncertain."""
        self.certain = self.certain and bool(self.in_order)
        request = self.in_order.popleft() if self.in_order else UNKNOWN
        return request if self.certain else UNKNOWN

    def add_stream(self, stream: int, request: RequestParts) -> None:
        """HTTP/2: add the request of a stream."""
        if len(self._by_stream) >= _MOST:
            del self._by_stream[next(iter(self._by_stream))]
        self._by_stream[stream] = request

    def of_stream(self, stream: int) -> RequestParts:
        """HTTP/2: return the request of a stream."""
        return self._by_stream.get(stream, UNKNOWN)

    def forget_stream(self, stream: int) -> None:
        """HTTP/2: forget a stream, on which no response will follow."""
        self._by_stream.pop(stream, None)


class HttpBodies:
    """One protocol over HTTP: where secrets are in its bodies. This base finds none.

    All protocols are asked about each body, in the order of their names. JSON, event streams, text, and the framing of
    gRPC are common to all and need nothing here.
    """

    def issues(self, _request: RequestParts) -> bool:
        """Return whether the response to a known request may hold a token, so that its body is read under all
        rules."""
        return False

    def in_base64(self, _fields: Fields) -> bool:
        """Return whether a request with these headers has bytes in base64 in the JSON of both bodies."""
        return False

    def call(self, _path: bytes, *, request: bool) -> Descriptor | None:  # noqa: ARG002 - for those that have calls
        """Return the message of a gRPC call by its path, or None if it is not one of this protocol."""
        return None

    def content(
        self, _flow: Flow, _leaves: Leaves, _request: RequestParts, _kind: bytes, _fields: Fields
    ) -> Content | None:
        """Return the content of a body of media type `kind`, or None if it is not of this protocol."""
        return None

    def formats(self, _flow: Flow, _leaves: Leaves) -> Sequence[BodyFormat]:
        """Return formats that a body may have whose head was not recorded."""
        return ()
