"""Everything of this process that is made of certificates' files, and is made anew when these change.

Files are looked at every `POLL_SECONDS` by name instead of being watched: Kubernetes, ACME clients and people replace
them by renames and by symbolic links of directories, where a watch on the file would see nothing. What is made anew
holds for new handshakes; connections that are there go on with what they began with.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import structlog
import trio

from penstock.errors import CannotStart
from penstock.metrics.families import CERTIFICATE_EXPIRY
from penstock.metrics.series import Sample, watching
from penstock.tls.files import Described, Stamp, stamp_of

__all__ = ["CERTIFICATES", "POLL_SECONDS", "Certificates", "Expiry", "Outcome", "Reloaded"]

log = structlog.get_logger()

POLL_SECONDS: Final = 0.5
"""How often files are looked at: a stat of each, about 2 us, in a thread. A change counts when two looks in a row have
found the same, so that a certificate and its key that are written one after the other are taken together."""
_REMIND_SECONDS: Final = 86_400.0
"""What ends soon is told of in the log at the start, when it is read, and so often."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """Until when a certificate or revocation list in use is good, in Unix seconds. `owner`: whose it is, as
    `listeners.s2` or `backs.lite`; `subject`: of the certificate, or the list's issuer; `soon`: so many seconds before
    that it is time to replace it."""

    owner: str
    file: str
    subject: str
    until: float
    soon: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an owner's changed files. `reason`: why they cannot be used, None where they are."""

    owner: str
    files: tuple[str, ...]
    reason: str | None = None


class Reloaded(ABC):
    """Something that is made of files. It is made at once, and raises CannotStart where it cannot be."""

    def __init__(self, owner: str, files: Sequence[str]) -> None:
        self.owner = owner
        self.files = tuple(dict.fromkeys(files))
        self._seen = self._tried = self._stamps()
        self.make()
        CERTIFICATES.add(self)

    @abstractmethod
    def make(self) -> None:
        """Read the files and put them in force, all or none. Raises CannotStart, naming the file; then all stays as it
        was."""

    @abstractmethod
    def described(self) -> Iterator[tuple[str, Described]]:
        """The certificates and revocation lists in force, each with its file."""

    def retire(self) -> None:
        """Nobody will ask it any more: what becomes of its files is no matter."""
        CERTIFICATES.forget(self)

    def look(self) -> Outcome | None:
        """Make it anew where the files have changed and rest; what came of it, None where there was nothing to do."""
        found = self._stamps()
        settled, self._seen = found == self._seen, found
        return self._remake(found) if settled and found != self._tried else None

    def reload(self) -> Outcome:
        """Make it anew, changed or not; its files are those that have changed."""
        return self._remake(self._stamps())

    def _remake(self, found: tuple[Stamp, ...]) -> Outcome:
        pairs = zip(self.files, self._tried, found, strict=True)
        changed = tuple(file for file, before, now in pairs if before != now)
        self._tried = found
        try:
            self.make()
        except CannotStart as error:
            return Outcome(self.owner, changed, str(error))
        return Outcome(self.owner, changed)

    def _stamps(self) -> tuple[Stamp, ...]:
        return tuple(map(stamp_of, self.files))


class Certificates:
    """Those that are in use; each for as long as something else refers to it."""

    def __init__(self) -> None:
        self._known: weakref.WeakSet[Reloaded] = weakref.WeakSet()
        self._lock = threading.Lock()  # a configuration is tried out in a thread of its own

    def add(self, one: Reloaded) -> None:
        """From now on its files are looked at."""
        with self._lock:
            self._known.add(one)

    def forget(self, one: Reloaded) -> None:
        """Its files are no longer looked at."""
        with self._lock:
            self._known.discard(one)

    @property
    def _all(self) -> list[Reloaded]:
        with self._lock:
            return list(self._known)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Until the block ends the files are looked at, what is done is logged, and metrics are told when each
        certificate ends. What the block raises is raised as it is."""
        try:
            with watching(self._samples):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch)
                    yield
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:  # the nursery has put it into a group
                raise group.exceptions[0] from group.exceptions[0].__cause__
            raise

    async def _watch(self) -> None:
        reminded = -math.inf
        while True:
            if trio.current_time() >= reminded + _REMIND_SECONDS:
                reminded = trio.current_time()
                self._remind(self.expiries())
            await trio.sleep(POLL_SECONDS)
            if some := self._all:
                self._tell(await trio.to_thread.run_sync(lambda: [found for one in some if (found := one.look())]))
                del some

    async def reload(self) -> list[Outcome]:
        """Make all anew now, as SIGHUP asks for: what came of each, which is logged too. What cannot be used changes
        nothing for its owner."""
        some = self._all
        outcomes = await trio.to_thread.run_sync(lambda: [one.reload() for one in some])
        self._tell([outcome for outcome in outcomes if outcome.files or outcome.reason])
        return outcomes

    def expiries(self) -> list[Expiry]:
        """Of all certificates and lists in use, the first to end first."""
        found = {
            Expiry(one.owner, file, about.subject, about.until.timestamp(), about.soon)
            for one in self._all
            for file, about in one.described()
            if about.until is not None
        }
        return sorted(found, key=lambda expiry: (expiry.until, expiry.owner, expiry.file))

    def _samples(self) -> Iterator[Sample]:
        for one in self.expiries():
            yield Sample(CERTIFICATE_EXPIRY, (one.owner, one.file, one.subject), one.until)

    def _tell(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.reason is None:
                log.info("tls_reloaded", owner=outcome.owner, files=list(outcome.files))
                self._remind([expiry for expiry in self.expiries() if expiry.owner == outcome.owner])
            else:
                log.error("tls_not_reloaded", owner=outcome.owner, files=list(outcome.files), reason=outcome.reason)

    @staticmethod
    def _remind(expiries: Sequence[Expiry]) -> None:
        now = time.time()
        for one in expiries:
            left = one.until - now
            if left < one.soon:
                days = round(left / 86_400, 1)
                event = "certificate_expires" if left > 0 else "certificate_expired"
                log.warning(event, owner=one.owner, file=one.file, subject=one.subject, days_left=days)


CERTIFICATES: Final = Certificates()
"""Those of this process."""
