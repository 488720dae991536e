"""The accounting behind the limits: who may connect, how many bytes may be in flight, and how fast clients may ask.

A `Limiter` keeps one account (`ClientQuota`) for each client, by its proved identity, else its address. Each connection
has a `ConnectionQuota`, charged to its client's account, to its listener and to the whole process. Its client is
unauthenticated until a request of it is admitted (`admit`); such clients may hold less and are evicted first.

Connections: an `EvictionPool` holds those that share a limit. When one is full, the connection that has been idle for
longest is closed for the new one; if none is idle, the new one is refused. A client that behaves as only hostile ones
do is slowed: its next connections begin one by one, with growing pauses.

Rates are token buckets (`Bucket`) of a client's account, whose rate and depth come with each call, since a reload may
change them.

Bytes in flight: a connection above its own small share stops being read while its client, or the process, is over its
limit. One connection per limit (its leader) may go on regardless, so that of several large messages one is completed
instead of all waiting for each other.
"""

from __future__ import annotations

import ipaddress
import math
import random
import resource
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from itertools import islice
from typing import Final, Self

import structlog
import trio

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import KIB
from penstock.net.limits.settings import Limits
from penstock.observe.metrics.families import LIMITED

__all__ = [
    "CONNECTION_QUOTA",
    "Bucket",
    "ClientQuota",
    "ConnectionQuota",
    "Crowded",
    "EvictionPool",
    "HeldBytes",
    "Limiter",
    "client_key",
    "count_operation",
    "current_quota",
    "too_many",
]

log = structlog.get_logger()

_SHARED_BITS: Final = 64
"""Bits of an IPv6 address that one household or machine has to itself: it could take another address for each
connection."""
_THROTTLED_SECONDS: Final = 10.0
"""Seconds for which a client is slowed after an abuse, at least."""
_FORGIVEN_SECONDS: Final = 60.0
"""Seconds after that in which a further abuse increases the delay."""
_FIRST_DELAY: Final = 0.5
_MOST_DELAY: Final = 8.0
"""Seconds between the connections of a slowed client: the first delay, doubled with each abuse up to the largest. One
of them costs 30 ms at most before it is cut off, which others then do not notice."""
_MOST_STRIKES: Final = 8
_OWN: Final = 64 * KIB
_UNAUTHENTICATED_OWN: Final = 16 * KIB
"""Bytes that a connection may hold regardless of all limits; the smaller one until a request of it is admitted."""
_LEAST_READ: Final = 4 * KIB
"""Bytes that are read at once in any case."""
_MUCH: Final = 64 * KIB
_REST_SECONDS: Final = 0.002
_SHORT_REST_SECONDS: Final = 0.001
"""Seconds to pause after a turn. Requests of others take some 20 passes of the scheduler, and would otherwise wait for
as many turns of 0.25 ms. After turns in which much was read the pause is short: bodies still arrive at more than 100
MB/s."""
_SLOW_READ: Final = 8
"""Bytes below which a read counts as slow: in no protocol is a whole message shorter."""
_SLOW_READS: Final = 8
_SLOW_PAUSE: Final = 0.1, 0.3
"""Seconds (at least, at most) for which a connection is not read after _DRIPS slow reads in a row while other clients
are served. 200 slow senders at the same time take 6 ms of one pass; the random pause spreads them."""
_MORE_SLOW_READS: Final = 12
_MORE_SLOW_PAUSE: Final = 0.5, 1.0
_SLOW_RATE: Final = 100
"""Bytes a second below which a paused connection still counts as slow; after _MORE_DRIPS slow reads it is paused for
longer. 200 slow senders took 14 % of a core when each was read after 0.2 s on average."""
UNAUTHENTICATED_IDLE_SECONDS: Final = 1.0
"""Seconds that a connection must have been idle to be evicted before any request of it was admitted: it may be about to
send one."""
AUTHENTICATED_IDLE_SECONDS: Final = 5.0
"""The same for other connections, which clients keep for later requests."""
LOOKS: Final = 64
"""Connections that are compared to find an idle one, about 10 us: the result has been idle for nearly the longest
time."""
SPARE_DESCRIPTORS: Final = 1024
"""File descriptors kept for the store, backs and refusals; a quarter of all if there are few."""
REMEMBERED: Final = 10_000
"""Clients without a connection whose accounts are kept, about 0.5 KiB each, so that reconnecting does not reset a
client's rates."""
THROTTLED_WAIT: Final = 1.0
"""Seconds that connections of a slowed client may wait to begin; those that would wait longer are closed."""
FAILED_PER_SECOND: Final = 50
FAILED_SECONDS: Final = 5.0
"""Rate and burst of failed connections above which a client is treated as an attacker. A probe that checks whether a
port answers makes some in a second."""
SERVED_SECONDS: Final = 0.05
"""Seconds after data of another client during which other clients count as being served."""
LOG_SECONDS: Final = 10.0
"""Seconds between log lines about the same limit."""
CONNECTION_QUOTA: ContextVar[ConnectionQuota] = ContextVar("penstock.connection_quota")
"""Set for each accepted connection, for all tasks that serve it."""


