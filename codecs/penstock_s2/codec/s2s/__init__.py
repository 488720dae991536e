"""S2S: S2's binary sessions inside HTTP bodies (S2 fact sheet, section 2).

`frames` is the framing, `sessions` the four ends of the two kinds of session. As a plug-in each kind of session is a
dialect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.model.failures import Failure, FailureCode
from penstock.model.operations import Append, Appended
from penstock.model.records import Columns, Header, RecordBatch, StreamPosition, StreamRef, metered_size
from penstock.wire.codec import Codec, CodecPlugin, Role
from penstock.wire.listing import Listing
from penstock_s2.codec.s2s.frames import MAX_HELD
from penstock_s2.codec.s2s.sessions import AppendClient, AppendServer, ReadClient, ReadServer

__all__ = ["PLUGIN", "AppendClient", "AppendServer", "ReadClient", "ReadServer"]

APPEND, READ = "append", "read"

_STREAM = StreamRef("sample-basin", "sample")
_BODIES = [b"hi", b"", b"x" * 300]
_HEADERS = {0: (Header(b"k", b"v"),)}
_SAMPLE_APPENDS = [
    Append(_STREAM, _BODIES, metered_size(_BODIES, _HEADERS), headers=_HEADERS, match_seq_num=0),
    Append(_STREAM, [b"again"], 13, timestamps=[1000], fencing_token=""),
]


def _append_client() -> AppendClient:
    """Return a client that has sent the sample's inputs, since it accepts acknowledgements only of what it sent."""
    client = AppendClient()
    for append in _SAMPLE_APPENDS:
        client.send(append)
    return client


_MAKE: dict[tuple[Role, str], Callable[[], Codec[Any, Any]]] = {
    (Role.SERVER, APPEND): lambda: AppendServer(_STREAM),
    (Role.CLIENT, APPEND): _append_client,
    (Role.SERVER, READ): ReadServer,
    (Role.CLIENT, READ): ReadClient,
}


def _sample_appends() -> list[bytes]:
    client = AppendClient()
    return [piece for append in _SAMPLE_APPENDS for piece in client.send(append)]


def _sample_acks() -> list[bytes]:
    server = AppendServer(_STREAM)
    server.receive(b"".join(_sample_appends()))
    pieces: list[bytes] = []
    seq_num = 0
    while isinstance(append := server.next_event(), Append):
        start = StreamPosition(seq_num, 1000)
        seq_num += len(append.bodies)
        end = StreamPosition(seq_num, 1000)
        pieces += server.send(Appended(start, end, end))
    return pieces


def _sample_reads() -> list[bytes]:
    batch = RecordBatch(Columns(range(3), [1000] * 3, _BODIES, _HEADERS))
    server = ReadServer()
    ending = Failure(FailureCode.UNAVAILABLE, "sample")
    return [*server.send(batch), *server.send(StreamPosition(3, 1000)), *server.send(ending)]


_SAMPLE: dict[tuple[Role, str], Callable[[], list[bytes]]] = {
    (Role.SERVER, APPEND): _sample_appends,
    (Role.CLIENT, APPEND): _sample_acks,
    (Role.SERVER, READ): list,
    (Role.CLIENT, READ): _sample_reads,
}


def _listing() -> Listing:
    from penstock_s2.codec.s2s.listing import LISTING  # here, because only `penstock decode` needs it

    return LISTING


PLUGIN = CodecPlugin(
    name="s2s",
    make=lambda role, dialect: _MAKE[role, dialect](),
    dialects=(APPEND, READ),
    sample=lambda role, dialect: b"".join(_SAMPLE[role, dialect]()),
    limit=MAX_HELD,
    listing=_listing,
)
