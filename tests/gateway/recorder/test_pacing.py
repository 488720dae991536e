"""CPU time that a recording takes on a machine with no processors to spare."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.recorder import pacing
from penstock.recorder.pacing import Pacing, Spare


class Clocks:
    """Times that pass as a test says, in place of the process's own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.own = self.others = self.now = 0.0
        ours = SimpleNamespace(
            thread_time=lambda: self.own,
            process_time=lambda: self.own + self.others,
            monotonic=lambda: self.now,
            sleep=self.sleep,
        )
        monkeypatch.setattr(pacing, "time", ours)  # other threads keep their clock
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


class Busy(Spare):
    def __call__(self) -> bool:
        return False


def share_of(pacing_: Pacing, clocks: Clocks, others: float) -> float:
    """Return the share of one processor that a busy recording takes while the rest of the process uses `others`."""
    for _ in range(10_000):
        step = 0.005 if pacing_.rest() else 0.001
        clocks.own += step if step == 0.001 else 0.0
        clocks.others += others * step
        clocks.now += step
    return clocks.own / clocks.now


def test_it_takes_a_share_of_what_the_rest_takes(clocks: Clocks) -> None:
    assert share_of(Pacing(spare=Busy()), clocks, 1.5) == pytest.approx(0.09, rel=0.2)


def test_it_takes_a_little_also_where_the_rest_is_idle(clocks: Clocks) -> None:
    assert share_of(Pacing(spare=Busy()), clocks, 0.0) == pytest.approx(0.05, rel=0.1)


def test_it_takes_what_it_needs_where_it_is_told_to(clocks: Clocks) -> None:
    assert share_of(Pacing(limited=False, spare=Busy()), clocks, 1.5) == 1.0


def test_it_takes_what_is_idle(clocks: Clocks, tmp_path: Path) -> None:
    assert share_of(Pacing(spare=Spare(tmp_path / "there is no such file")), clocks, 0.5) == 1.0


def test_it_takes_a_share_where_the_gateway_does_all_that_it_can(clocks: Clocks, tmp_path: Path) -> None:
    """The load of other processors does not matter."""
    spare = Spare(tmp_path / "there is no such file")
    assert share_of(Pacing(spare=spare), clocks, 0.9) == pytest.approx(0.06 * 0.9, rel=0.2)


def test_long_work_is_done_with_pauses(clocks: Clocks) -> None:
    done = []
    for event in Pacing().paced(range(9)):
        done.append(event)
        clocks.own += 0.001
    assert done == list(range(9))
    assert clocks.slept == pytest.approx([0.004] * 4)


def test_long_work_is_done_without_pauses_where_it_takes_what_it_needs(clocks: Clocks) -> None:
    """A recording of 64 MiB that was preferred to its traffic lost its connection: it paused for twice its work."""
    for _event in Pacing(limited=False).paced(range(9)):
        clocks.own += 0.001
    assert clocks.slept == []


def stat(path: Path, busy: int, idle: int) -> None:
    path.write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3\n")


@pytest.mark.parametrize(("busy", "spare"), [(95, False), (80, True), (100, False)])
def test_what_the_system_says_of_its_processors(clocks: Clocks, tmp_path: Path, busy: int, spare: bool) -> None:
    file = tmp_path / "stat"
    asked = Spare(file)
    stat(file, 1000, 5000)
    assert asked(), "nothing is known yet"
    clocks.now += 0.2
    stat(file, 1000 + busy, 5000 + 100 - busy)
    assert asked() is spare
    stat(file, 0, 100_000)
    assert asked() is spare, "it is not looked up so often"


@pytest.mark.parametrize("words", ["", "cpu  1 2", "cpu  a b c d e f g h"])
def test_a_system_that_says_nothing(clocks: Clocks, tmp_path: Path, words: str) -> None:
    (tmp_path / "stat").write_text(words)
    assert Spare(tmp_path / "stat")()
