"""The running hash of a stream's records, one for each side; docs/management.md says how others compute it.

A chain: each record's hash is SHA-256 over the hash before it (32 bytes of zero at first) and the record. So it goes
on from what was kept of it, whereas the inside of one long hash could not be kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from penstock_codecs.model import Record

__all__ = ["NO_RECORDS", "alone", "chain"]

NO_RECORDS: Final = bytes(32)


def alone(record: Record, timestamps: bool) -> str:
    """The hash of one record as if it were the first, in hexadecimal."""
    return chain(NO_RECORDS, [record], timestamps).hex()


def chain(before: bytes, records: Iterable[Record], timestamps: bool) -> bytes:
    """The hash after these records, which follow those that `before` is the hash of.

    Of a record are hashed: with `timestamps` its timestamp in ms as 8 bytes; the number of headers as 4 bytes, and of
    each header name and value; the body. Name, value and body follow their length in 4 bytes. Numbers are big-endian.
    """
    for record in records:
        pieces = [before]
        if timestamps:
            pieces.append(record.timestamp.to_bytes(8, "big"))
        pieces.append(len(record.headers).to_bytes(4, "big"))
        for text in (text for header in record.headers for text in header):
            pieces += (len(text).to_bytes(4, "big"), text)
        pieces += (len(record.body).to_bytes(4, "big"), record.body)
        before = hashlib.sha256(b"".join(pieces)).digest()
    return before
