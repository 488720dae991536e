"""State of which one gateway at a time has the use: the others wait, take over, and an outdated one ends."""

from __future__ import annotations

import pytest
import trio
from structlog.testing import capture_logs
from support.store import Fails
from support.store.shared_log import SharedLog, SharedLogEnd
from trio.testing import MockClock

from penstock.backends.kept_table import KeptTable
from penstock.backends.logged_tables import LogNews, StandbyTables, open_logged_tables, open_standby
from penstock.core.errors import StoreFailed, out_of_groups
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.operations import Capability

KEY = b"key"
PATIENCE = 5.0
STANDS_BY = "another gateway has the use of the state"


class Deaf(SharedLogEnd):
    """An end of the log that can be made slow: then it reads nothing."""

    def __init__(self, shared: SharedLog) -> None:
        super().__init__(shared)
        self.hears = trio.Event()
        self.hears.set()

    async def read(self) -> LogNews:
        await self.hears.wait()
        found = await super().read()
        await self.hears.wait()
        return found


class Gateway:
    """One of several, which runs until it is stopped or ends."""

    def __init__(self, shared: SharedLog) -> None:
        self.end = Deaf(shared)
        self.stop = trio.Event()
        self.failure: StoreFailed | None = None
        self.over = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[StandbyTables]) -> None:
        try:
            with out_of_groups():
                async with open_logged_tables(self.end, 1 << 20) as tables, open_standby(tables, PATIENCE) as state:
                    task_status.started(state)
                    await self.stop.wait()
        except StoreFailed as error:
            self.failure = error
        finally:
            self.over.set()


async def values(state: StandbyTables) -> list[bytes | None]:
    return await KeptTable(state, "#table").get(KEY)


async def test_the_others_stand_by_until_the_first_one_stops(autojump_clock: MockClock) -> None:
    shared = SharedLog()
    first, second = Gateway(shared), Gateway(shared)
    async with trio.open_nursery() as nursery:
        one = await nursery.start(first.run)
        assert one.trouble == "the gateway's state is being read from the shared log"
        await KeptTable(one, "#table").put((KEY, b"1"))
        assert one.trouble is None and one.capabilities == {Capability.TABLES}
        other = await nursery.start(second.run)
        await trio.sleep(60)
        assert (one.trouble, other.trouble) == (None, STANDS_BY)
        begun = trio.current_time()
        with Fails(FailureCode.HOT_SERVER, "stands by"):
            await values(other)
        assert trio.current_time() - begun == pytest.approx(PATIENCE)
        first.stop.set()
        assert await values(other) == [b"1"], "one that waits is served at once"
        assert other.trouble is None and trio.current_time() - begun < PATIENCE + 1
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("asks", [True, False])
async def test_one_that_was_slow_stores_nothing_more_and_ends(autojump_clock: MockClock, asks: bool) -> None:
    shared = SharedLog()
    first, second = Gateway(shared), Gateway(shared)
    async with trio.open_nursery() as nursery:
        one = await nursery.start(first.run)
        await KeptTable(one, "#table").put((KEY, b"1"))
        other = await nursery.start(second.run)
        await trio.sleep(60)
        first.end.hears = trio.Event()
        await trio.sleep(10)
        assert other.trouble is None, "it takes over within ten seconds"
        await KeptTable(other, "#table").put((KEY, b"2"))
        refused: list[FailureCode] = []

        async def too_late() -> None:
            try:
                await KeptTable(one, "#table").put((KEY, b"3"))
            except OperationFailed as error:
                refused.append(error.failure.code)

        if asks:
            nursery.start_soon(too_late)
            await trio.sleep(1)
        with capture_logs() as lines:
            first.end.hears.set()
            await first.over.wait()
        assert first.failure is not None and "another one has taken over" in str(first.failure)
        assert [line["lease"] for line in lines if line["event"] == "lease_lost"] == ["state"]
        await trio.sleep(1)
        assert refused in ([FailureCode.HOT_SERVER], []) if asks else not refused
        assert await values(other) == [b"2"]
        third = await nursery.start(Gateway(shared).run)
        await trio.sleep(60)
        assert (other.trouble, third.trouble) == (None, STANDS_BY)
        nursery.cancel_scope.cancel()


async def test_one_alone_keeps_the_use_while_the_state_is_away(autojump_clock: MockClock) -> None:
    shared = SharedLog()
    gateway = Gateway(shared)
    async with trio.open_nursery() as nursery:
        state = await nursery.start(gateway.run)
        await KeptTable(state, "#table").put((KEY, b"1"))
        shared.lossy = lambda: False
        await trio.sleep(100)
        shared.lossy = lambda: None
        await trio.sleep(20)
        assert await values(state) == [b"1"] and gateway.failure is None
        nursery.cancel_scope.cancel()