class Bucket:
    """A token bucket, refilled at `rate` tokens a second up to the tokens of `seconds`. Both come with each call, so
    that they may change at any time."""

    __slots__ = ("_at", "_spent")

    def __init__(self) -> None:
        self._spent = 0.0  # tokens taken and not yet refilled; more than the depth is a debt
        self._at = 0.0

    def take(self, tokens: float, rate: float, seconds: float, now: float) -> float:
        """Take tokens if there are enough. Return 0.0, or the seconds until there will be, without taking any."""
        self._grow(rate, now)
        over = self._spent + tokens - max(rate * seconds, tokens)
        if over > 0:
            return over / rate
        self._spent += tokens
        return 0.0

    def spent(self, rate: float, now: float) -> float:
        """Return the tokens that were taken and not yet refilled."""
        self._grow(rate, now)
        return self._spent

    def lacks(self, tokens: float, rate: float, seconds: float, now: float) -> float:
        """Return the seconds until there will be so many tokens, without taking any."""
        self._grow(rate, now)
        return max(0.0, (self._spent + tokens - max(rate * seconds, tokens)) / rate)

    def owe(self, tokens: float, rate: float, seconds: float, now: float) -> float:
        """Take tokens, into debt if necessary. Return the seconds to wait before more are taken."""
        self._grow(rate, now)
        self._spent += tokens
        return max(0.0, self._spent / rate - seconds)

    def _grow(self, rate: float, now: float) -> None:
        self._spent = max(0.0, self._spent - (now - self._at) * rate)
        self._at = now


class ClientQuota:
    """The account of one client: of the identity that it proved, or of its address."""

    __slots__ = (
        "arrivals",
        "arriving",
        "begins_at",
        "failures",
        "held",
        "key",
        "leader",
        "octets",
        "pool",
        "requests",
        "strikes",
        "throttled_until",
        "turns",
        "waiting",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.throttled_until = 0.0
        """Time until which new connections are slowed, because the client has abused the gateway."""
        self.begins_at = 0.0
        """Time at which the next connection may begin, while they are slowed."""
        self.strikes = 0
        """Abuses since the client was last forgiven."""
        self.pool = EvictionPool()
        self.held = 0
        """Bytes in flight."""
        self.leader: object = None
        """The connection that may exceed the limit, so that of several large messages one is completed."""
        self.waiting = trio.lowlevel.ParkingLot()
        self.arrivals = Bucket()
        self.arriving = 0
        """Connections that wait to begin."""
        self.failures = Bucket()
        """Rate of failed connections: broken off, or ended before anything was sent to the client."""
        self.turns = trio.Lock()
        """Held by the connection that processes input beyond its turn: all connections of a client share one turn."""
        self.requests = Bucket()
        self.octets = Bucket()

    @property
    def used(self) -> bool:
        """True if the client has connections or holds bytes."""
        return bool(len(self.pool) or self.held or self.arriving)

    def forgiven(self, now: float) -> bool:
        """Return whether the client has no abuses, or none recently."""
        return not self.strikes or now >= self.throttled_until + _FORGIVEN_SECONDS

    @property
    def delay(self) -> float:
        """Seconds between new connections while they are slowed."""
        return min(_FIRST_DELAY * (1 << max(0, self.strikes - 1)), _MOST_DELAY)

    def abused(self, now: float) -> None:
        """Record an abuse: behaviour of hostile clients only. Abuses of several connections at the same time count
        once."""
        if now >= self.begins_at:
            self.strikes = 1 if self.forgiven(now) else min(self.strikes + 1, _MOST_STRIKES)
        self.begins_at = now + self.delay
        self.throttled_until = max(self.throttled_until, now + max(_THROTTLED_SECONDS, 2 * self.delay))


def client_key(host: str, identity: str = "") -> str:
    """Return the key of a client's account: its identity, else its address (of IPv6, the network)."""
    if identity:
        return f"identity {identity}"
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> _SHARED_BITS << _SHARED_BITS, 128 - _SHARED_BITS)))


