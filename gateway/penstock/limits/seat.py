"""What one connection uses of what its listener, its client and the whole process may use."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, Self

import trio

from penstock.config.limits import Limits
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.limits import KIB

if TYPE_CHECKING:
    from penstock.limits.account import Account
    from penstock.limits.crowd import Crowd
    from penstock.limits.limiter import Limiter

__all__ = ["Crowded", "Holding", "Seat", "too_many"]

_OWN: Final = 64 * KIB
_STRANGERS_OWN: Final = 16 * KIB
"""What a connection may hold however full all is; of one on which nothing was answered yet."""
_MUCH: Final = 64 * KIB
_REST_SECONDS: Final = 0.002
_SHORT_REST_SECONDS: Final = 0.001
"""What others ask for takes some 20 passes of the scheduler, and would take as many turns of 0.25 ms. For turns in
which much was read it is short: bodies still come at more than 100 MB/s."""
_DRIP: Final = 8
"""No protocol has a whole message in fewer bytes."""
_DRIPS: Final = 8
_DRIP_SECONDS: Final = 0.1, 0.3
"""From so many such reads in a row on, a connection is not read for about so long where others are served. 200 that
drip at the same time take 6 ms of one pass; each waits differently long, so that they do not come together again."""
_MORE_DRIPS: Final = 12
_MORE_DRIP_SECONDS: Final = 0.5, 1.0
_DRIP_RATE: Final = 100
"""The same for one that goes on with it: less than so many bytes a second while it was not read. 200 took 14 % of a
core where each was read after 0.2 s on average."""


def too_many(seconds: float) -> OperationFailed:
    """What is said to a client that asks more often than it may; it may again after so many seconds."""
    text = f"requests_per_second is reached, try again in {seconds:.3f} s"
    return fail(FailureCode.RATE_LIMITED, text, retry_after=seconds)


class Crowded(Exception):
    """There was no room for more bytes in flight for too long. `key`: the limit."""

    def __init__(self, key: str, seconds: float) -> None:
        super().__init__(f"{key}: there was no room for more bytes in flight for {seconds:g} s")
        self.key = key


class Seat:
    """One connection. `scope` is cancelled when it must make room for another.

    Fronts say when they begin to carry something out (`busy = True`) and when nothing is under way any more (`rest`),
    and `admit` when the client may do what it asked for. All but `room` return at once.
    """

    __slots__ = (
        "_dripped_for",
        "_drips",
        "_identity",
        "_limiter",
        "_own_crowd",
        "account",
        "busy",
        "held",
        "known",
        "listener",
        "origin",
        "rested_at",
        "scope",
    )

    def __init__(self, limiter: Limiter, listener: str, account: Account, own_crowd: Crowd, now: float) -> None:
        self._limiter = limiter
        self._own_crowd = own_crowd  # of the listener
        self._identity = ""
        self._drips = 0
        self._dripped_for = 0.0
        self.listener = listener
        self.account = account
        self.origin = account.key
        """Of the account that it had at first: its address's."""
        self.scope = trio.CancelScope()
        self.busy = False
        """Whether something is under way."""
        self.rested_at = now
        """Since when nothing is."""
        self.known = False
        """Whether the client was let do something, so far."""
        self.held = 0
        """Bytes in flight."""

    @property
    def limits(self) -> Limits:
        """What holds now."""
        return self._limiter.table

    # ---- connections ---------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Nothing is under way any more."""
        self.busy = False
        self.rested_at = trio.current_time()

    def admit(self, identity: str = "") -> None:
        """The client may do what it asked for; as `identity`, where it proved one, it is counted from now on."""
        if not self.known:
            self._limiter.known(self, self._own_crowd)
        if identity and identity != self._identity:
            self._identity = identity
            self._limiter.move(self, identity)

    def limited(self, key: str) -> None:
        """Something was refused, cut or made to wait by the limit of this name."""
        self._limiter.limited(self.listener, key)

    def abused(self) -> None:
        """The connection is cut off for what only hostile clients do: its client is slowed for a while."""
        self._limiter.calm(self)

    @property
    def slowed(self) -> bool:
        """Whether the client has abused others a while ago: less is borne of it then."""
        return self.account.calm_until > trio.current_time()

    async def rest_after_turn(self, before: int, left: int) -> None:
        """To be called at the end of a turn (`Account.turns`) before which so many bytes waited to be looked at, and of
        which so many are left: let others have theirs, where others are served at the moment. Where nothing is left
        it returns at once."""
        if left and self._limiter.others(self.account):
            await trio.sleep(_REST_SECONDS if before - left < _MUCH else _SHORT_REST_SECONDS)

    async def rest_in_turn(self) -> None:
        """The same for what nobody needs: all of a client's connections rest one after the other."""
        async with self.account.turns:
            await self.rest_after_turn(1, 1)

    # ---- rates ---------------------------------------------------------------------------------------------------

    def request(self) -> float:
        """Count a request: 0.0, or after how many seconds it may be tried again."""
        limits = self._limiter.table
        rate = limits.requests_per_second
        if not rate:
            return 0.0
        wait = self.account.requests.take(1, rate, limits.burst_seconds, trio.current_time())
        if wait:
            self.limited("requests_per_second")
        return wait

    def received(self, size: int) -> float:
        """Count bytes that were read; for how many seconds no more are to be read."""
        limits = self._limiter.table
        self._limiter.heard(self.account)
        rate = limits.bytes_per_second
        drip = self._drip(size)
        if not rate:
            return drip
        wait = self.account.octets.owe(size, rate, limits.burst_seconds, trio.current_time())
        if wait:
            self.limited("bytes_per_second")
        return max(wait, drip)

    def _drip(self, size: int) -> float:
        """For how many seconds one that drips is not to be read; 0.0 for others."""
        self._drips = self._drips + 1 if 0 < size < max(_DRIP, _DRIP_RATE * self._dripped_for) else 0
        if self._drips > _DRIPS and self._limiter.others(self.account):
            bounds = _MORE_DRIP_SECONDS if self._drips > _MORE_DRIPS else _DRIP_SECONDS
            self._dripped_for = random.uniform(*bounds)
        else:
            self._dripped_for = 0.0
        return self._dripped_for

    # ---- bytes in flight -----------------------------------------------------------------------------------------

    def charge(self, size: int) -> None:
        """So many bytes more are in flight, or less."""
        self.held += size
        self._limiter.charge(self, size)

    @property
    def crowded(self) -> bool:
        """Whether more may be held only after `room`."""
        return self.held > _STRANGERS_OWN and self._limiter.crowded_by(self, self.own) is not None

    @property
    def own(self) -> int:
        """Bytes that it may hold in any case."""
        return _OWN if self.known else _STRANGERS_OWN

    async def room(self) -> None:
        """Wait until more may be held. Raises Crowded when that took too long."""
        if self.crowded:
            await self._limiter.wait(self, self.own)

    async def request_room(self) -> None:
        """Wait until more of a request may be held. Raises OperationFailed, with RATE_LIMITED, when that took too
        long."""
        try:
            await self.room()
        except Crowded as error:
            raise fail(FailureCode.RATE_LIMITED, str(error), retry_after=1.0) from None

    async def answer_room(self) -> None:
        """Wait until an answer may be fetched, which may be large. Raises OperationFailed, with RATE_LIMITED, when that
        took too long."""
        if self._limiter.crowded_by(self, -1) is not None:
            try:
                await self._limiter.wait(self, -1)
            except Crowded as error:
                raise fail(FailureCode.RATE_LIMITED, str(error), retry_after=1.0) from None


class Holding:
    """Bytes that one task of a connection holds; a context manager, behind which it holds none."""

    __slots__ = ("_seat", "size")

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self.size = 0

    def set(self, size: int) -> None:
        """It holds so many now."""
        change = size - self.size
        if change:
            self.size = size
            self._seat.charge(change)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.set(0)
