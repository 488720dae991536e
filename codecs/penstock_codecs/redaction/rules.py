"""What is secret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["SECRET_HEADERS", "RedactionRules"]

SECRET_HEADERS: Final = ("authorization", "proxy-authorization", "cookie", "set-cookie")
"""HTTP headers (and gRPC metadata) whose values are never written, unless a configuration says so."""


@dataclass(frozen=True, slots=True)
class RedactionRules:
    """`headers`: names of HTTP headers and gRPC metadata, in lower case, whose values are blanked. `tokens`: access and
    delegation tokens inside messages are blanked (the segment protocol's, the controller's, S2's access-token API).
    `record_headers`: names of record headers whose values are blanked. `patterns`: regular expressions (bytes) of what is
    blanked wherever it stands in bodies and in plain text; a match may have `longest_match` bytes at the most.
    """

    headers: tuple[str, ...] = SECRET_HEADERS
    tokens: bool = True
    record_headers: tuple[bytes, ...] = ()
    patterns: tuple[bytes, ...] = ()
    longest_match: int = 1024
