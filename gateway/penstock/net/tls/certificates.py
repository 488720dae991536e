"""All TLS contexts of this process that are made from files, and their reload when the files change.

Files are polled by name every `POLL_SECONDS` instead of being watched: Kubernetes, ACME clients and people replace them
by renames and by symbolic links of directories, where a watch on the file would see nothing. Reloaded files apply to
new handshakes; established connections are not affected.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import structlog
import trio

from penstock.core.errors import CannotStart
from penstock.net.tls.files import Described, Stamp, stamp_of
from penstock.observe.metrics.families import CERTIFICATE_EXPIRY
from penstock.observe.metrics.series import Sample, sampling

__all__ = ["CERTIFICATES", "POLL_SECONDS", "Certificates", "Expiry", "Outcome", "Reloaded"]

log = structlog.get_logger()

POLL_SECONDS: Final = 0.5
_NONE_SECONDS: Final = 5.0
"""While there are no files, the interval of checks whether there are any."""
"""Seconds between polls: a stat of each file, about 2 us, in a thread. A change counts when two polls in a row have
found the same, so that a certificate and its key that are written one after the other are loaded together."""
_REMIND_SECONDS: Final = 86_400.0
"""Seconds between warnings about a certificate that expires soon; it is also reported at the start and when it is
loaded."""


class Expiry(msgspec.Struct, frozen=True):
    """The end of validity (`until`) of a certificate or revocation list in use, in Unix seconds. `owner`: its user, as
    `listeners.s2` or `backs.lite`; `subject`: of the certificate, or the list's issuer; `soon`: seconds before the end
    from which it should be replaced."""

    owner: str
    file: str
    subject: str
    until: float
    soon: float = 0.0


class Outcome(msgspec.Struct, frozen=True):
    """The result of reloading an owner's changed files. `reason`: why they cannot be used, None if they are in use."""

    owner: str
    files: tuple[str, ...]
    reason: str | None = None


class Reloaded(ABC):
    """An object that is made from files. The constructor loads them, and raises CannotStart if it cannot."""

    def __init__(self, owner: str, files: Sequence[str]) -> None:
        self.owner = owner
        self.files = tuple(dict.fromkeys(files))
        self._seen = self._tried = self._stamps()
        self.make()
        CERTIFICATES.add(self)

    @abstractmethod
    def make(self) -> None:
        """Load the files and put them in force, all or none. Raises CannotStart, naming the file, and then changes
        nothing."""

    @abstractmethod
    def described(self) -> Iterator[tuple[str, Described]]:
        """Return the certificates and revocation lists in force, each with its file."""

    def retire(self) -> None:
        """Stop polling the files: the object is no longer used."""
        CERTIFICATES.forget(self)

    def look(self) -> Outcome | None:
        """Reload if the files have changed and are unchanged since the last poll. Return the outcome, None if nothing
        was done."""
        stamps = self._stamps()
        settled, self._seen = stamps == self._seen, stamps
        return self._remake(stamps) if settled and stamps != self._tried else None

    def reload(self) -> Outcome:
        """Reload, whether or not the files have changed. The outcome names those that have."""
        return self._remake(self._stamps())

    def _remake(self, stamps: tuple[Stamp, ...]) -> Outcome:
        pairs = zip(self.files, self._tried, stamps, strict=True)
        changed = tuple(file for file, before, now in pairs if before != now)
        self._tried = stamps
        try:
            self.make()
        except CannotStart as error:
            return Outcome(self.owner, changed, str(error))
        return Outcome(self.owner, changed)

    def _stamps(self) -> tuple[Stamp, ...]:
        return tuple(map(stamp_of, self.files))


class Certificates:
    """The reloadable objects in use; each is kept for as long as something else refers to it."""

    def __init__(self) -> None:
        self._known: weakref.WeakSet[Reloaded] = weakref.WeakSet()
        self._lock = threading.Lock()  # a configuration is validated in its own thread

    def add(self, certificate: Reloaded) -> None:
        """Begin to poll the object's files."""
        with self._lock:
            self._known.add(certificate)

    def forget(self, certificate: Reloaded) -> None:
        """Stop polling the object's files."""
        with self._lock:
            self._known.discard(certificate)

    @property
    def _all(self) -> list[Reloaded]:
        with self._lock:
            return list(self._known)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Poll the files until the block ends, log reloads, and export the expiry of each certificate as a metric.
        Exceptions of the block are raised as they are."""
        try:
            with sampling(self._samples):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch)
                    yield
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:  # wrapped by the nursery
                raise group.exceptions[0] from group.exceptions[0].__cause__
            raise

    async def _watch(self) -> None:
        reminded = -math.inf
        while True:
            if trio.current_time() >= reminded + _REMIND_SECONDS:
                reminded = trio.current_time()
                self._remind(self.expiries())
            await trio.sleep(POLL_SECONDS if self._known else _NONE_SECONDS)
            if some := self._all:
                self._log_outcomes(
                    await trio.to_thread.run_sync(
                        lambda: [outcome for certificate in some if (outcome := certificate.look())]
                    )
                )
                del some

    async def reload(self) -> list[Outcome]:
        """Reload all now, as SIGHUP asks for; log and return the outcomes. Files that cannot be used change nothing for
        their owner."""
        some = self._all
        outcomes = await trio.to_thread.run_sync(lambda: [certificate.reload() for certificate in some])
        self._log_outcomes([outcome for outcome in outcomes if outcome.files or outcome.reason])
        return outcomes

    def expiries(self) -> list[Expiry]:
        """Return the expiry of all certificates and lists in use, soonest first."""
        known_expiries = {
            Expiry(certificate.owner, file, about.subject, about.until.timestamp(), about.soon)
            for certificate in self._all
            for file, about in certificate.described()
            if about.until is not None
        }
        return sorted(known_expiries, key=lambda expiry: (expiry.until, expiry.owner, expiry.file))

    def _samples(self) -> Iterator[Sample]:
        for certificate in self.expiries():
            yield Sample(
                CERTIFICATE_EXPIRY, (certificate.owner, certificate.file, certificate.subject), certificate.until
            )

    def _log_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.reason is None:
                log.info("tls_reloaded", owner=outcome.owner, files=list(outcome.files))
                self._remind([expiry for expiry in self.expiries() if expiry.owner == outcome.owner])
            else:
                log.error("tls_not_reloaded", owner=outcome.owner, files=list(outcome.files), reason=outcome.reason)

    @staticmethod
    def _remind(expiries: Sequence[Expiry]) -> None:
        now = time.time()
        for expiry in expiries:
            left = expiry.until - now
            if left < expiry.soon:
                days = round(left / 86_400, 1)
                event = "certificate_expires" if left > 0 else "certificate_expired"
                log.warning(event, owner=expiry.owner, file=expiry.file, subject=expiry.subject, days_left=days)


CERTIFICATES: Final = Certificates()
"""The reloadable objects of this process."""
