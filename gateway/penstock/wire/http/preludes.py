"""Preludes bring a reader of HTTP into the state of a running connection, for recordings that begin in its middle.

A prelude is a short piece of the protocol itself, one for each direction. A reader that reads it first understands the
following bytes as if it had read the connection from its first byte: the tables of compressed headers have the same
content (RFC 7541, 2.3), and the open requests and responses have their heads. A prelude was never sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

import h11
from h11._readers import ChunkedReader, ContentLengthReader
from h11._writers import ChunkedWriter, ContentLengthWriter
from hpack.hpack import encode_integer
from hpack.table import HeaderTable

from penstock.wire.http.chunked import ChunkedBody, chunk_framing
from penstock.wire.http.events import RequestHead, ResponseHead
from penstock.wire.http.h2_heads import encoded, request_fields
from penstock.wire.http.h2_stream import H2Stream
from penstock.wire.http.sniff import PREFACE

__all__ = ["TABLE_STREAM", "h1_framing", "h1_prelude", "h2_preludes"]

TABLE_STREAM: Final = 2**31 - 1
"""The stream whose head fills the table of an HTTP/2 prelude. It is not an exchange, and no real stream number is as
high."""
MAX_PRELUDE: Final = 48 * 1024
"""Most bytes of heads in an HTTP/2 prelude; heads of further streams are left out."""

_FRAME: Final = Struct(">HBBBL")
_HEADERS, _SETTINGS = 1, 4
_END_STREAM, _END_HEADERS = 0x1, 0x4
_MAX_FRAME_SIZE: Final = b"\x00\x05\x00\xff\xff\xff"
"""The setting with its largest value, so that frames of the largest size that the connection ever allowed can be
read."""
_USUAL_TABLE: Final = 4096
_INDEXED, _PLAIN, _RESIZED = 0x40, 0x00, 0x20
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})

Fields = Iterable[tuple[bytes, bytes]]
_CHUNKED: Final = b"transfer-encoding: chunked\r\n\r\n"
_OVER: Final = b"content-length: 0\r\n\r\n"


# ---- HTTP/2 ----------------------------------------------------------------------------------------------------------


class _OpenHead(NamedTuple):
    """The head of a message in progress on a stream. `over`: the message is complete."""

    stream_id: int
    fields: Fields
    over: bool


def h2_preludes(
    tables: tuple[HeaderTable, HeaderTable],
    streams: Mapping[int, H2Stream],
    unwritten: Collection[int],
    *,
    server: bool,
) -> tuple[bytes, bytes]:
    """Return the preludes for received and for sent bytes. `tables`: the dynamic tables of both, in this order;
    `unwritten`: streams whose message from us is not completely written."""
    requests, responses = list[_OpenHead](), list[_OpenHead]()
    for stream_id, stream in sorted(streams.items()):
        own_over = stream.ending and not stream.unsent and stream_id not in unwritten
        over = (stream.peer_done, own_over) if server else (own_over, stream.peer_done)
        if stream.request is not None:
            requests.append(_OpenHead(stream_id, request_fields(stream.request), over[0]))
        if stream.response is not None:
            fields = [(b":status", b"%d" % stream.response.status), *encoded(stream.response.headers)]
            responses.append(_OpenHead(stream_id, fields, over[1]))
    heads = (requests, responses) if server else (responses, requests)
    received, sent = map(_h2_prelude, tables, heads)
    return (PREFACE + received, sent) if server else (received, PREFACE + sent)


def _h2_prelude(table: HeaderTable, heads: Iterable[_OpenHead]) -> bytes:
    parts = [_frame(_SETTINGS, 0, 0, _MAX_FRAME_SIZE)]
    block = bytearray()
    if table.maxsize != _USUAL_TABLE:
        block += _integer(table.maxsize, 5, _RESIZED)
    for name, value in reversed(table.dynamic_entries):  # the newest is the first
        block += _literal(_INDEXED, name, value)
    parts.append(_frame(_HEADERS, _END_HEADERS | _END_STREAM, TABLE_STREAM, bytes(block)))
    size = 0
    for head in heads:
        block = bytearray()
        for name, value in head.fields:
            if name not in _FRAMING:  # some of the body has passed already
                block += _literal(_PLAIN, name, value)
        size += len(block)
        if size <= MAX_PRELUDE:
            flags = _END_HEADERS | (_END_STREAM if head.over else 0)
            parts.append(_frame(_HEADERS, flags, head.stream_id, bytes(block)))
    return b"".join(parts)


def _frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return _FRAME.pack(len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream_id) + payload


def _literal(kind: int, name: bytes, value: bytes) -> bytes:
    """Return a literal with a new name, and without Huffman code (RFC 7541, 6.2)."""
    return bytes([kind]) + _integer(len(name), 7, 0) + name + _integer(len(value), 7, 0) + value


def _integer(number: int, bits: int, first: int) -> bytes:
    if number < (1 << bits) - 1:
        return bytes((first | number,))
    encoded = encode_integer(number, bits)
    encoded[0] |= first
    return bytes(encoded)


# ---- HTTP/1.1 --------------------------------------------------------------------------------------------------------


def h1_framing(state: type, body: Any) -> bytes | None:
    """Return the framing of the rest of a body, from the last header on, for a side in a state of h11 with this reader
    or writer; None if it cannot be expressed."""
    if isinstance(body, ChunkedBody):
        rest = body.framing
        return _OVER if body.ended else None if rest is None else _CHUNKED + rest
    if state is not h11.SEND_BODY:
        return None if state is h11.ERROR else _OVER
    if isinstance(body, ContentLengthReader):
        return b"content-length: %d\r\n\r\n" % body._remaining
    if isinstance(body, ContentLengthWriter):
        return b"content-length: %d\r\n\r\n" % body._length
    if isinstance(body, ChunkedReader):
        return None if body._reading_trailer else _CHUNKED + chunk_framing(body._bytes_in_chunk, body._bytes_to_discard)
    return _CHUNKED if isinstance(body, ChunkedWriter) else b"\r\n"


def h1_prelude(head: RequestHead | ResponseHead | None, framing: bytes | None) -> bytes:
    """Return the prelude for the direction of this message; b"" without one. Raises TypeError without framing, and
    UnicodeEncodeError for a head that cannot be encoded."""
    if framing is None:
        raise TypeError("the remaining length is unknown")
    if head is None:
        return b""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head.headers]
    if isinstance(head, ResponseHead):
        first = b"HTTP/1.1 %d" % head.status
    else:
        first = f"{head.method} {head.target} HTTP/1.1".encode("latin-1")
        if all(name != b"host" for name, _ in headers):
            headers.append((b"host", head.authority.encode("latin-1")))
    kept = [name + b": " + value for name, value in headers if name.lower() not in _FRAMING]
    return b"\r\n".join([first, *kept, framing])
