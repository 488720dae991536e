"""The bytes that the benchmark's clients send, built once by hand so that building them is not measured.

Spellings: S2S frames (S2 fact sheet, 2.1 and 4), HTTP/1.1 chunks (RFC 9112, 7.1), HTTP/2 frames (RFC 9113, 4.1 and
6), S3P 0.2.0 (sections 3 and 8), RESP2 for redis-server.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "BASIN",
    "MARKER",
    "append_frame",
    "body_of",
    "chunk",
    "durable_read_head",
    "event_stream_head",
    "h2_data",
    "h2_frame",
    "h2_head",
    "h2_opening",
    "h2_read_head",
    "h2_session_head",
    "read_session_head",
    "resp",
    "session_head",
    "small_request",
    "xadd",
]

BASIN = "benchmark"
MARKER = b"<#!#>"
"""The beginning of each record's body, which followers count. JSON leaves it as it is."""

_H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_H2_WINDOW = 2**31 - 1
_H2_SMALLEST_MAX_FRAME = 16_384


def body_of(size: int) -> bytes:
    """A record's body: the marker and filling, `size` bytes in all."""
    return (MARKER + b"abcdefghijklmnopqrstuvwxyz0123456789" * (size // 36 + 1))[:size]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def append_frame(body: bytes, count: int) -> bytes:
    """One S2S frame: an AppendInput with `count` records of this body."""
    record = b"\x1a" + _varint(len(body)) + body
    payload = (b"\x0a" + _varint(len(record)) + record) * count
    return (1 + len(payload)).to_bytes(3, "big") + b"\x00" + payload


def chunk(data: bytes) -> bytes:
    """`data` as one chunk of an HTTP/1.1 body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def _head(method: str, path: str, *headers: str) -> bytes:
    lines = (f"{method} {path} HTTP/1.1", "host: localhost", f"s2-basin: {BASIN}", *headers)
    return "\r\n".join((*lines, "", "")).encode()


def session_head(stream: str) -> bytes:
    """The head that opens an append session over HTTP/1.1."""
    return _head("POST", f"/v1/streams/{stream}/records", "content-type: s2s/proto", "transfer-encoding: chunked")


def read_session_head(stream: str, query: str) -> bytes:
    """A read session over HTTP/1.1 on a connection of its own, which ends with the answer."""
    return _head("GET", f"/v1/streams/{stream}/records?{query}", "content-type: s2s/proto", "connection: close")


def event_stream_head(stream: str, query: str) -> bytes:
    """A read by server-sent events over HTTP/1.1 on a connection of its own, which ends with the answer."""
    return _head("GET", f"/v1/streams/{stream}/records?{query}", "accept: text/event-stream", "connection: close")


def small_request(kind: str, stream: str, body: bytes) -> bytes:
    """A request with one answer over HTTP/1.1: "append" of one record as JSON, or "read" of a stream's first record."""
    if kind == "read":
        return _head("GET", f"/v1/streams/{stream}/records?seq_num=0&count=1", "accept: application/json")
    content = b'{"records":[{"body":"%s"}]}' % body
    words = ("content-type: application/json", f"content-length: {len(content)}")
    return _head("POST", f"/v1/streams/{stream}/records", *words) + content


def durable_read_head(stream: str) -> bytes:
    """A read of a whole stream of Durable Streams over HTTP/1.1."""
    return _head("GET", f"/v1/stream/{stream}?offset=-1")


def h2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One HTTP/2 frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def h2_data(data: bytes) -> bytes:
    """`data` as DATA frames of stream 1."""
    pieces = (data[at : at + _H2_SMALLEST_MAX_FRAME] for at in range(0, len(data), _H2_SMALLEST_MAX_FRAME))
    return b"".join(h2_frame(0x0, 0, 1, piece) for piece in pieces)


def _literal(name: str, value: str) -> bytes:
    """A header field that is never indexed (RFC 7541, 6.2.2), for names and values under 127 bytes."""
    return b"\x00" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


def h2_opening() -> bytes:
    """The preface of a client, with settings and a connection window that are as wide as they may be."""
    settings = (0x4).to_bytes(2, "big") + _H2_WINDOW.to_bytes(4, "big")
    window = (_H2_WINDOW - 65_535).to_bytes(4, "big")
    return _H2_PREFACE + h2_frame(0x4, 0, 0, settings) + h2_frame(0x8, 0, 0, window)


def h2_head(method: str, path: str, name: str, value: str) -> bytes:
    """The header block of a request with one header of its own, for any stream."""
    fields = {":method": method, ":scheme": "http", ":authority": "localhost", ":path": path}
    fields |= {"s2-basin": BASIN, name: value}
    return b"".join(_literal(name, value) for name, value in fields.items())


def h2_session_head(stream: str) -> bytes:
    """The header block that opens an append session."""
    return h2_head("POST", f"/v1/streams/{stream}/records", "content-type", "s2s/proto")


def h2_read_head(stream: str, query: str, *, events: bool = False) -> bytes:
    """The header block of a read session, or of a read by server-sent events."""
    kind = ("accept", "text/event-stream") if events else ("content-type", "s2s/proto")
    return h2_head("GET", f"/v1/streams/{stream}/records?{query}", *kind)


def resp(*arguments: bytes | Sequence[bytes]) -> bytes:
    """A command of bulk strings; where an argument is a sequence, as S3P has them, an array in its place."""

    def bulk(value: bytes) -> bytes:
        return b"$%d\r\n%s\r\n" % (len(value), value)

    def spell(argument: bytes | Sequence[bytes]) -> bytes:
        if isinstance(argument, bytes):
            return bulk(argument)
        return b"*%d\r\n" % len(argument) + b"".join(map(bulk, argument))

    return b"*%d\r\n" % len(arguments) + b"".join(map(spell, arguments))


def xadd(stream: str, body: bytes, count: int) -> bytes:
    """`count` XADD commands in a row: what redis has in the place of a batch."""
    return resp(b"XADD", stream.encode(), b"*", b"b", body) * count
