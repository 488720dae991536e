"""The file of access tokens: an SQLite database separate from the store, so that commands and several processes can
use it at once.

It holds the description of each token and the SHA-256 of its secret, never the secret itself, whose 256 random bits
cannot be guessed. The text of a token is `pst_KEY_SECRET`; tokens are looked up by the key, which is not secret.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from penstock.core.grants import Grant
from penstock.model.access_tokens import AccessTokenInfo, decode_info, encode_info
from penstock.model.failures import FailureCode, fail

__all__ = ["TokenFile", "TokenFileError", "TokenPage", "new_secret", "parse_token"]

APPLICATION_ID: Final = 0x50654163
""""PeAc" in ASCII: identifies the database to `file` and to the gateway."""
SCHEMA_VERSION: Final = 1
BUSY_SECONDS: Final = 5.0
"""Longest time a change waits for another process that is changing the file, in seconds."""

_TOKEN: Final = re.compile(r"pst_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_TABLES: Final = """
CREATE TABLE tokens (
  id TEXT PRIMARY KEY,            -- as its issuer named it
  key TEXT NOT NULL UNIQUE,       -- the part of the token's text by which it is found
  digest BLOB NOT NULL,           -- SHA-256 of the token's secret
  info TEXT NOT NULL,             -- S2's AccessTokenInfo as JSON
  expires_at INTEGER,             -- ms since the Unix epoch; NULL: never
  created_at INTEGER NOT NULL     -- ms since the Unix epoch
) WITHOUT ROWID;
"""


class TokenFileError(Exception):
    """The file cannot be used; the message says why."""


class TokenPage(msgspec.Struct, frozen=True):
    """One page of a listing, in order of ids."""

    items: list[AccessTokenInfo]
    has_more: bool


def parse_token(text: str) -> tuple[str, bytes] | None:
    """Return key and digest of a token's text, or None if it is not spelled as a token of the gateway."""
    match = _TOKEN.fullmatch(text)
    return None if match is None else (match[1], hashlib.sha256(match[2].encode("ascii")).digest())


def new_secret() -> tuple[str, bytes]:
    """Return a new secret and its digest."""
    secret = secrets.token_urlsafe(32)
    return secret, hashlib.sha256(secret.encode("ascii")).digest()


def _make(path: Path) -> None:
    """Create an empty file, readable by its owner only, if there is none. An existing file is not opened: closing it
    would drop the locks that SQLite holds on it in this process (fcntl), and other processes would take it for
    unused."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


class TokenFile:
    """One connection to the file, for use in one thread."""

    def __init__(self, path: Path) -> None:
        """Open the file; create it, readable by its owner only, if it is missing. Raises TokenFileError."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make(path)
            self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            try:
                self._prepare(path)
            except BaseException:
                self._db.close()
                raise
        except (OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise TokenFileError(f"the file of access tokens {path} cannot be used: {reason}") from error

    def _prepare(self, path: Path) -> None:
        db = self._db
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")  # an acknowledged revocation must survive a crash
        with self._transaction():
            (version,) = db.execute("PRAGMA user_version").fetchone()
            (application,) = db.execute("PRAGMA application_id").fetchone()
            if version == 0 and application == 0 and not db.execute("SELECT 1 FROM sqlite_master").fetchone():
                db.execute(_TABLES)
                db.execute(f"PRAGMA application_id={APPLICATION_ID}")
                db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            elif application != APPLICATION_ID:
                raise TokenFileError(f"{path} is not a file of access tokens")
            elif version != SCHEMA_VERSION:
                raise TokenFileError(f"{path} is of version {version}, which this version of Penstock does not support")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    # ---- used by the gateway -------------------------------------------------------------------------------------

    def version(self) -> int:
        """Return a number that changes whenever another connection, in any process, has changed the file."""
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        return int(version)

    def find(self, key: str, digest: bytes) -> Grant | None:
        """Return the grant of the token with this key, or None if it is unknown or its secret has another digest."""
        row = self._db.execute("SELECT digest, info FROM tokens WHERE key = ?", (key,)).fetchone()
        if row is None or not hmac.compare_digest(row[0], digest):
            return None
        return Grant(decode_info(row[1]), key, digest)

    # ---- used by operators and issuers ---------------------------------------------------------------------------

    def issue(self, info: AccessTokenInfo, now_ms: int) -> str:
        """Store a new token and return its text. It replaces an expired token with the same id.

        Raises OperationFailed(RESOURCE_ALREADY_EXISTS).
        """
        key = secrets.token_hex(8)
        secret, digest = new_secret()
        with self._transaction():
            self._db.execute("DELETE FROM tokens WHERE id = ? AND expires_at <= ?", (info.id, now_ms))
            try:
                self._db.execute(
                    "INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?)",
                    (info.id, key, digest, encode_info(info).decode(), info.expires_ms, now_ms),
                )
            except sqlite3.IntegrityError:
                reason = f"there is an access token {info.id} already"
                raise fail(FailureCode.RESOURCE_ALREADY_EXISTS, reason) from None
        return f"pst_{key}_{secret}"

    def page(self, prefix: str = "", start_after: str = "", limit: int = 1000) -> TokenPage:
        """Return the tokens whose ids begin with `prefix` and sort after `start_after`, at most `limit`."""
        rows = self._db.execute(
            "SELECT info FROM tokens WHERE id >= ?1 AND substr(id, 1, length(?1)) = ?1 AND id > ?2"
            " ORDER BY id LIMIT ?3",
            (prefix, start_after, limit + 1),
        ).fetchall()
        return TokenPage([decode_info(info) for (info,) in rows[:limit]], len(rows) > limit)

    def revoke(self, token_id: str) -> None:
        """Delete a token: it is unknown from now on. Raises OperationFailed(ACCESS_TOKEN_NOT_FOUND)."""
        with self._transaction():
            if not self._db.execute("DELETE FROM tokens WHERE id = ?", (token_id,)).rowcount:
                raise fail(FailureCode.ACCESS_TOKEN_NOT_FOUND, f"there is no access token {token_id}")
