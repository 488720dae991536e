"""The rules made ready: which parts of a header's value, a line or a text are secret."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from penstock_codecs.redaction.rules import RedactionRules
from penstock_codecs.redaction.text import Patterns, Span

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
        b"s2-format",
        b"transfer-encoding",
    }
)
"""Headers without which nothing could be read; patterns are not looked for in them."""
_WITH_USER: Final = frozenset({b":authority", b"host"})
_USER: Final = re.compile(rb"//([^/?#@\s]+)@")
_PARAMETER: Final = re.compile(rb"[?&;#]([^?&;#=\s]*)=([^&;#\s]+)")


class Secrets:
    """What rules say, for one Redactor. Raises ValueError for patterns that are none."""

    def __init__(self, rules: RedactionRules) -> None:
        self.tokens = rules.tokens
        self.headers = frozenset(name.strip().lower().encode() for name in rules.headers)
        self.parameters = frozenset(name.lower().encode() for name in rules.parameters)
        self.record_headers = frozenset(rules.record_headers)
        self.patterns = Patterns(rules.patterns, rules.longest_match)

    @property
    def looks_inside(self) -> bool:
        """Whether bodies have to be looked into, whatever they hold."""
        return bool(self.patterns or self.record_headers)

    def in_header(self, name: bytes | None, value: bytes) -> list[Span]:
        """What is secret in a header's value. `name` in lower case; None for one that nobody knows."""
        if name is None or name in self.headers:
            scheme = _SCHEME.match(value) if name in _WITH_SCHEME else None
            start = scheme.end() if scheme else 0
            return [(start, len(value))] if start < len(value) else []
        found = self.in_target(value) if name in _WITH_URL else []
        if name in _WITH_USER and b"@" in value:
            found.append((0, value.rindex(b"@")))
        return found + self.patterns.spans(value) if self.patterns and name not in _FRAMING else found

    def in_target(self, target: bytes) -> list[Span]:
        """What is secret in a URL, or in a line that has one: user and password, and values of parameters."""
        found = [match.span(1) for match in _USER.finditer(target)] if b"@" in target else []
        if b"=" in target and self.parameters:
            found += [
                match.span(2)
                for match in _PARAMETER.finditer(target)
                if unquote_to_bytes(match[1]).lower() in self.parameters
            ]
        return found
