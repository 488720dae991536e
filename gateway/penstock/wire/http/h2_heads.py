"""Convert header blocks from and to h2's form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

import h2.exceptions

from penstock.model.failures import LocalProtocolError
from penstock.wire.http.events import HttpHeaders, RequestHead, ResponseHead
from penstock.wire.http.header_names import header_name

__all__ = ["encoded", "request_fields", "request_head", "response_head", "trailers_of"]

_WORDS: Final = frozenset({b":method", b":scheme"})
_CONNECTION_HEADERS: Final = frozenset({"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"})


def request_head(stream_id: int, block: Any, default_scheme: str) -> RequestHead:
    """Return the head of a request. A scheme other than http and https is replaced by `default_scheme`."""
    pseudo, headers = _split(block)
    authority = pseudo.get(b":authority") or next((value for name, value in headers if name == "host"), "")
    expects = any(name == "expect" and value.lower() == "100-continue" for name, value in headers)
    scheme = pseudo.get(b":scheme", "")
    return RequestHead(
        stream_id,
        pseudo.get(b":method", ""),
        pseudo.get(b":path", ""),
        headers,
        authority,
        scheme if scheme in ("http", "https") else default_scheme,
        "2",
        expects,
    )


def response_head(stream_id: int, block: Any) -> ResponseHead:
    """Return the head of a response. Raises h2's ProtocolError without a valid status."""
    pseudo, headers = _split(block)
    status = pseudo.get(b":status", "")
    if not (len(status) == 3 and status.isascii() and status.isdigit()):
        raise h2.exceptions.ProtocolError(f"bad :status {status!r}")
    return ResponseHead(stream_id, int(status), headers)


def trailers_of(block: Any) -> tuple[tuple[str, str], ...]:
    """Return trailers, which have no pseudo-headers: h2 has refused those."""
    return _split(block)[1]


def _split(block: Any) -> tuple[dict[bytes, str], tuple[tuple[str, str], ...]]:
    pseudo: dict[bytes, str] = {}
    headers: list[tuple[str, str]] = []
    for name, value in cast(Iterable[tuple[bytes, bytes]], block):
        if name[0] == 58:  # a colon
            pseudo[name] = header_name(value) if name in _WORDS else value.decode("latin-1")
        else:
            headers.append((header_name(name), value.decode("latin-1")))
    return pseudo, tuple(headers)


def encoded(headers: HttpHeaders) -> list[tuple[bytes, bytes]]:
    """Return headers for h2, without those of HTTP/1.1 only. Raises LocalProtocolError for an invalid header."""
    pairs = [(name, value) for name, value in headers if name not in _CONNECTION_HEADERS]
    for name, value in pairs:
        wrong = not name or name[0] == ":" or name != name.lower()
        if wrong or any(bad in name or bad in value for bad in "\r\n\0"):
            raise LocalProtocolError(f"HTTP/2: not a header: {name!r}: {value!r}")
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]


def request_fields(head: RequestHead) -> list[tuple[bytes, bytes]]:
    """Return the fields of a request for h2. Raises LocalProtocolError for an invalid header, and
    UnicodeEncodeError."""
    return [
        (b":method", head.method.encode("latin-1")),
        (b":scheme", head.scheme.encode("latin-1")),
        (b":authority", head.authority.encode("latin-1")),
        (b":path", head.target.encode("latin-1")),
        *encoded(head.headers),
    ]
