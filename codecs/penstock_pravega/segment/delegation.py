"""Delegation tokens of the segment protocol: the controller signs a client's permissions on a stream, the segment
listener verifies them. As in Pravega, they are JSON web tokens (RFC 7519) with the audience "segmentstore", which map a
resource `prn::/scope:SCOPE/stream:STREAM` to a permission.

Clients read the expiry from a token, and some decode its payload as standard base64 rather than base64url. The encoded
payload must therefore have no `-` or `_`, which only the ASCII characters in `_ESCAPED` can produce.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.core.clock import Clock, wall_clock

__all__ = ["READ", "READ_UPDATE", "Delegated", "Delegation", "TokenRejected", "load_key"]

READ: Final = "READ"
READ_UPDATE: Final = "READ_UPDATE"

KEY_BYTES: Final = 32
"""Bytes of a generated key, and the minimum for a key in a file, as HMAC-SHA256 requires (RFC 7518, 3.2)."""

_AUDIENCE: Final = "segmentstore"
_ALGORITHM: Final = "HS256"
_RESOURCE: Final = "prn::/scope:{}/stream:{}"
_TABLE_SUFFIX: Final = "_kvtable"
_ESCAPED: Final = {ord(one): f"\\u{ord(one):04x}" for one in ">?~\x7f"}
_REMEMBERED: Final = 1000
"""Verified tokens that are cached: a client sends the same one with each request."""


class TokenRejected(Exception):
    """An invalid token. `expired`: it was valid until it expired, so the client can retry with a new one."""

    def __init__(self, reason: str, *, expired: bool = False) -> None:
        super().__init__(reason)
        self.expired = expired


class Delegated(msgspec.Struct, frozen=True):
    """The claims of a token: its subject, expiry (ms since the Unix epoch), and permissions by resource."""

    subject: str
    expires_ms: int
    permissions: Mapping[str, str]

    def allows(self, segment: str, *, changes: bool) -> bool:
        """Return whether the token covers a segment of its stream, or one that belongs to the stream. `changes`:
        whether it must cover more than reading."""
        scope, _, rest = segment.partition("/")
        stream = rest.partition("/")[0]
        names = (stream, stream.removesuffix(_TABLE_SUFFIX))  # clients ask for tokens by the table's own name
        permission = next(filter(None, (self.permissions.get(_RESOURCE.format(scope, name)) for name in names)), None)
        return permission == READ_UPDATE or (permission == READ and not changes)


class Delegation:
    """Issuer and verifier of tokens. All processes of a gateway have the same key."""

    def __init__(self, key: bytes, seconds: int, clock: Clock = wall_clock) -> None:
        """`seconds`: the lifetime of a token. `clock` returns ms since the Unix epoch."""
        self._key = key
        self._seconds = seconds
        self._clock = clock
        self._known: dict[str, Delegated] = {}

    def issue(self, subject: str, scope: str, stream: str, permission: str = READ_UPDATE) -> str:
        """Return a new token for one stream."""
        now = self._clock() // 1000
        claims = {
            "sub": subject,
            "aud": _AUDIENCE,
            "iat": now,
            "exp": now + self._seconds,
            _RESOURCE.format(scope, stream): permission,
        }
        import jwt  # it takes long to import, and most listeners have no tokens

        payload = json.dumps(claims, separators=(",", ":")).translate(_ESCAPED)
        return jwt.PyJWS().encode(payload.encode("ascii"), self._key, algorithm=_ALGORITHM)

    def check(self, token: str) -> Delegated:
        """Verify a token and return its claims. Raises TokenRejected."""
        delegated = self._known.get(token)
        if delegated is None:
            delegated = self._read(token)
            if len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[token] = delegated
        if self.is_over(delegated.expires_ms):
            raise TokenRejected("the delegation token has expired", expired=True)
        return delegated

    def is_over(self, expires_ms: int) -> bool:
        """Return whether this expiry time (ms since the Unix epoch) has passed."""
        return expires_ms <= self._clock()

    def _read(self, token: str) -> Delegated:
        import jwt

        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key,
                algorithms=[_ALGORITHM],
                audience=_AUDIENCE,
                options={"require": ["sub", "aud", "exp"], "verify_exp": False, "verify_iat": False},
            )
        except jwt.InvalidTokenError as error:
            raise TokenRejected(f"this delegation token was not issued here: {error}") from None
        permissions = {name: value for name, value in claims.items() if name.startswith("prn::")}
        return Delegated(str(claims["sub"]), int(claims["exp"]) * 1000, permissions)


def load_key(path: Path) -> bytes:
    """Return the key in a file. If the file is missing, create it with a new key, readable by its owner only; processes
    that do so at once get the same key. Raises OSError, and ValueError for a key that is too short."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        ours = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        with os.fdopen(os.open(ours, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        try:
            with contextlib.suppress(FileExistsError):  # another process was faster
                os.link(ours, path)
        finally:
            ours.unlink()
    key = path.read_bytes()
    if len(key) < KEY_BYTES:
        raise ValueError(f"a key has at least {KEY_BYTES} bytes, and {path} has {len(key)}")
    return key
