"""Connection quotas: which connections are admitted, and which are closed to make room."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from penstock.net.limits import Limiter
from penstock.net.limits.limiter import ConnectionQuota, client_key
from penstock.net.limits.settings import Limits

FEW = 4
LISTENER = "listeners.s2"


def new_quota(limiter: Limiter, host: str = "10.0.0.1", most: int = 100, identity: str = "") -> ConnectionQuota:
    quota = limiter.enter(LISTENER, most, host, identity)
    assert isinstance(quota, ConnectionQuota), quota
    return quota


@pytest.fixture
def clock(autojump_clock: MockClock) -> MockClock:
    return autojump_clock


async def test_the_unauthenticated_connection_that_was_idle_longest_makes_room(clock: MockClock) -> None:
    limiter = Limiter()
    known = new_quota(limiter)
    known.admit()
    await trio.sleep(10)
    unauthenticated = new_quota(limiter)
    await trio.sleep(2)
    young = new_quota(limiter)
    newcomer = new_quota(limiter, most=3)
    assert [each.scope.cancel_called for each in (known, unauthenticated, young, newcomer)] == [
        False,
        True,
        False,
        False,
    ]
    assert limiter.connections == 3


async def test_an_authenticated_connection_makes_room_if_there_is_no_other(clock: MockClock) -> None:
    limiter = Limiter()
    first, second = new_quota(limiter), new_quota(limiter)
    for quota in (first, second):
        quota.admit()
    await trio.sleep(10)
    first.rest(trio.current_time())  # it has just asked for something
    new_quota(limiter, most=2)
    assert second.scope.cancel_called and not first.scope.cancel_called


async def test_where_all_are_busy_the_newcomer_is_refused(clock: MockClock) -> None:
    limiter = Limiter()
    quotas = [new_quota(limiter) for _ in range(FEW)]
    for quota in quotas:
        quota.busy = True
    await trio.sleep(100)
    assert limiter.enter(LISTENER, FEW, "10.0.0.2") == "listener.max_connections"
    limiter.leave(quotas[0])
    assert isinstance(limiter.enter(LISTENER, FEW, "10.0.0.2"), ConnectionQuota)


async def test_who_has_just_connected_is_given_a_moment(clock: MockClock) -> None:
    limiter = Limiter()
    quotas = [new_quota(limiter) for _ in range(FEW)]
    assert limiter.enter(LISTENER, FEW, "10.0.0.2") == "listener.max_connections"
    assert not any(quota.scope.cancel_called for quota in quotas)


async def test_newcomers_find_who_rests_among_many_that_have_just_come(clock: MockClock) -> None:
    """Half have come within the last second, and some were busy; the others make room in the order in which they came,
    each for a newcomer, which does not rest."""
    limiter = Limiter(Limits(max_connections_per_client=10_000))
    most = 1000
    resting = [new_quota(limiter, most=most) for _ in range(most // 2)]
    for quota in resting[::10]:
        quota.busy = True
    await trio.sleep(2)
    for quota in resting[::20]:
        quota.rest(trio.current_time())
    for _ in range(most // 2):
        new_quota(limiter, most=most)
    made_room: list[ConnectionQuota] = []
    for number in range(most // 2 - most // 20):
        new_quota(limiter, "10.0.0.2", most)
        made_room = [quota for quota in resting if quota.scope.cancel_called]
        assert len(made_room) == number + 1
    assert not any(quota in resting[::10] for quota in made_room)
    assert limiter.enter(LISTENER, most, "10.0.0.2") == "listener.max_connections"


async def test_a_client_makes_room_for_itself_alone(clock: MockClock) -> None:
    limiter = Limiter(Limits(max_connections_per_client=FEW))
    other = new_quota(limiter, "10.0.0.9")
    await trio.sleep(10)
    own = [new_quota(limiter) for _ in range(FEW)]
    await trio.sleep(2)
    new_quota(limiter)
    assert [quota.scope.cancel_called for quota in (other, *own)] == [False, True, False, False, False]
    for quota in own:
        quota.busy = True
    await trio.sleep(2)
    new_quota(limiter).busy = True
    assert limiter.enter(LISTENER, 100, "10.0.0.1") == "max_connections_per_client"
    assert isinstance(limiter.enter(LISTENER, 100, "10.0.0.9"), ConnectionQuota)


async def test_the_whole_process_has_a_limit(clock: MockClock) -> None:
    limiter = Limiter(Limits(max_connections=FEW))
    first = new_quota(limiter)
    for number in range(FEW - 1):
        limiter.enter(f"listeners.s3p.{number}", 100, "10.0.0.1")
    await trio.sleep(2)
    new_quota(limiter)
    assert first.scope.cancel_called
    assert limiter.connections == FEW


async def test_a_changed_table_holds_at_once(clock: MockClock) -> None:
    limiter = Limiter()
    quota = new_quota(limiter)
    limiter.table = Limits(max_connections=1, first_byte_seconds=7)
    assert limiter.enter(LISTENER, 100, "10.0.0.1") == "max_connections"
    assert quota.limits.first_byte_seconds == 7


async def test_an_identity_is_counted_from_when_it_is_proved(clock: MockClock) -> None:
    limiter = Limiter(Limits(max_connections_per_client=2))
    for host in ("10.0.0.1", "10.0.0.2"):
        quota = new_quota(limiter, host)
        quota.busy = True
        quota.admit("billing")
    assert limiter.enter(LISTENER, 100, "10.0.0.3", "billing") == "max_connections_per_client"
    assert isinstance(limiter.enter(LISTENER, 100, "10.0.0.1"), ConnectionQuota), "the address is not charged any more"


async def test_who_proves_who_they_are_has_no_more_connections_than_others(clock: MockClock) -> None:
    """From whatever address: a connection is counted for that until it is told whose it is."""
    limiter = Limiter(Limits(max_connections_per_client=FEW))
    own = []
    for number in range(FEW + 1):
        await trio.sleep(10)
        own.append(new_quota(limiter, f"10.0.0.{number % 2}"))
        own[-1].busy = number > 0
        own[-1].admit("billing")
    assert [quota.scope.cancel_called for quota in own] == [True] + [False] * FEW
    await trio.sleep(10)
    one_more = new_quota(limiter)
    one_more.busy = True
    one_more.admit("billing")
    assert one_more.scope.cancel_called and not any(quota.scope.cancel_called for quota in own[1:])
    other = new_quota(limiter)
    other.admit("sales")
    assert not other.scope.cancel_called
    for quota in (*own, one_more, other):
        limiter.leave(quota)
    assert limiter.connections == 0 and not limiter._accounts


async def test_who_abuses_others_by_a_name_waits_before_it_is_told(clock: MockClock) -> None:
    limiter = Limiter()
    quota = new_quota(limiter)
    quota.admit("billing")
    quota.abused()
    for host, identity, seconds in (("10.0.0.1", "", 0.5), ("10.0.0.9", "billing", 0.5), ("10.0.0.9", "", 0)):
        assert limiter.pause(limiter.account(host, identity))[0] == seconds


async def test_a_closed_one_belongs_to_no_client(clock: MockClock) -> None:
    limiter = Limiter()
    quota = new_quota(limiter)
    limiter.leave(quota)
    for number in range(10):
        quota.admit(f"identity-{number}")
    assert not limiter._accounts


async def test_nothing_is_left_of_clients_that_have_gone(clock: MockClock) -> None:
    limiter = Limiter()
    for number in range(100):
        quota = new_quota(limiter, f"10.0.0.{number}")
        quota.charge(1000)
        if number % 2:
            quota.admit(f"identity-{number}")
        limiter.leave(quota)
        quota.charge(-1000)
    assert limiter.connections == 0 and limiter.held == 0
    assert not limiter._accounts


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_what_an_address_is_counted_as(host: str, key: str) -> None:
    assert client_key(host) == key
    assert client_key(host, "billing") == "identity billing"
