"""Passwords of identities, kept as scrypt hashes, and Basic credentials (RFC 7617)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple

import trio

from penstock.model.failures import FailureCode, fail

__all__ = ["MOST_WAITING", "Passwords", "basic_credentials", "check_hash", "hash_password"]

_PREFIX: Final = "scrypt"
_COST: Final = (1 << 14, 8, 1)
"""N, r and p of scrypt: 16 MiB and about 50 ms per guess."""
_MOST_COST: Final = 1 << 18
"""Largest N times r of a configured hash, 32 MiB of memory: more could stall the gateway by mistake."""
MOST_WAITING: Final = 50
"""Most passwords that wait to be checked; they are checked one at a time. Cached credentials do not wait."""
_REMEMBERED: Final = 1000
"""Verified credentials that are cached: a client sends them with each call."""


class _Hash(NamedTuple):
    cost: tuple[int, int, int]
    salt: bytes
    digest: bytes

    @classmethod
    def parse(cls, text: str) -> _Hash:
        try:
            kind, n, r, p, salt, digest = text.split(":")
            stored_hash = cls(
                (int(n), int(r), int(p)), base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)
            )
        except ValueError:
            kind, stored_hash = "", cls((0, 0, 0), b"", b"")
        n_cost, r_cost, p_cost = stored_hash.cost
        sensible = n_cost > 1 and n_cost & (n_cost - 1) == 0 and 0 < n_cost * r_cost <= _MOST_COST and 0 < p_cost <= 16
        if kind != _PREFIX or not sensible or len(stored_hash.digest) != 32:
            raise ValueError("this is not a password hash; `penstock token password` prints one")
        return stored_hash

    def matches(self, password: str) -> bool:
        return hmac.compare_digest(_scrypt(password, self.salt, self.cost), self.digest)


def _scrypt(password: str, salt: bytes, cost: tuple[int, int, int]) -> bytes:
    n, r, p = cost
    data = password.encode("utf-8", "surrogateescape")
    return hashlib.scrypt(data, salt=salt, n=n, r=r, p=p, maxmem=64 * 1024 * 1024, dklen=32)


def hash_password(password: str) -> str:
    """Return the hash of a password, as a configuration holds it."""
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, salt, _COST)
    numbers = ":".join(map(str, _COST))
    return f"{_PREFIX}:{numbers}:{base64.b64encode(salt).decode()}:{base64.b64encode(digest).decode()}"


def check_hash(text: str) -> None:
    """Check that a configured value is the hash of a password. Raises ValueError if it is not."""
    _Hash.parse(text)


def basic_credentials(header: str | None) -> tuple[str, str] | None:
    """Return user name and password of an Authorization header, or None if it has no valid Basic credentials."""
    scheme, _, encoded = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (name, password) if colon else None


class Passwords:
    """The configured users: maps a user name and password to an identity."""

    def __init__(self, users: Mapping[str, tuple[str, str]]) -> None:
        """`users`: identity and password hash by user name. Raises ValueError for an invalid hash."""
        self._users = {name: (identity, _Hash.parse(hashed)) for name, (identity, hashed) in users.items()}
        self._unknown_user = _Hash.parse(hash_password(secrets.token_hex(16)))
        self._known: dict[bytes, str] = {}
        self._guesses = trio.CapacityLimiter(1)  # a client that guesses must not keep all threads busy

    async def identity(self, name: str, password: str) -> str | None:
        """Return the identity of a user, or None if name or password is wrong. An unknown name takes as long as a wrong
        password.

        Raises OperationFailed(RATE_LIMITED) if MOST_WAITING passwords are waiting to be checked.
        """
        key = hashlib.sha256(f"{len(name)}:{name}:{password}".encode("utf-8", "surrogateescape")).digest()
        known = self._known.get(key)
        if known is not None:
            return known
        if self._guesses.statistics().tasks_waiting >= MOST_WAITING:
            raise fail(FailureCode.RATE_LIMITED, "too many passwords are being checked, try again later")
        identity, hashed = self._users.get(name, (None, self._unknown_user))
        right = await trio.to_thread.run_sync(hashed.matches, password, limiter=self._guesses)
        if identity is None or not right:
            return None
        if len(self._known) >= _REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[key] = identity
        return identity
