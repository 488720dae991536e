"""Prepared rules: find the secret parts of a header's value, a line or a text."""

from __future__ import annotations

import re
from binascii import a2b_base64
from typing import Final
from urllib.parse import unquote_to_bytes

from penstock.capture.plugin import plugins
from penstock.capture.redaction.leaves import Leaves
from penstock.capture.redaction.rules import RedactionRules
from penstock.capture.redaction.text import Patterns, Span

__all__ = ["Secrets"]

_WITH_SCHEME: Final = frozenset({b"authorization", b"proxy-authorization"})
_SCHEME: Final = re.compile(
    rb"(?:Basic|Bearer|Digest|DPoP|HOBA|Mutual|Negotiate|NTLM|Token|ApiKey|VAPID|SCRAM-SHA-(?:1|256)"
    rb"|AWS4-HMAC-SHA256)[ \t]+(?=[^ \t])",
    re.IGNORECASE,
)
"""The schemes that stay to be read. Another first word may be the secret itself."""
_WITH_URL: Final = frozenset({b":path", b"referer", b"location", b"content-location"})
_FRAMING: Final = frozenset(
    {
        b":method",
        b":scheme",
        b":status",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"grpc-encoding",
        b"transfer-encoding",
    }
)
"""Headers without which nothing could be read; patterns are not looked for in them, nor in those that plug-ins name."""
_WITH_USER: Final = frozenset({b":authority", b"host"})
_USER: Final = re.compile(rb"//([^/?#\s]+)@")
_PARAMETER: Final = re.compile(rb"[?&;#]([^?&;#=\s]*)=([^&;#]+)")
_QUOTED: Final = re.compile(rb"%[0-9A-Fa-f]{2}")
_BINARY: Final = b"-bin"
"""Suffix of names of gRPC metadata with base64 values."""
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]+")


class Secrets:
    """Rules prepared for one Redactor. Raises ValueError for a pattern that is not a regular expression."""

    def __init__(self, rules: RedactionRules) -> None:
        self.tokens = rules.tokens
        self.headers = frozenset(name.strip().lower().encode() for name in rules.headers)
        self.parameters = frozenset(name.lower().encode() for name in rules.parameters)
        self.record_headers = frozenset(rules.record_headers)
        self.patterns = Patterns(rules.patterns, rules.longest_match)
        self._framing = _FRAMING.union(name.encode() for plugin in plugins().values() for name in plugin.format_headers)
        self.wanted = self._framing | {b":path"}
        """Headers whose values tell how bodies are to be read."""
        self.leaves = Leaves(self.patterns, self.record_headers, tokens=rules.tokens)

    @property
    def looks_inside(self) -> bool:
        """True if bodies of every kind must be inspected."""
        return bool(self.patterns or self.record_headers)

    def in_header(self, name: bytes, value: bytes) -> list[Span]:
        """Return the secret parts of a header's value. `name`: in lower case; empty if it is unknown."""
        if not name or name in self.headers:
            scheme = _SCHEME.match(value) if name in _WITH_SCHEME else None
            start = scheme.end() if scheme else 0
            return [(start, len(value))] if start < len(value) else []
        spans = self.in_target(value) if name in _WITH_URL else []
        if name in _WITH_USER and b"@" in value:
            spans.append((0, value.rindex(b"@")))
        if self.patterns and name not in self._framing:
            spans += self.matches_in_url(value)
            if name.endswith(_BINARY):
                spans += self._in_base64(value)
        return spans

    def in_name(self, name: bytes) -> list[Span]:
        """Return the matches in a header's name, as spelled."""
        return [] if not self.patterns or name.strip().lower() in self._framing else self.patterns.spans(name)

    def in_target(self, target: bytes) -> list[Span]:
        """Return the secret parts of a URL, or of a line that holds one: user, password, values of parameters."""
        spans = [match.span(1) for match in _USER.finditer(target)] if b"@" in target else []
        if b"=" in target and self.parameters:
            spans += [
                match.span(2)
                for match in _PARAMETER.finditer(target)
                if unquote_to_bytes(match[1]).lower() in self.parameters
            ]
        return spans

    def matches_in_url(self, text: bytes) -> list[Span]:
        """Return matches in a URL, or in other text that may be percent-encoded, both as spelled and decoded."""
        spans = self.patterns.spans(text)
        if self.patterns and _QUOTED.search(text):
            places: list[int] = []
            at = 0
            for quoted in _QUOTED.finditer(text):
                places += range(at, quoted.start() + 1)
                at = quoted.end()
            places += range(at, len(text) + 1)
            spans += [(places[start], places[end]) for start, end in self.patterns.spans(unquote_to_bytes(text))]
        return spans

    def _in_base64(self, value: bytes) -> list[Span]:
        """Return matches in the decoded bytes of one base64 value or several, padded or not."""
        spans = []
        for coded in _BASE64.finditer(value):
            raw = coded[0][: len(coded[0]) - (len(coded[0]) % 4 == 1)]
            for start, end in self.patterns.spans(a2b_base64(raw + b"=" * (-len(raw) % 4))):
                first, last = coded.start() + start // 3 * 4, coded.start() + -(-end // 3) * 4
                spans.append((first, min(last, coded.end())))
        return spans
