"""Unary calls of gRPC: the one message of a request, the headers of a call, and the status that ends it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from fuzz.laws import chosen, cuts

from penstock.wire.compression import Compression, compress
from penstock.wire.grpc import (
    Code,
    GrpcError,
    MessageReader,
    accepts_content_type,
    error_in,
    frame,
    status_fields,
    timeout_seconds,
)

LIMIT: Final = 500
"""Most bytes of a message."""
ENCODINGS: Final = (None, "identity", "gzip", "br")
WORDS: Final = (b"grpc-status", b"grpc-message", b"application/grpc+proto", b"99999999H", b"%E2%82%AC")


def seeds() -> Iterator[bytes]:
    """Yield a message in each encoding, a timeout, and a status."""
    for index in range(len(ENCODINGS)):
        yield bytes([index]) + frame(b"message")
    zipped = compress(Compression.GZIP, b"message" * 50)
    yield b"\2\1" + len(zipped).to_bytes(4, "big") + zipped
    yield bytes([len(ENCODINGS)]) + b"100m"
    yield bytes([len(ENCODINGS)]) + b"5:caf%C3%A9 %zz"


def check(data: bytes) -> None:
    """Check that a message does not depend on cuts, and is framed to bytes that give it again, and that statuses
    survive."""
    encoding, body = chosen((*ENCODINGS, "headers"), data)
    if encoding == "headers":
        _headers(body.decode("latin-1"))
        return
    whole = _read(encoding, [body])
    for pieces in cuts(body):
        cut = _read(encoding, pieces)
        assert cut == whole, f"whole gave {whole}, {pieces} gave {cut}"
    if isinstance(whole, bytes):
        assert len(whole) <= LIMIT
        assert _read(None, [frame(whole)]) == whole


def _read(encoding: str | None, pieces: list[bytes]) -> bytes | tuple[Code, str]:
    """Return the message or the error."""
    reader = MessageReader(encoding, LIMIT)
    try:
        for piece in pieces:
            reader.receive(piece)
        return reader.finish()
    except GrpcError as error:
        return error.code, error.message


def _headers(text: str) -> None:
    accepts_content_type(text)
    with contextlib.suppress(GrpcError):
        assert 0 <= timeout_seconds(text) < 4e11
    status, _, message = text.partition(":")
    found = error_in([("grpc-status", status), ("grpc-message", message)])
    if found is not None:
        again = error_in(status_fields(found.code, found.message))
        assert again is not None and again.code is found.code
        assert again.message == found.message.strip()[:500]
