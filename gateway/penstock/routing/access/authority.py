"""Verification of access tokens: the grant of a token, and whether it is still valid.

`TokenPlace` is where the tokens are: a file, or the gateway's state at a server (`token_table`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import trio

from penstock.core.clock import Clock, wall_clock
from penstock.core.grants import Grant
from penstock.model.access_tokens import AccessTokenInfo
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.routing.access.revocation import RevocationMonitor
from penstock.routing.access.token_file import TokenFile, TokenPage, parse_token

__all__ = ["Authority", "FileOfTokens", "TokenPlace"]

R = TypeVar("R")

CACHED: Final = 10_000
"""Grants cached until the file changes, about 1 KiB each. A look-up takes 50 us, or 7 us for a cached token, of which
2 us check whether the file has changed."""
UNKNOWN: Final = Failure(FailureCode.AUTHN, "a valid bearer token is required")
"""The failure for a missing or unknown token; it does not say why."""


class TokenPlace(ABC):
    """The place where tokens are kept. Changes by other processes apply to look-ups soon."""

    @abstractmethod
    def find(self, key: str, digest: bytes) -> Grant | None:
        """Return the grant of the token with this key, or None if it is unknown or its secret has another digest. Must
        not wait. Raises OperationFailed while the place cannot be read."""

    @abstractmethod
    async def issue(self, info: AccessTokenInfo, now_ms: int) -> str:
        """Store a new token and return its text. It replaces an expired token with the same id.

        Raises OperationFailed(RESOURCE_ALREADY_EXISTS).
        """

    @abstractmethod
    async def page(self, prefix: str, start_after: str, limit: int) -> TokenPage:
        """Return the tokens whose ids begin with `prefix` and sort after `start_after`, at most `limit`."""

    @abstractmethod
    async def revoke(self, token_id: str) -> None:
        """Delete a token. Raises OperationFailed(ACCESS_TOKEN_NOT_FOUND)."""

    def close(self) -> None:  # noqa: B027
        """Close what is open."""


class FileOfTokens(TokenPlace):
    """The tokens of one file. A change made by any process applies to the next look-up."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises TokenFileError."""
        self._path = path
        self._file = TokenFile(path)
        self._version = self._file.version()
        self._known: dict[tuple[str, bytes], Grant] = {}

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def find(self, key: str, digest: bytes) -> Grant | None:
        version = self._file.version()
        if version != self._version:
            self._version = version
            self._known.clear()
        stored_token = self._known.get((key, digest))
        if stored_token is None:
            stored_token = self._file.find(key, digest)
            if stored_token is not None:
                if len(self._known) >= CACHED:
                    del self._known[next(iter(self._known))]
                self._known[key, digest] = stored_token
        return stored_token

    async def issue(self, info: AccessTokenInfo, now_ms: int) -> str:
        return await self._changed(lambda file: file.issue(info, now_ms))

    async def page(self, prefix: str, start_after: str, limit: int) -> TokenPage:
        return await self._changed(lambda file: file.page(prefix, start_after, limit))

    async def revoke(self, token_id: str) -> None:
        await self._changed(lambda file: file.revoke(token_id))

    async def _changed(self, work: Callable[[TokenFile], R]) -> R:
        """Run `work` on a separate connection, so that this one sees the change as it sees other processes' changes; in
        a thread, since it waits for the disk."""

        def run() -> R:
            file = TokenFile(self._path)
            try:
                return work(file)
            finally:
                file.close()

        return await trio.to_thread.run_sync(run)


class Authority:
    """The access tokens of one place."""

    def __init__(self, tokens: TokenPlace, clock: Clock = wall_clock) -> None:
        """`clock` returns ms since the Unix epoch."""
        self._tokens = tokens
        self._clock = clock
        self.vigil = RevocationMonitor(self.lapsed)
        """Ends the sessions of tokens that were revoked or have expired."""

    def close(self) -> None:
        """Close the place of the tokens."""
        self._tokens.close()

    def grant(self, token: str) -> Grant:
        """Return the grant of a token. Raises AUTHN for one that is malformed, unknown or revoked, PERMISSION_DENIED
        for one that has expired, HOT_SERVER while tokens cannot be looked up. Malformed ones are not looked up."""
        parsed = parse_token(token)
        stored_token = None if parsed is None else self._tokens.find(*parsed)
        if stored_token is None:
            raise OperationFailed(UNKNOWN)
        self._check_age(stored_token)
        return stored_token

    def lapsed(self, grant: Grant) -> Failure | None:
        """Return why a grant that was issued earlier is no longer valid, or None if it still is. Tokens that cannot be
        looked up are not valid meanwhile."""
        try:
            if self._tokens.find(grant.key, grant.digest) is None:
                return Failure(FailureCode.AUTHN, f"access token {grant.info.id} was revoked")
            self._check_age(grant)
        except OperationFailed as error:
            return error.failure
        return None

    def _check_age(self, grant: Grant) -> None:
        if grant.expires_ms is not None and grant.expires_ms <= self._clock():
            raise grant.denied("it has expired")

    # ---- clients' requests about tokens --------------------------------------------------------------------------

    async def issue(self, info: AccessTokenInfo) -> str:
        """See `TokenPlace.issue`. Raises INVALID for a token that has expired already."""
        now = self._clock()
        if info.expires_ms is not None and info.expires_ms <= now:
            raise fail(FailureCode.INVALID, "expires_at is in the past")
        return await self._tokens.issue(info, now)

    async def page(self, prefix: str, start_after: str, limit: int) -> TokenPage:
        """See `TokenPlace.page`."""
        return await self._tokens.page(prefix, start_after, limit)

    async def revoke(self, token_id: str) -> None:
        """See `TokenPlace.revoke`."""
        await self._tokens.revoke(token_id)
