"""The envelope: a record with headers, or with an empty body, as a body of bytes, and back.

It serves protocols whose records are bodies and nothing else. Layout, version 1; docs/loss.md shows one:

    f5 50 45 4e     mark; the first byte occurs in no UTF-8 text
    01              version
    ...             the record as S2's protobuf message AppendRecord (S2 fact sheet, section 4): headers and body

The timestamp is left out, since the record that carries the envelope has one. A record has exactly one envelope: other
spellings of the same message are refused.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from penstock.model.records import Header, Headers
from penstock_proto import records_pb2

__all__ = ["ENVELOPE_MARK", "is_marked", "unwrap", "wrap"]

ENVELOPE_MARK: Final = b"\xf5PEN"
VERSION: Final = b"\x01"


def is_marked(body: bytes) -> bool:
    """Return whether `body` is, or could be taken for, an envelope of any version."""
    return body.startswith(ENVELOPE_MARK)


def wrap(headers: Headers, body: bytes) -> bytes:
    """Return a record's envelope."""
    record = records_pb2.EnvelopedRecord(body=body)
    for name, value in headers:
        record.headers.add(name=name, value=value)
    return ENVELOPE_MARK + VERSION + record.SerializeToString(deterministic=True)


def unwrap(envelope: bytes) -> tuple[Headers, bytes]:
    """Return the record inside. Raises ValueError if this is not an envelope, or one of an unknown version."""
    if not is_marked(envelope):
        raise ValueError("the envelope's mark is missing")
    version = envelope[len(ENVELOPE_MARK) : len(ENVELOPE_MARK) + 1]
    if version != VERSION:
        raise ValueError(f"envelope version {version[0] if version else 'missing'} is not known, only {VERSION[0]}")
    try:
        record = records_pb2.EnvelopedRecord.FromString(envelope[len(ENVELOPE_MARK) + 1 :])
    except DecodeError:
        raise ValueError("the envelope does not hold a record") from None
    headers = tuple(Header(header.name, header.value) for header in record.headers)
    if wrap(headers, record.body) != envelope:
        raise ValueError("the envelope holds more than headers and body, or is not spelled canonically")
    return headers, record.body
