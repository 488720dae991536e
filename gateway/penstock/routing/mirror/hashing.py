"""The running hash of a stream's records, one for each side; docs/management.md specifies it for other programs.

It is a chain: the hash after each record is SHA-256 over the hash before it (32 zero bytes at first) and the record. A
chain can continue from a saved hash, whereas the internal state of one long hash could not be saved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.model.records import Record

__all__ = ["NO_RECORDS", "HashedParts", "alone", "chain"]

NO_RECORDS: Final = bytes(32)


class HashedParts(NamedTuple):
    """The parts of a stream's records that its hashes cover beside bodies: those that both sides keep."""

    timestamps: bool
    headers: bool


def alone(record: Record, parts: HashedParts) -> str:
    """Return the hash of one record as if it were the first, in hexadecimal."""
    return chain(NO_RECORDS, [record], parts).hex()


def chain(before: bytes, records: Iterable[Record], parts: HashedParts) -> bytes:
    """Return the hash after these records; `before` is the hash after the records before them.

    The hashed parts of a record are: with `timestamps`, its timestamp in ms as 8 bytes; the number of headers as 4
    bytes, 0 without `headers`; name and value of each header; the body. Name, value and body are preceded by their
    length in 4 bytes. Numbers are big-endian.
    """
    for record in records:
        pieces = [before]
        if parts.timestamps:
            pieces.append(record.timestamp.to_bytes(8, "big"))
        headers = record.headers if parts.headers else ()
        pieces.append(len(headers).to_bytes(4, "big"))
        for text in (text for header in headers for text in header):
            pieces += (len(text).to_bytes(4, "big"), text)
        pieces += (len(record.body).to_bytes(4, "big"), record.body)
        before = hashlib.sha256(b"".join(pieces)).digest()
    return before
