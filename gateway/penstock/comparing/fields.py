"""What of a record is compared, and the digest that stands for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

from penstock_codecs.dialogue import SeenRecord

__all__ = ["BadField", "Digests", "Fields"]

_DIGEST_BYTES: Final = 16
_HEADER: Final = "header:"
_OPTIONAL: Final = ("timestamp", "seq_num")


class BadField(ValueError):
    """A field that there is not; the text names those that there are."""


class Digests(NamedTuple):
    """What two records are compared by, 16 bytes each; `rest`: of the fields that are compared only where one asks."""

    body: bytes
    headers: bytes
    rest: bytes


@dataclass(frozen=True, slots=True)
class Fields:
    """Body and headers are compared, in their order, but for the headers that are ignored; timestamp and sequence
    number only where one asks for it, since another server gives others."""

    body: bool = True
    headers: bool = True
    ignored_headers: frozenset[bytes] = frozenset()
    also: frozenset[str] = frozenset()

    @classmethod
    def of(cls, ignore: Iterable[str], also: Iterable[str]) -> Fields:
        """`ignore`: `body`, `headers` or `header:NAME`. `also`: `timestamp` or `seq_num`. Raises BadField."""
        ignored = set(ignore)
        names = {word for word in ignored if word.startswith(_HEADER)}
        if unknown := sorted(ignored - names - {"body", "headers"}):
            raise BadField(f"{unknown[0]!r} cannot be ignored: there are body, headers and header:NAME")
        wanted = frozenset(also)
        if unknown := sorted(wanted - set(_OPTIONAL)):
            raise BadField(f"{unknown[0]!r} cannot be compared: there are {' and '.join(_OPTIONAL)}")
        headers = frozenset(word.removeprefix(_HEADER).encode() for word in names)
        return cls("body" not in ignored, "headers" not in ignored, headers, wanted)

    def digests(self, record: SeenRecord) -> Digests:
        """Of the fields that are compared; the others count as equal."""
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
        # Lengths before texts: no two lists of headers look alike.
        return b"".join(b"%d:%b%d:%b" % (len(name), name, len(value), value) for name, value in kept)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


_NO_HEADERS: Final = _digest(b"")
