"""A server that is away, or that hangs, seen by clients of each front through a back of each kind."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import trio
from support.circuits import ASKS, BACKS, OPEN_SECONDS, gateway, told
from support.clocks import threads_hold
from support.store import eventually
from trio.testing import MockClock

from penstock_pravega.segment.front.link import MOST_HOLD

EACH = pytest.mark.parametrize("kind", BACKS)


@pytest.fixture
def clock(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Time passes when nothing happens, the store's threads included."""
    return threads_hold(autojump_clock, monkeypatch)


@EACH
async def test_an_open_circuit_fails_at_once(
    kind: str,
    tmp_path: Path,
    clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But for segment clients, which would come again at once: they are held for a while, and the server is tried for
    them when that is due."""
    async with gateway(tmp_path, BACKS[kind], monkeypatch) as there:
        for ask in ASKS:
            await there.lose()
            dials = there.network.dials
            said, seconds = await told(there, ask)
            assert said == "refused", ask
            if ask.startswith("segment"):
                assert OPEN_SECONDS - 0.5 <= seconds <= MOST_HOLD + OPEN_SECONDS, (ask, seconds)
                assert there.network.dials <= dials + MOST_HOLD // OPEN_SECONDS, ask
            else:
                assert seconds < 0.5, (ask, seconds)
                assert there.network.dials == dials, "the server is left in peace"
            there.network.down = False
            await trio.sleep(OPEN_SECONDS)
            assert (await told(there, "s2 tail"))[0] == "ok", ask


@EACH
@pytest.mark.parametrize("ask", [ask for ask in ASKS if ask.startswith("segment")])
async def test_segment_clients_that_are_held_go_on_when_the_server_is_back(
    kind: str, ask: str, tmp_path: Path, clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway(tmp_path, BACKS[kind], monkeypatch) as there, trio.open_nursery() as nursery:
        await there.lose()

        async def come_back() -> None:
            await trio.sleep(OPEN_SECONDS + 1)
            there.network.down = False

        nursery.start_soon(come_back)
        said, seconds = await told(there, ask)
        if said == "refused":  # an append is, and its writer asks again
            assert ask == "segment append"
            said, more = await told(there, ask)
            seconds += more
        assert (said, seconds) == ("ok", pytest.approx(2 * OPEN_SECONDS, abs=1.0))


@EACH
async def test_a_server_that_hangs_opens_the_circuit(
    kind: str,
    tmp_path: Path,
    clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It accepts connections and never answers. One request in a while finds out whether it still does."""
    async with gateway(tmp_path, BACKS[kind], monkeypatch) as there:
        breaker, network = there.target.breaker, there.network
        assert breaker is not None
        network.silent = True
        await network.lose_all()
        await there.open_circuit()
        for ask in ASKS:
            if not ask.startswith("segment"):
                assert await told(there, ask) == ("refused", pytest.approx(0, abs=0.5)), ask
        await trio.sleep(OPEN_SECONDS)
        assert breaker.wants_request
        dials = network.dials
        seconds = []

        async def ask() -> None:
            seconds.append((await told(there, "s2 tail"))[1])

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask)
        assert network.dials == dials + 1, "one is let through"
        assert max(seconds) < BACKS[kind].request_seconds + 0.5, "those who share what it asks for wait for it"
        assert breaker.state.value == "open"
        network.silent = False
        await trio.sleep(OPEN_SECONDS)
        for ask in ASKS:
            assert (await told(there, ask))[0] == "ok", ask
        assert breaker.state.value == "closed"


@pytest.mark.parametrize(
    ("kind", "follows"),
    [("s2", "s2 event stream")]  # an S2S session passes through: to go on is its client's own business
    + [(kind, follows) for kind in ("s3p", "segment") for follows in ("s2 event stream", "s2 read session")],
)
async def test_who_has_begun_to_read_does_not_hear_of_a_short_loss(
    kind: str, follows: str, tmp_path: Path, clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the circuit opens meanwhile: the read goes on where it was."""
    async with gateway(tmp_path, BACKS[kind], monkeypatch) as there, trio.open_nursery() as nursery:
        said = bytearray()
        nursery.start_soon(there.follow, follows, said)
        await eventually(lambda: b"first" in said)
        await there.lose()
        there.network.down = False
        await trio.sleep(OPEN_SECONDS)
        assert (await told(there, "s2 append"))[0] == "ok"
        await eventually(lambda: b"appended later" in said)
        assert b'"code"' not in said
        nursery.cancel_scope.cancel()


@EACH
async def test_a_writer_that_comes_again_at_once_neither_spins_nor_waits_for_nothing(
    kind: str, tmp_path: Path, clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Pravega's writers do, whenever their connection ends."""
    table = msgspec.structs.replace(BACKS[kind], breaker_open_seconds=1.0)
    async with gateway(tmp_path, table, monkeypatch) as there:
        await there.lose()
        begun, tries = trio.current_time(), 0
        while trio.current_time() - begun < 20:
            assert (await told(there, "segment append"))[0] == "refused"
            tries += 1
        assert tries <= 30
        there.network.down = False
        back_at = trio.current_time()
        while (await told(there, "segment append"))[0] != "ok":
            pass
        assert trio.current_time() - back_at < 2.0
