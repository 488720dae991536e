"""Targets of `penstock replay --to` and `penstock diff`: servers by URL.

| URL | server |
|---|---|
| `s2://HOST:PORT[/BASIN]`, `http://...` | S2 in plaintext |
| `s2+tls://HOST:PORT[/BASIN]`, `https://...` | S2 over TLS |
| `s3p://HOST:PORT[/BASIN]` | S3P; with BASIN its streams are called `BASIN/stream` there |
| `segment://HOST:PORT[/SCOPE]`, `segment+draft://...` | a segment store, without a controller |
| `pravega://HOST:PORT[/SCOPE]` | Pravega by its controller, which says where the segments are |

`+tls` may follow each of Penstock's own schemes. BASIN or SCOPE holds all streams on the server, whatever basin they
were recorded in; without it each stream keeps its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.core.address import Address
from penstock.core.config_fields import check_basin, check_server
from penstock.core.segment_names import SegmentName
from penstock_codecs.failures import OperationFailed

__all__ = ["BadTarget", "Target", "TargetKind"]


class BadTarget(ValueError):
    """Raised for a URL that names no server; the message says why in one line."""


class TargetKind(Enum):
    """The server's protocol; the value is the `Conversation.protocol` that can be played to it untranslated."""

    S2 = "s2"
    S3P = "s3p"
    SEGMENT = "segment"
    PRAVEGA = "controller"


_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_ALIASES: Final = {"http": "s2", "https": "s2+tls"}
_KINDS: Final = {
    "s2": TargetKind.S2,
    "s3p": TargetKind.S3P,
    "segment": TargetKind.SEGMENT,
    "pravega": TargetKind.PRAVEGA,
}
_SUFFIXES: Final = {"segment": {"tls", "draft"}}
_EXAMPLE: Final = "s2://127.0.0.1:8080/my-basin, s3p://127.0.0.1:7500 or pravega://127.0.0.1:9090"


@dataclass(frozen=True, slots=True)
class Target:
    """A server. `space`: the basin or scope of all streams there; None: the recorded ones."""

    kind: TargetKind
    address: Address
    tls: bool = False
    draft: bool = False
    space: str | None = None

    @classmethod
    def parse(cls, url: str) -> Target:
        """Parse a URL. Raises BadTarget."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise BadTarget(f"{url!r}: {error}") from None
        name, *suffixes = _ALIASES.get(parts.scheme, parts.scheme).split("+")
        kind = _KINDS.get(name)
        if kind is None or not set(suffixes) <= _SUFFIXES.get(name, {"tls"}):
            raise BadTarget(f"{url!r} is no server: give a URL such as {_EXAMPLE}")
        if parts.query or parts.fragment or parts.username is not None:
            raise BadTarget(f"{url!r}: nothing but HOST:PORT and the name of a basin or scope can be said")
        port = _DEFAULT_PORTS.get(parts.scheme) if port is None else port
        if not parts.hostname or port is None:
            raise BadTarget(f"{url!r}: HOST:PORT is missing, as in {_EXAMPLE}")
        target = cls(
            kind, Address(parts.hostname, port), "tls" in suffixes, "draft" in suffixes, _space(url, parts.path)
        )
        target._check(url)
        return target

    def _check(self, url: str) -> None:
        try:
            check_server("address", str(self.address))
            if self.space is not None and self.kind in (TargetKind.S2, TargetKind.S3P):
                check_basin("basin", self.space)
            elif self.space is not None:
                SegmentName(self.space, "x")
        except ValueError as error:
            raise BadTarget(f"{url!r}: {error}") from None
        except OperationFailed as error:
            raise BadTarget(f"{url!r}: {error.failure.message}") from None

    @property
    def scheme(self) -> str:
        """The scheme of the target's URL."""
        name = next(name for name, kind in _KINDS.items() if kind is self.kind)
        return name + "+draft" * self.draft + "+tls" * self.tls

    def __str__(self) -> str:
        """Return the target's URL."""
        return f"{self.scheme}://{self.address}" + ("" if self.space is None else f"/{self.space}")


def _space(url: str, path: str) -> str | None:
    space, slash, rest = path.removeprefix("/").partition("/")
    if rest or (slash and not space):
        raise BadTarget(f"{url!r}: behind HOST:PORT stands the name of a basin or scope, and no more")
    return unquote(space) or None
