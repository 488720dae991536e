"""What the gateway knows of access tokens: whose grant a token is, and whether it still holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import trio

from penstock.access.grants import Grant
from penstock.access.token_file import TokenFile, TokenPage, parse_token
from penstock.access.vigil import Vigil
from penstock.clock import Clock, wall_clock
from penstock_codecs.failures import Failure, FailureCode, OperationFailed
from penstock_codecs.s2.access_tokens import AccessTokenInfo

__all__ = ["Authority"]

R = TypeVar("R")

CACHED: Final = 10_000
"""Grants that are remembered until the file changes, about 1 KiB each. A look-up takes 50 us; of a known token 7,
of which 2 are for asking whether the file has changed."""


class Authority:
    """The tokens of one file, as one process sees them. A change by any process holds at the next question."""

    def __init__(self, path: Path, clock: Clock = wall_clock) -> None:
        """Raises TokenFileError. `clock` gives the time of day in ms."""
        self._path = path
        self._clock = clock
        self._file = TokenFile(path)
        self._version = self._file.version()
        self._known: dict[tuple[str, bytes], Grant] = {}
        self.vigil = Vigil(self.lapsed)
        """Ends the sessions of tokens that do not hold any more."""

    def close(self) -> None:
        """Be done with the file."""
        self._file.close()

    def grant(self, token: str) -> Grant:
        """What the token allows. Raises AUTHN for one that is unknown or was revoked, PERMISSION_DENIED for one that
        has expired; what is not spelt as a token is not looked up."""
        parsed = parse_token(token)
        found = None if parsed is None else self._find(*parsed)
        if found is None:
            raise OperationFailed(UNKNOWN)
        self._check_age(found)
        return found

    def lapsed(self, grant: Grant) -> Failure | None:
        """Why a grant that was given before does not hold any more; None where it does."""
        if self._find(grant.key, grant.digest) is None:
            return Failure(FailureCode.AUTHN, f"access token {grant.info.id} was revoked")
        try:
            self._check_age(grant)
        except OperationFailed as error:
            return error.failure
        return None

    def _find(self, key: str, digest: bytes) -> Grant | None:
        version = self._file.version()
        if version != self._version:
            self._version = version
            self._known.clear()
        found = self._known.get((key, digest))
        if found is None:
            found = self._file.find(key, digest)
            if found is not None:
                if len(self._known) >= CACHED:
                    del self._known[next(iter(self._known))]
                self._known[key, digest] = found
        return found

    def _check_age(self, grant: Grant) -> None:
        if grant.expires_ms is not None and grant.expires_ms <= self._clock():
            raise grant.denied("it has expired")

    # ---- S2's own requests about tokens --------------------------------------------------------------------------

    async def issue(self, info: AccessTokenInfo) -> str:
        """See `TokenFile.issue`."""
        now = self._clock()
        return await self._changed(lambda file: file.issue(info, now))

    async def page(self, prefix: str, start_after: str, limit: int) -> TokenPage:
        """See `TokenFile.page`."""
        return await self._changed(lambda file: file.page(prefix, start_after, limit))

    async def revoke(self, token_id: str) -> None:
        """See `TokenFile.revoke`."""
        await self._changed(lambda file: file.revoke(token_id))

    async def _changed(self, work: Callable[[TokenFile], R]) -> R:
        """By a connection of its own, so that ours hears of the change as of any other; in a thread, since it waits
        for the disk."""

        def run() -> R:
            file = TokenFile(self._path)
            try:
                return work(file)
            finally:
                file.close()

        return await trio.to_thread.run_sync(run)


UNKNOWN: Final = Failure(FailureCode.AUTHN, "a valid bearer token is required")
"""What is said to whoever shows no token, or one that is not known: not why."""
