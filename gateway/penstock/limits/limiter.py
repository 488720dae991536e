"""All connections of a process, and what they may use together."""

from __future__ import annotations

import math
import resource
from collections import OrderedDict
from typing import Final

import structlog
import trio

from penstock.config.limits import Limits
from penstock.limits.account import Account, client_key
from penstock.limits.crowd import Crowd
from penstock.limits.seat import Crowded, Seat
from penstock.metrics.families import LIMITED

__all__ = ["Limiter"]

log = structlog.get_logger()

SPARE_DESCRIPTORS: Final = 1024
"""Kept for the store, backs and refusals; a quarter where there are few."""
REMEMBERED: Final = 10_000
"""Clients without a connection whose rates are remembered, about 0.5 KiB each: whoever comes back has not forgotten."""
CALM_WAIT: Final = 1.0
"""Connections of a client that is slowed are closed where they would wait for longer than so many seconds."""
FRUITLESS_PER_SECOND: Final = 50
FRUITLESS_SECONDS: Final = 5.0
"""Connections of a client from which nobody had anything: more are an attack. Whoever looks whether a port answers
makes some in a second."""
HEARD_SECONDS: Final = 0.05
"""Others are served at the moment where somebody else was heard in so many seconds."""
LOG_SECONDS: Final = 10.0
"""A limit that is reached again and again has one line of the log in so many seconds."""


