"""The names in a client's certificate, and the patterns that a configuration matches them with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from penstock.core.matching import Match, NamePattern

__all__ = ["CertificateName", "CertificatePattern", "names_in"]

_KINDS: Final = {"DNS": "dns", "URI": "uri", "email": "email"}
"""The kinds by their names in Python's `ssl`."""
_PATTERN: Final = re.compile(r"(?:(dns|uri|email|cn):)(.+)")
_FOLDED: Final = frozenset({"dns", "email"})
"""Kinds that are compared without regard to case. (Mailboxes may differ by case; in practice they never do.)"""


class CertificateName(NamedTuple):
    """A name in a certificate.

    `kind`: `dns`, `uri` or `email` for alternative names, `cn` for the common name of the subject. A name matches only
    patterns of its own kind, since an authority checks each kind in its own way.
    """

    kind: str
    text: str


class CertificatePattern(msgspec.Struct, frozen=True):
    """A glob for names of one kind: `*` matches anything without a slash, `**` anything, `?` one character."""

    kind: str
    pattern: NamePattern

    @classmethod
    def parse(cls, text: str) -> CertificatePattern:
        """Parse `KIND:GLOB`, or a whole `spiffe://...`. Raises ValueError."""
        match = _PATTERN.fullmatch(f"uri:{text}" if text.startswith("spiffe://") else text)
        if match is None:
            raise ValueError(
                f"certificates: expected dns:, uri:, email: or cn: and a glob, or spiffe://..., got {text!r:.80}"
            )
        kind, glob = match.groups()
        return cls(kind, NamePattern.compile(Match.GLOB, glob.lower() if kind in _FOLDED else glob))

    def match(self, name: CertificateName) -> bool:
        """Return whether the name matches."""
        if name.kind != self.kind:
            return False
        text = name.text.lower() if name.kind in _FOLDED else name.text
        return self.pattern.match(text) is not None


def names_in(certificate: Mapping[str, Any] | None) -> list[CertificateName]:
    """Return the names in a peer's certificate, as `ssl.SSLObject.getpeercert` returns it; none if there is no
    certificate or it was not checked against an authority."""
    return list(_names(certificate)) if certificate else []


def _names(certificate: Mapping[str, Any]) -> Iterator[CertificateName]:
    for kind, text in certificate.get("subjectAltName", ()):
        if kind in _KINDS:
            yield CertificateName(_KINDS[kind], text)
    for part in certificate.get("subject", ()):
        for key, text in part:
            if key == "commonName":
                yield CertificateName("cn", text)
