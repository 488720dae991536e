"""The names in a client's certificate, and the patterns by which a configuration knows them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.routing.matching import Match, NamePattern

__all__ = ["CertificateName", "CertificatePattern", "names_in"]


class CertificateName(NamedTuple):
    """`kind`: `dns`, `uri` or `email` of the alternative names, `cn` for the common name of the subject. Names are
    never mixed up among kinds: an authority vouches for each in its own way."""

    kind: str
    text: str


_KINDS: Final = {"DNS": "dns", "URI": "uri", "email": "email"}
"""What Python's `ssl` calls them."""
_PATTERN: Final = re.compile(r"(?:(dns|uri|email|cn):)(.+)")
_FOLDED: Final = frozenset({"dns", "email"})
"""Kinds in which capitals are not told from small letters. (Mailboxes could be; nobody gives them to different people.)
"""


@dataclass(frozen=True, slots=True)
class CertificatePattern:
    """A glob for names of one kind: `*` for anything without a slash, `**` for anything, `?` for one character."""

    kind: str
    pattern: NamePattern

    @classmethod
    def parse(cls, text: str) -> CertificatePattern:
        """From `KIND:GLOB`, or a whole `spiffe://...`. Raises ValueError."""
        found = _PATTERN.fullmatch(f"uri:{text}" if text.startswith("spiffe://") else text)
        if found is None:
            raise ValueError(
                f"certificates: expected dns:, uri:, email: or cn: and a glob, or spiffe://..., got {text!r:.80}"
            )
        kind, glob = found.groups()
        return cls(kind, NamePattern.compile(Match.GLOB, glob.lower() if kind in _FOLDED else glob))

    def match(self, name: CertificateName) -> bool:
        """Whether it is such a name."""
        if name.kind != self.kind:
            return False
        text = name.text.lower() if name.kind in _FOLDED else name.text
        return self.pattern.match(text) is not None


def names_in(certificate: Mapping[str, Any] | None) -> list[CertificateName]:
    """Of a peer's certificate as `ssl.SSLObject.getpeercert` has it; none without one, or for one that was not checked
    against an authority."""
    return list(_names(certificate)) if certificate else []


def _names(certificate: Mapping[str, Any]) -> Iterator[CertificateName]:
    for kind, text in certificate.get("subjectAltName", ()):
        if kind in _KINDS:
            yield CertificateName(_KINDS[kind], text)
    for part in certificate.get("subject", ()):
        for key, text in part:
            if key == "commonName":
                yield CertificateName("cn", text)