class Limiter:
    """See the module. `table` is what is configured: replace it, and the new one holds from then on."""

    def __init__(self, table: Limits | None = None) -> None:
        self.table = table or Limits()
        self.held = 0
        """Bytes in flight."""
        self._accounts: OrderedDict[str, Account] = OrderedDict()
        self._everybody = Crowd()
        self._listeners: dict[str, Crowd] = {}
        self._leader: Seat | None = None
        self._waiting = trio.lowlevel.ParkingLot()
        self._heard: Account | None = None
        self._another_at = -math.inf
        self._told: dict[tuple[str, str], tuple[float, int]] = {}

    # ---- connections ---------------------------------------------------------------------------------------------

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._everybody)

    def account(self, host: str, identity: str = "") -> Account:
        """Whose a new connection is."""
        return self._account(client_key(host, identity))

    def pause(self, account: Account) -> tuple[float, str]:
        """For how many seconds no more connections of the client may begin, and by which limit."""
        now, table = trio.current_time(), self.table
        if account.calm_until > now:
            return max(0.0, account.begins_at - now), "calm"
        rate = table.connections_per_second
        return (account.arrivals.lacks(1, rate, table.burst_seconds, now) if rate else 0.0), "connections_per_second"

    def may_wait(self, account: Account, pause: float) -> bool:
        """Whether one more connection of the client may wait to begin, the next of which may after `pause` seconds."""
        if account.calm_until > trio.current_time():
            return pause + account.arriving * account.delay <= CALM_WAIT
        return not pause or account.arriving + len(account.crowd) < self.table.max_connections_per_client

    def arrived(self, account: Account) -> None:
        """A connection of the client begins."""
        now, table = trio.current_time(), self.table
        self.heard(account)
        account.begins_at = now + account.delay if account.calm_until > now else now
        if table.connections_per_second:
            account.arrivals.owe(1, table.connections_per_second, table.burst_seconds, now)

    def fruitless(self, account: Account) -> None:
        """A connection of the client has ended that was of no use to anybody."""
        now = trio.current_time()
        if account.fruitless.owe(1, FRUITLESS_PER_SECOND, FRUITLESS_SECONDS, now):
            account.abused(now)

    def seat(self, listener: str, most: int, host: str, identity: str = "") -> Seat | str:
        """A seat for a new connection, or the key of the limit for which there is none.

        `most`: what the listener bears. Whoever rests longest is closed where there are too many.
        """
        account = self._account(client_key(host, identity))
        own = self._listeners.setdefault(listener, Crowd())
        for crowd, limit, key in (
            (account.crowd, self.table.max_connections_per_client, "max_connections_per_client"),
            (own, most, "listener.max_connections"),
            (self._everybody, self._most(), "max_connections"),
        ):
            if len(crowd) >= limit and not self._shed(crowd, key, listener):
                self._forget(account)
                return key
        seat = Seat(self, listener, account, own, trio.current_time())
        for crowd in (account.crowd, own, self._everybody):
            crowd.enter(seat)
        return seat

    def leave(self, seat: Seat) -> None:
        """The connection has ended. What was shed has left already."""
        self._everybody.leave(seat)
        self._listeners[seat.listener].leave(seat)
        seat.account.crowd.leave(seat)
        self._forget(seat.account)

    def shed(self, listener: str) -> bool:
        """Close the connection that rests longest, because descriptors have run out; False where none rests."""
        return self._shed(self._everybody, "max_connections", listener)

    def _shed(self, crowd: Crowd, key: str, listener: str) -> bool:
        self._told_of(listener, key)
        seat = crowd.spare(trio.current_time())
        if seat is None:
            return False
        self.leave(seat)
        seat.scope.cancel()
        return True

    def _most(self) -> int:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors == resource.RLIM_INFINITY:
            return self.table.max_connections
        return min(self.table.max_connections, descriptors - min(SPARE_DESCRIPTORS, descriptors // 4))

    def known(self, seat: Seat, own: Crowd) -> None:
        """The seat's client was let do something."""
        crowds = [crowd for crowd in (seat.account.crowd, own, self._everybody) if crowd.has(seat)]
        for crowd in crowds:
            crowd.leave(seat)
        seat.known = True
        for crowd in crowds:
            crowd.enter(seat)

    def move(self, seat: Seat, identity: str) -> None:
        """The seat's client proved who it is. One of its connections is closed where that is one too many: this one
        where none of the others rests."""
        before, key = seat.account, client_key("", identity)
        if key == before.key or not before.crowd.has(seat):
            return
        after = self._account(key)
        if len(after.crowd) >= self.table.max_connections_per_client and not self._shed(
            after.crowd, "max_connections_per_client", seat.listener
        ):
            seat.scope.cancel()
        before.crowd.leave(seat)
        before.held -= seat.held
        seat.account = after
        after.held += seat.held
        after.crowd.enter(seat)
        if before.leader is seat:
            before.leader = None
        self._forget(before)

    def calm(self, seat: Seat) -> None:
        """See `Seat.abused`. New connections of the client come from its address before they are of an identity."""
        for account in {seat.account, self._account(seat.origin)}:
            account.abused(trio.current_time())
            self._forget(account)

    # ---- who is served -------------------------------------------------------------------------------------------

    def heard(self, account: Account) -> None:
        """Something was read from the client."""
        if account is not self._heard:
            if self._heard is not None:
                self._another_at = trio.current_time()
            self._heard = account

    def others(self, account: Account) -> bool:
        """Whether other clients are served at the moment."""
        return self._heard not in (account, None) or trio.current_time() - self._another_at < HEARD_SECONDS

    # ---- accounts ------------------------------------------------------------------------------------------------

    def _account(self, key: str) -> Account:
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account(key)
        return account

    def _forget(self, account: Account) -> None:
        """Nobody needs it where it has no connection, unless it has used up its rates or abused others."""
        if account.used or account.key not in self._accounts:
            return
        if not self._remembers(account):
            self._accounts.pop(account.key, None)
            return
        self._accounts.move_to_end(account.key)
        for _ in range(min(2, len(self._accounts))):  # of whom nobody hears any more is forgotten in time
            oldest = next(iter(self._accounts.values()))
            if not oldest.used and (len(self._accounts) > REMEMBERED or not self._remembers(oldest)):
                del self._accounts[oldest.key]
            else:
                self._accounts.move_to_end(oldest.key)

    def _remembers(self, account: Account) -> bool:
        table, now = self.table, trio.current_time()
        if table.requests_per_second or table.bytes_per_second or not account.forgiven(now):
            return True
        rate = table.connections_per_second
        return account.fruitless.spent(FRUITLESS_PER_SECOND, now) > 1 or (
            rate > 0 and account.arrivals.spent(rate, now) > 1
        )

    # ---- bytes in flight -----------------------------------------------------------------------------------------

    def charge(self, seat: Seat, size: int) -> None:
        """See `Seat.charge`."""
        account = seat.account
        self.held += size
        account.held += size
        if size > 0:
            return
        if seat.held <= seat.own:
            if account.leader is seat:
                account.leader = None
            if self._leader is seat:
                self._leader = None
        if not account.held:
            self._forget(account)
        if account.waiting:
            account.waiting.unpark()
        if self._waiting:
            self._waiting.unpark()

    def crowded_by(self, seat: Seat, own: int) -> str | None:
        """The limit for which a seat that holds more than its `own` may not hold more; None where it may.

        What all hold together is nothing to those whose client holds no more than its share of the limit.
        """
        if seat.held <= own:
            return None
        account, table = seat.account, self.table
        if account.held > table.max_inflight_bytes_per_client and account.leader is not seat:
            return "max_inflight_bytes_per_client"
        most = table.max_inflight_bytes
        if self.held > most and account.held * len(self._accounts) > most and self._leader is not seat:
            return "max_inflight_bytes"
        return None

    def _lead(self, seat: Seat, key: str) -> bool:
        """Let one of those who wait go on, so that not all wait for each other."""
        if key == "max_inflight_bytes_per_client" and seat.account.leader is None:
            seat.account.leader = seat
            return True
        if key == "max_inflight_bytes" and self._leader is None:
            self._leader = seat
            return True
        return False

    async def wait(self, seat: Seat, own: int) -> None:
        """See `Seat.room`."""
        key = "max_inflight_bytes"
        counted = False
        seconds = self.table.inflight_wait_seconds
        with trio.move_on_after(seconds):
            while (by := self.crowded_by(seat, own)) is not None:
                key = by
                if self._lead(seat, key):
                    continue
                if not counted:
                    self._told_of(seat.listener, key)
                    counted = True
                await (self._waiting if key == "max_inflight_bytes" else seat.account.waiting).park()
            self._waiting.unpark()  # there may be room for one more
            seat.account.waiting.unpark()
            return
        raise Crowded(key, seconds)

    # ---- what is told --------------------------------------------------------------------------------------------

    def limited(self, listener: str, key: str) -> None:
        """Count it."""
        LIMITED.labels(listener, key).inc()

    def _told_of(self, listener: str, key: str) -> None:
        """Count it, and tell of it now and then: it is not about one connection alone."""
        self.limited(listener, key)
        now = trio.current_time()
        since, times = self._told.get((listener, key), (-LOG_SECONDS, 0))
        if now - since < LOG_SECONDS:
            self._told[listener, key] = since, times + 1
            return
        self._told[listener, key] = now, 0
        log.warning("limit_reached", listener=listener, limit=key, more_since_last=times)
