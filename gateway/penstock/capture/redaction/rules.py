"""Redaction rules: what counts as secret."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.capture.plugin import plugins

__all__ = ["SECRET_PARAMETERS", "RedactionRules", "secret_headers"]


SECRET_PARAMETERS: Final = (
    "access_token",
    "api_key",
    "apikey",
    "auth_token",
    "client_secret",
    "id_token",
    "password",
    "refresh_token",
    "token",
)
"""Parameters of a URL's query whose values are never written, unless a configuration says so."""


def secret_headers() -> tuple[str, ...]:
    """Return the HTTP headers (and gRPC metadata) whose values are never written, unless a configuration says so."""
    of_protocols = [name for plugin in plugins().values() for name in plugin.secret_headers]
    return ("authorization", "proxy-authorization", "cookie", "set-cookie", *of_protocols)


class RedactionRules(msgspec.Struct, frozen=True):
    """Rules that select the bytes to blank.

    `headers`: names of HTTP headers and gRPC metadata, in any case, whose values are blanked. `parameters`: names of
    query parameters, in any case, likewise. `tokens`: access and delegation tokens inside messages are blanked (those
    that the protocols have). `record_headers`: names of record headers
    whose values are blanked. `patterns`: regular expressions (bytes) that are blanked wherever they match in heads,
    bodies and plain text; a match may have `longest_match` bytes at most, including what a lookahead inspects.
    """

    headers: tuple[str, ...] = msgspec.field(default_factory=secret_headers)
    tokens: bool = True
    record_headers: tuple[bytes, ...] = ()
    patterns: tuple[bytes, ...] = ()
    longest_match: int = 1024
    parameters: tuple[str, ...] = SECRET_PARAMETERS

    def effects(self, protocol: str) -> dict[str, str]:
        """Return what these rules blank and withhold in a protocol, by the rule's key in the configuration."""
        redacts = plugins()[protocol].redacts if protocol in plugins() else {}
        active = {key for key in redacts if key != "withheld" and getattr(self, key)}
        if self.record_headers or self.patterns:
            active.add("withheld")
        return {key: effect for key, effect in redacts.items() if key in active}
