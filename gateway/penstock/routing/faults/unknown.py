"""Answers over HTTP with a header and a field that their specification does not have, which a client must ignore."""

from __future__ import annotations

from typing import Final

from penstock.net.http.exchange import HeaderList

__all__ = ["with_unknown"]

_HEADER: Final = ("penstock-unknown", "1")
_JSON: Final = b'{"penstock_unknown":{"list":[1,"two",null]}'
_PROTOBUF: Final = bytes.fromhex("c2bb0103") + b"new"
"""Field 3000 with three bytes (the encoding of protobuf: tag, length, value)."""
_PROTOBUF_TYPES: Final = ("application/protobuf", "application/x-protobuf")


def with_unknown(headers: HeaderList, body: bytes, own_bodies: bool) -> tuple[HeaderList, bytes]:
    """Return an answer with one more header, and a body with one more field if it is an object of JSON or a message of
    protobuf. `own_bodies`: bodies are the protocol's messages; False: they may be a user's data, and stay."""
    headers = list(headers)
    fields = {name.lower(): value for name, value in headers}
    media = fields.get("content-type", "").partition(";")[0].strip().lower()
    if own_bodies and body and "content-encoding" not in fields:
        if media == "application/json" and body.startswith(b"{"):
            rest = body[1:].lstrip()
            body = _JSON + (b"" if rest.startswith(b"}") else b",") + rest
        elif media in _PROTOBUF_TYPES:
            body += _PROTOBUF
    return [*headers, _HEADER], body
