"""The fields of a record that are compared, and its digest."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.capture.dialogue import SeenRecord
from penstock.model.envelope import is_marked, unwrap

__all__ = ["BadField", "Digests", "Fields", "unwrapped_record"]

_DIGEST_BYTES: Final = 16
_HEADER: Final = "header:"
_OPTIONAL: Final = ("timestamp", "seq_num")
_MOST_ENVELOPES: Final = 8
"""Nested envelopes that are unwrapped; a gateway makes two at most, if a plain body begins like an envelope."""


class BadField(ValueError):
    """Raised for an unknown field; the text names the known ones."""


class Digests(NamedTuple):
    """The digests of a record, 16 bytes each; `rest`: the optional fields, in text."""

    body: bytes
    headers: bytes
    rest: bytes


class Fields(msgspec.Struct, frozen=True):
    """The fields to compare: body, and headers in their order without the ignored ones. Timestamp and sequence number
    are optional (`also`), since another server assigns others."""

    body: bool = True
    headers: bool = True
    ignored_headers: frozenset[bytes] = frozenset()
    also: frozenset[str] = frozenset()

    @classmethod
    def of(cls, ignore: Iterable[str], also: Iterable[str]) -> Fields:
        """Parse names of fields. `ignore`: `body`, `headers` or `header:NAME`. `also`: `timestamp` or `seq_num`. Raises
        BadField."""
        ignored = set(ignore)
        names = {word for word in ignored if word.startswith(_HEADER)}
        if unknown := sorted(ignored - names - {"body", "headers"}):
            raise BadField(f"{unknown[0]!r} cannot be ignored; expected body, headers or header:NAME")
        wanted = frozenset(also)
        if unknown := sorted(wanted - set(_OPTIONAL)):
            raise BadField(f"{unknown[0]!r} cannot be compared; expected {' or '.join(_OPTIONAL)}")
        headers = frozenset(word.removeprefix(_HEADER).encode() for word in names)
        return cls("body" not in ignored, "headers" not in ignored, headers, wanted)

    def digests(self, record: SeenRecord) -> Digests:
        """Return the digests of the fields that are compared; the others count as equal."""
        headers = b""
        if self.headers:
            headers = _digest(self._headers(record)) if record.headers else _NO_HEADERS
        rest = [(name, getattr(record, name)) for name in sorted(self.also)] if self.also else None
        return Digests(
            _digest(record.body) if self.body else b"",
            headers,
            repr(rest).encode() if rest else b"",
        )

    def _headers(self, record: SeenRecord) -> bytes:
        kept = [pair for pair in record.headers if pair[0] not in self.ignored_headers]
        # Length prefixes make the encoding unambiguous.
        return b"".join(b"%d:%b%d:%b" % (len(name), name, len(value), value) for name, value in kept)


def unwrapped_record(record: SeenRecord) -> SeenRecord:
    """Return the record that an envelope carries (`penstock.model.envelope`), at the position of the envelope; any
    other record as it is."""
    for _ in range(_MOST_ENVELOPES):
        if record.headers or not is_marked(record.body):
            break
        try:
            headers, body = unwrap(bytes(record.body))
        except ValueError:
            break
        record = replace(record, headers=headers, body=body)
    return record


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


_NO_HEADERS: Final = _digest(b"")