def count_operation() -> None:
    """Count an operation on a back as a request, if the current task serves a client whose front counts none. Raises
    OperationFailed(RATE_LIMITED)."""
    quota = CONNECTION_QUOTA.get(None)
    if quota is not None and not quota.counts_requests and (wait := quota.take_request()):
        raise too_many(wait)


def too_many(seconds: float) -> OperationFailed:
    """Return the failure for a client that exceeds its request rate and may retry after `seconds`: RATE_LIMITED."""
    text = f"requests_per_second is reached, try again in {seconds:.3f} s"
    return fail(FailureCode.RATE_LIMITED, text, retry_after=seconds)


class Crowded(Exception):
    """Raised when no room for more bytes in flight within too long. `key`: the limit."""

    def __init__(self, key: str, seconds: float) -> None:
        super().__init__(f"{key}: no room for more bytes in flight within {seconds:g} s")
        self.key = key


class ConnectionQuota:
    """The quota of one connection. `scope` is cancelled when the connection must make room for another.

    Fronts set `busy = True` when they begin to execute a request, call `rest` when none is in flight any more, and
    `admit` when the client is allowed what it asked for. A front that counts no requests (`request`) is charged for
    each operation and each session on its back instead (`count_operation`). All methods but those that wait for room or
    rest return at once.
    """

    __slots__ = (
        "_identity",
        "_limiter",
        "_own_pool",
        "_slow_for",
        "_slow_reads",
        "account",
        "authenticated",
        "busy",
        "counts_requests",
        "held",
        "listener",
        "origin",
        "rested_at",
        "scope",
    )

    def __init__(
        self, limiter: Limiter, listener: str, account: ClientQuota, own_pool: EvictionPool, now: float
    ) -> None:
        self._limiter = limiter
        self._own_pool = own_pool  # of the listener
        self._identity = ""
        self._slow_reads = 0
        self._slow_for = 0.0
        self.listener = listener
        self.account = account
        self.origin = account.key
        """Key of its first account, which is its address's."""
        self.scope = trio.CancelScope()
        self.busy = False
        """True while a request is in flight."""
        self.rested_at = now
        """Time at which the last request ended."""
        self.authenticated = False
        """True once a request of the client has been admitted."""
        self.counts_requests = False
        """True once the front has counted a request."""
        self.held = 0
        """Bytes in flight."""

    @property
    def limits(self) -> Limits:
        """The limits in force."""
        return self._limiter.table

    # ---- connections ---------------------------------------------------------------------------------------------

    def rest(self, now: float) -> None:
        """Record that no request is in flight any more."""
        self.busy = False
        self.rested_at = now

    def admit(self, identity: str = "") -> None:
        """Record that the client is allowed what it asked for. From now on it is charged to `identity`, if it proved
        one."""
        if not self.authenticated:
            self._limiter.authenticated(self, self._own_pool)
        if identity and identity != self._identity:
            self._identity = identity
            self._limiter.move(self, client_key("", identity))

    def come_from(self, host: str, identity: str) -> None:
        """Charge the connection to the client at this address, or with this identity, from now on: a proxy passes on
        its request."""
        self._limiter.move(self, client_key(host, identity))

    def limited(self, key: str) -> None:
        """Count something that was refused, cut off or delayed by the limit of this name."""
        self._limiter.limited(self.listener, key)

    def abused(self) -> None:
        """Slow the client for a while: the connection is cut off for behaviour of hostile clients only."""
        self._limiter.throttle(self)

    def login_failed(self) -> None:
        """Count a failed login as a failed connection of the client."""
        self._limiter.connection_failed(self.account)

    @property
    def slowed(self) -> bool:
        """True if the client is slowed after an abuse; stricter limits apply to it then."""
        return self.account.throttled_until > trio.current_time()

    async def rest_after_turn(self, before: int, left: int) -> None:
        """Pause at the end of a turn (`ClientQuota.turns`) if other clients are being served.

        `before` and `left`: bytes that waited to be processed before and after the turn. Returns at once if none are
        left.
        """
        if left and self._limiter.others(self.account):
            await trio.sleep(_REST_SECONDS if before - left < _MUCH else _SHORT_REST_SECONDS)

    async def rest_in_turn(self) -> None:
        """Pause as `rest_after_turn` does, one connection of the client after the other, for work that is not
        urgent."""
        async with self.account.turns:
            await self.rest_after_turn(1, 1)

    async def rest_in_work(self, pause: Callable[[float], Awaitable[object]]) -> None:
        """Pause in the work on a long request, one connection of the client after the other. `pause` waits for some
        seconds, 0 if no other client is being served."""
        async with self.account.turns:
            await pause(_SHORT_REST_SECONDS if self._limiter.others(self.account) else 0.0)

    # ---- rates ---------------------------------------------------------------------------------------------------

    def request(self) -> float:
        """Count a request. Return 0.0, or the seconds after which it may be retried."""
        self.counts_requests = True
        return self.take_request()

    def take_request(self) -> float:
        """Take a request from the client's rate, as `request` does."""
        limits = self._limiter.table
        rate = limits.requests_per_second
        if not rate:
            return 0.0
        wait = self.account.requests.take(1, rate, limits.burst_seconds, trio.current_time())
        if wait:
            self.limited("requests_per_second")
        return wait

    def worked(self) -> float:
        """Count work on a request that is as much as another request. Return how long to pause, in seconds."""
        limits = self._limiter.table
        rate = limits.requests_per_second
        if not rate:
            return 0.0
        wait = self.account.requests.owe(1, rate, limits.burst_seconds, trio.current_time())
        if wait:
            self.limited("requests_per_second")
        return wait

    def received(self, size: int) -> float:
        """Count bytes that were read. Return how long to pause reading, in seconds."""
        limits = self._limiter.table
        self._limiter.data_read(self.account)
        rate = limits.bytes_per_second
        pause = self._slow_pause(size)
        if not rate:
            return pause
        wait = self.account.octets.owe(size, rate, limits.burst_seconds, trio.current_time())
        if wait:
            self.limited("bytes_per_second")
        return max(wait, pause)

    def _slow_pause(self, size: int) -> float:
        """Return how long to pause reading a slow sender, in seconds (0.0 if it is not slow)."""
        self._slow_reads = self._slow_reads + 1 if 0 < size < max(_SLOW_READ, _SLOW_RATE * self._slow_for) else 0
        if self._slow_reads > _SLOW_READS and self._limiter.others(self.account):
            bounds = _MORE_SLOW_PAUSE if self._slow_reads > _MORE_SLOW_READS else _SLOW_PAUSE
            self._slow_for = random.uniform(*bounds)
        else:
            self._slow_for = 0.0
        return self._slow_for

    # ---- bytes in flight -----------------------------------------------------------------------------------------

    def charge(self, size: int) -> None:
        """Add `size` bytes, which may be negative, to those in flight."""
        self.held += size
        self._limiter.charge(self, size)

    @property
    def crowded(self) -> bool:
        """True if the connection must wait for `room` before it holds more."""
        return self.held > _UNAUTHENTICATED_OWN and self._limiter.crowded_by(self, self.own) is not None

    @property
    def own(self) -> int:
        """Bytes that the connection may hold regardless of all limits."""
        return _OWN if self.authenticated else _UNAUTHENTICATED_OWN

    def most_to_read(self, size: int) -> int:
        """Return how many bytes may be read at once, at most `size`: few if a limit is reached, as many connections may
        have something to read at that moment."""
        if self._limiter.crowded_by(self, -1) is None:
            return size
        return min(size, max(self.own - self.held, _LEAST_READ))

    async def room(self) -> None:
        """Wait until the connection may hold more. Raises Crowded if that takes too long."""
        if self.crowded:
            await self._limiter.wait(self, self.own)

    async def request_room(self) -> None:
        """Wait until the connection may hold more of a request. Raises OperationFailed(RATE_LIMITED) if that takes too
        long."""
        try:
            await self.room()
        except Crowded as error:
            raise fail(FailureCode.RATE_LIMITED, str(error), retry_after=1.0) from None

    async def answer_room(self) -> None:
        """Wait until an answer, which may be large, may be fetched, or a request decompressed. Raises
        OperationFailed(RATE_LIMITED) if that takes too long."""
        if self._limiter.crowded_by(self, -1) is not None:
            try:
                await self._limiter.wait(self, -1)
            except Crowded as error:
                raise fail(FailureCode.RATE_LIMITED, str(error), retry_after=1.0) from None


