"""The codec interface, and the plug-in of a codec.

A codec is one connection (or one session inside an HTTP exchange) of one protocol: bytes in, events out; events in,
bytes out. It owns no socket and no clock. Events are pulled one at a time, so not pulling is the back-pressure. No
codec here needs a timer: heartbeats are events that a front sends when its own clock says so.

The same class of module serves both roles: a front drives the server side, a back the client side, and a client wired
to a server is each protocol's first test. `conformance` has the laws that every codec keeps, for third-party plug-ins,
too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import cache
from typing import Any, Final, Literal, Protocol, TypeVar

from msgspec import Struct

from penstock.model.records import Columns
from penstock.wire.listing import Listing
from penstock.wire.plugins import installed

__all__ = [
    "NEED_DATA",
    "PAUSED",
    "UNFINISHED",
    "Codec",
    "CodecPlugin",
    "Pull",
    "RecordEncoding",
    "Role",
    "installed_codecs",
    "installed_encoding",
]

Received_co = TypeVar("Received_co", covariant=True)
Sent_contra = TypeVar("Sent_contra", contravariant=True)

ENTRY_POINT_GROUP: Final = "penstock.codecs"


class Pull(Enum):
    """Results of `next_event` when there is no event."""

    NEED_DATA = auto()
    """Pass more bytes to `receive`, or b"" if the peer has finished."""
    PAUSED = auto()
    """No bytes will be read, even if there are some: the conversation has ended or waits for `send`."""
    UNFINISHED = auto()
    """A long message is decoded in part: call again, after others have had their turn. Only from codecs that were told
    to decode in steps."""


NEED_DATA: Final[Literal[Pull.NEED_DATA]] = Pull.NEED_DATA
PAUSED: Final[Literal[Pull.PAUSED]] = Pull.PAUSED
UNFINISHED: Final[Literal[Pull.UNFINISHED]] = Pull.UNFINISHED


class Role(Enum):
    """The end of the conversation that a codec speaks for."""

    CLIENT = "client"
    SERVER = "server"


class Codec(Protocol[Received_co, Sent_contra]):
    """One conversation of one protocol, sans-IO."""

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the peer; b"" means that the peer has finished sending. The bytes are copied if kept."""

    def next_event(self) -> Received_co | Pull:
        """Return the next event, NEED_DATA or PAUSED.

        Raises RemoteProtocolError if the peer broke the protocol, after everything before the fault was delivered;
        every later call raises the same.
        """

    def send(self, event: Sent_contra) -> list[bytes]:
        """Return the bytes that encode `event`, as pieces to be joined or written in order.

        Raises LocalProtocolError if the protocol does not allow it now.
        """

    @property
    def buffered(self) -> int:
        """Bytes received and not yet delivered. Bounded by the protocol's limits whatever the peer does."""


class RecordEncoding(Struct, frozen=True):
    """An encoding of a protocol's own, in which batches of records may be stored as they came.

    `name` is the codec's, a dot, and more; it is stored with each batch, and never changes. Payloads of adjacent
    batches, joined, are a payload.

    `place(payload, first_seq_num, timestamps, event_times)` returns the payload of one batch with the number of its
    first record and these timestamps, which do not fall (None: those that it has), or None for numbers that the
    encoding cannot spell. If `event_times` is true, the records keep the times that they came with, too, as
    EVENT_TIME. `decode(payload, first_timestamp)` returns the records of placed payloads; `first_timestamp`: of the
    first record. It raises OperationFailed for a malformed payload, which no front appends.
    """

    name: str
    place: Callable[[bytes, int, Sequence[int] | None, bool], bytes | None]
    decode: Callable[[bytes, int], Columns]


class CodecPlugin(Struct, frozen=True):
    """The object that a distribution registers in entry-point group "penstock.codecs".

    `make(role, dialect)` returns a codec for one conversation with default limits; `dialects` lists the names that it
    takes, the default first. `sample` returns the bytes of a well-formed conversation as the *peer* of `role` would
    send it; the laws in `conformance` cut, mutate and truncate them. `limit` is the most bytes that the codec may ever
    hold. `listing` returns how `penstock decode` lists the fields of messages; None: it does not. `encodings`: those in
    which the protocol's batches may be stored.
    """

    name: str
    make: Callable[[Role, str], Codec[Any, Any]]
    dialects: tuple[str, ...]
    sample: Callable[[Role, str], bytes]
    limit: int
    listing: Callable[[], Listing] | None = None
    encodings: tuple[RecordEncoding, ...] = ()


def installed_codecs() -> dict[str, CodecPlugin]:
    """Return all installed codecs by name; see `penstock.wire.plugins.installed`."""
    return installed(ENTRY_POINT_GROUP, CodecPlugin)


@cache
def installed_encoding(name: str) -> RecordEncoding | None:
    """Return the encoding of this name; None if no installed codec has it. Other codecs are not loaded."""
    plugin = name.partition(".")[0]
    codec = installed(ENTRY_POINT_GROUP, CodecPlugin, only=plugin).get(plugin)
    return None if codec is None else next((encoding for encoding in codec.encodings if encoding.name == name), None)