class HeldBytes:
    """Bytes that one task of a connection holds: a context manager that releases them at its end."""

    __slots__ = ("_quota", "size")

    def __init__(self, quota: ConnectionQuota) -> None:
        self._quota = quota
        self.size = 0

    def set(self, size: int) -> None:
        """Change the bytes held to `size`."""
        change = size - self.size
        if change:
            self.size = size
            self._quota.charge(change)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.set(0)


class EvictionPool:
    """Connections that share a limit. Those without an admitted request are evicted first.

    Both queues are ordered by the time at which each connection was last known to be in use, which is the value.
    """

    __slots__ = ("_authenticated", "_unauthenticated")

    def __init__(self) -> None:
        self._unauthenticated: OrderedDict[ConnectionQuota, float] = OrderedDict()
        self._authenticated: OrderedDict[ConnectionQuota, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._unauthenticated) + len(self._authenticated)

    def enter(self, quota: ConnectionQuota) -> None:
        """Add a connection."""
        (self._authenticated if quota.authenticated else self._unauthenticated)[quota] = quota.rested_at

    def has(self, quota: ConnectionQuota) -> bool:
        """Return whether the connection is in the pool."""
        return quota in (self._authenticated if quota.authenticated else self._unauthenticated)

    def leave(self, quota: ConnectionQuota) -> None:
        """Remove the connection, if it is in the pool."""
        (self._authenticated if quota.authenticated else self._unauthenticated).pop(quota, None)

    def spare(self, now: float) -> ConnectionQuota | None:
        """Return the connection to close for another one; None if all are busy, or were a moment ago."""
        longest = _longest_at_rest(self._unauthenticated, now, UNAUTHENTICATED_IDLE_SECONDS)
        return longest or _longest_at_rest(self._authenticated, now, AUTHENTICATED_IDLE_SECONDS)


def _longest_at_rest(queue: OrderedDict[ConnectionQuota, float], now: float, seconds: float) -> ConnectionQuota | None:
    longest: ConnectionQuota | None = None
    used: list[ConnectionQuota] = []
    for quota, known_at in islice(queue.items(), LOOKS):
        if not quota.busy and quota.rested_at <= now - seconds:
            if longest is None or quota.rested_at < longest.rested_at:
                longest = quota
        elif quota.busy or quota.rested_at > known_at:
            used.append(quota)
        else:
            break  # those behind it have been idle for even less time
    for quota in used:
        queue[quota] = now
        queue.move_to_end(quota)  # so that others are compared next time
    return longest


class Limiter:
    """All accounts and connections of a process. `table`: the limits in force; assign another one to change them."""

    def __init__(self, table: Limits | None = None) -> None:
        self.table = table or Limits()
        self.held = 0
        """Bytes in flight."""
        self._accounts: OrderedDict[str, ClientQuota] = OrderedDict()
        self._all = EvictionPool()
        self._listeners: dict[str, EvictionPool] = {}
        self._leader: ConnectionQuota | None = None
        self._waiting = trio.lowlevel.ParkingLot()
        self._last_read: ClientQuota | None = None
        self._another_at = -math.inf
        self._reported: dict[tuple[str, str], tuple[float, int]] = {}

    # ---- connections ---------------------------------------------------------------------------------------------

    @property
    def connections(self) -> int:
        """Number of connections."""
        return len(self._all)

    def account(self, host: str, identity: str = "") -> ClientQuota:
        """Return the account that a new connection is charged to."""
        return self._account(client_key(host, identity))

    def pause(self, account: ClientQuota) -> tuple[float, str]:
        """Return the seconds for which the client may begin no more connections, and the limit that says so."""
        now, table = trio.current_time(), self.table
        if account.throttled_until > now:
            return max(0.0, account.begins_at - now), "calm"
        rate = table.connections_per_second
        return (account.arrivals.lacks(1, rate, table.burst_seconds, now) if rate else 0.0), "connections_per_second"

    def may_wait(self, account: ClientQuota, pause: float) -> bool:
        """Return whether one more connection of the client may wait to begin; the next one may begin after `pause`
        seconds."""
        if account.throttled_until > trio.current_time():
            return pause + account.arriving * account.delay <= THROTTLED_WAIT
        return not pause or account.arriving + len(account.pool) < self.table.max_connections_per_client

    def arrived(self, account: ClientQuota) -> None:
        """Count a connection of the client that begins."""
        now, table = trio.current_time(), self.table
        self.data_read(account)
        account.begins_at = now + account.delay if account.throttled_until > now else now
        if table.connections_per_second:
            account.arrivals.owe(1, table.connections_per_second, table.burst_seconds, now)

    def connection_failed(self, account: ClientQuota) -> None:
        """Count a failed connection of the client; too many are an abuse."""
        now = trio.current_time()
        if account.failures.owe(1, FAILED_PER_SECOND, FAILED_SECONDS, now):
            account.abused(now)

    def enter(self, listener: str, most: int, host: str, identity: str = "") -> ConnectionQuota | str:
        """Return a quota for a new connection, or the key of the limit that leaves no room for it.

        `most`: the listener's limit. When a limit is reached, the connection that has been idle for longest is closed.
        """
        account = self._account(client_key(host, identity))
        own = self._listeners.setdefault(listener, EvictionPool())
        for pool, limit, key in (
            (account.pool, self.table.max_connections_per_client, "max_connections_per_client"),
            (own, most, "listener.max_connections"),
            (self._all, self._most(), "max_connections"),
        ):
            if len(pool) >= limit and not self._shed(pool, key, listener):
                self._forget(account)
                return key
        quota = ConnectionQuota(self, listener, account, own, trio.current_time())
        for pool in (account.pool, own, self._all):
            pool.enter(quota)
        return quota

    def leave(self, quota: ConnectionQuota) -> None:
        """Remove a connection that has ended. An evicted one was removed before."""
        self._all.leave(quota)
        self._listeners[quota.listener].leave(quota)
        quota.account.pool.leave(quota)
        self._forget(quota.account)

    def shed(self, listener: str) -> bool:
        """Close the connection that has been idle for longest, because descriptors have run out. Return False if none
        is idle."""
        return self._shed(self._all, "max_connections", listener)

    def _shed(self, pool: EvictionPool, key: str, listener: str) -> bool:
        self._report(listener, key)
        quota = pool.spare(trio.current_time())
        if quota is None:
            return False
        self.leave(quota)
        quota.scope.cancel()
        return True

    def _most(self) -> int:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors == resource.RLIM_INFINITY:
            return self.table.max_connections
        return min(self.table.max_connections, descriptors - min(SPARE_DESCRIPTORS, descriptors // 4))

    def authenticated(self, quota: ConnectionQuota, own: EvictionPool) -> None:
        """Record that a request of the connection was admitted."""
        pools = [pool for pool in (quota.account.pool, own, self._all) if pool.has(quota)]
        for pool in pools:
            pool.leave(quota)
        quota.authenticated = True
        for pool in pools:
            pool.enter(quota)

    def move(self, quota: ConnectionQuota, key: str) -> None:
        """Charge the connection to the client with this key, whose identity or address is known now.

        If that is one connection too many, an idle one of the client is closed, or this one if none is idle.
        """
        before = quota.account
        if key == before.key or not before.pool.has(quota):
            return
        after = self._account(key)
        if len(after.pool) >= self.table.max_connections_per_client and not self._shed(
            after.pool, "max_connections_per_client", quota.listener
        ):
            quota.scope.cancel()
        before.pool.leave(quota)
        before.held -= quota.held
        quota.account = after
        after.held += quota.held
        after.pool.enter(quota)
        if before.leader is quota:
            before.leader = None
        self._forget(before)

    def throttle(self, quota: ConnectionQuota) -> None:
        """Record an abuse, for the client's identity and its address: its new connections come from the address before
        they have an identity."""
        for account in {quota.account, self._account(quota.origin)}:
            account.abused(trio.current_time())
            self._forget(account)

    # ---- fairness ------------------------------------------------------------------------------------------------

    def data_read(self, account: ClientQuota) -> None:
        """Record that data of the client was read."""
        if account is not self._last_read:
            if self._last_read is not None:
                self._another_at = trio.current_time()
            self._last_read = account

    def others(self, account: ClientQuota) -> bool:
        """Return whether other clients are being served at the moment."""
        return self._last_read not in (account, None) or trio.current_time() - self._another_at < SERVED_SECONDS

    # ---- accounts ------------------------------------------------------------------------------------------------

    def _account(self, key: str) -> ClientQuota:
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = ClientQuota(key)
        return account

    def _forget(self, account: ClientQuota) -> None:
        """Drop the account if it has no connection, unless it has used up rates or abuses are recorded."""
        if account.used or account.key not in self._accounts:
            return
        if not self._remembers(account):
            self._accounts.pop(account.key, None)
            return
        self._accounts.move_to_end(account.key)
        for _ in range(min(2, len(self._accounts))):  # drop old accounts over time
            oldest = next(iter(self._accounts.values()))
            if not oldest.used and (len(self._accounts) > REMEMBERED or not self._remembers(oldest)):
                del self._accounts[oldest.key]
            else:
                self._accounts.move_to_end(oldest.key)

    def _remembers(self, account: ClientQuota) -> bool:
        table, now = self.table, trio.current_time()
        if table.requests_per_second or table.bytes_per_second or not account.forgiven(now):
            return True
        rate = table.connections_per_second
        return account.failures.spent(FAILED_PER_SECOND, now) > 1 or (
            rate > 0 and account.arrivals.spent(rate, now) > 1
        )

    # ---- bytes in flight -----------------------------------------------------------------------------------------

    def charge(self, quota: ConnectionQuota, size: int) -> None:
        """Add `size` bytes, which may be negative, to those that a connection has in flight; wake waiters for
        room."""
        account = quota.account
        self.held += size
        account.held += size
        if size > 0:
            return
        if quota.held <= quota.own:
            if account.leader is quota:
                account.leader = None
            if self._leader is quota:
                self._leader = None
        if not (account.held or account.pool):
            self._forget(account)
        if account.waiting:
            account.waiting.unpark()
        if self._waiting:
            self._waiting.unpark()

    def crowded_by(self, quota: ConnectionQuota, own: int) -> str | None:
        """Return the limit that keeps a connection that holds more than `own` bytes from holding more; None if it may.

        The limit of the process does not apply to a client that holds no more than its equal share of it.
        """
        if quota.held <= own:
            return None
        account, table = quota.account, self.table
        if account.held > table.max_inflight_bytes_per_client and account.leader is not quota:
            return "max_inflight_bytes_per_client"
        most = table.max_inflight_bytes
        if self.held > most and account.held * len(self._accounts) > most and self._leader is not quota:
            return "max_inflight_bytes"
        return None

    def _lead(self, quota: ConnectionQuota, key: str) -> bool:
        """Make the connection the leader of the limit, if there is none, so that not all wait for each other."""
        if key == "max_inflight_bytes_per_client" and quota.account.leader is None:
            quota.account.leader = quota
            return True
        if key == "max_inflight_bytes" and self._leader is None:
            self._leader = quota
            return True
        return False

    async def wait(self, quota: ConnectionQuota, own: int) -> None:
        """Wait until a connection that holds more than `own` bytes may hold more. Raises Crowded if that takes too
        long."""
        key = "max_inflight_bytes"
        counted = False
        seconds = self.table.inflight_wait_seconds
        with trio.move_on_after(seconds):
            while (by := self.crowded_by(quota, own)) is not None:
                key = by
                if self._lead(quota, key):
                    continue
                if not counted:
                    self._report(quota.listener, key)
                    counted = True
                await (self._waiting if key == "max_inflight_bytes" else quota.account.waiting).park()
            self._waiting.unpark()  # there may be room for one more
            quota.account.waiting.unpark()
            return
        raise Crowded(key, seconds)

    # ---- reporting -----------------------------------------------------------------------------------------------

    def limited(self, listener: str, key: str) -> None:
        """Count a use of the limit `key`."""
        LIMITED.labels(listener, key).inc()

    def _report(self, listener: str, key: str) -> None:
        """Count a use of the limit `key` and log it at most every LOG_SECONDS: it concerns more than one connection."""
        self.limited(listener, key)
        now = trio.current_time()
        since, times = self._reported.get((listener, key), (-LOG_SECONDS, 0))
        if now - since < LOG_SECONDS:
            self._reported[listener, key] = since, times + 1
            return
        self._reported[listener, key] = now, 0
        log.warning("limit_reached", listener=listener, limit=key, more_since_last=times)


def current_quota() -> ConnectionQuota:
    """Return the quota of the current connection. A task outside of any connection gets its own, with the default
    limits."""
    quota = CONNECTION_QUOTA.get(None)
    if quota is None:
        quota = ConnectionQuota(Limiter(), "", ClientQuota(""), EvictionPool(), 0.0)
        CONNECTION_QUOTA.set(quota)
    return quota
