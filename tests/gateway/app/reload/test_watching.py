"""A file that changes is seen, once, when it is complete."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from penstock.app.reload.watching import ASIDE_SECONDS, watch_file


class Watched:
    """A file that is looked at whenever a look is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: float | None = 1.0
        self.changes = 0
        self.seen = trio.Event()

    async def changed(self) -> None:
        self.changes += 1
        self.seen.set()

    async def looks(self, times: int) -> None:
        await trio.sleep(times * 1.0 + 0.5)


@pytest.fixture
async def watched(tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock) -> Watched:
    path = tmp_path / "gateway.toml"
    path.write_text("first")
    watched = Watched(path)
    nursery.start_soon(watch_file, path, lambda: watched.seconds, watched.changed)
    await watched.looks(1)
    return watched


async def test_a_change_is_told_once(watched: Watched, autojump_clock: trio.testing.MockClock) -> None:
    watched.path.write_text("second one")
    await watched.looks(5)
    assert watched.changes == 1
    await watched.looks(5)
    assert watched.changes == 1


async def test_a_file_that_is_still_written_is_waited_for(
    watched: Watched, autojump_clock: trio.testing.MockClock
) -> None:
    for size in range(1, 5):
        watched.path.write_text("x" * 10 * size)
        await watched.looks(0)
        await trio.sleep(0.5)
        assert watched.changes == 0
    await watched.looks(3)
    assert watched.changes == 1


async def test_a_file_in_its_place_is_a_change_and_one_that_is_away_is_none(
    watched: Watched, autojump_clock: trio.testing.MockClock
) -> None:
    watched.path.unlink()
    await watched.looks(3)
    assert watched.changes == 0
    watched.path.write_text("first")
    await watched.looks(3)
    assert watched.changes == 1


async def test_a_link_that_leads_elsewhere_is_a_change(tmp_path: Path, nursery: trio.Nursery) -> None:
    """As Kubernetes puts a config map in place of another."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "gateway.toml").write_text("same")
    link = tmp_path / "current"
    link.symlink_to("one")
    watched = Watched(link / "gateway.toml")
    watched.seconds = 0.01
    nursery.start_soon(watch_file, watched.path, lambda: watched.seconds, watched.changed)
    await trio.sleep(0.05)
    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").rename(link)
    with trio.fail_after(5):
        await watched.seen.wait()
    nursery.cancel_scope.cancel()


async def test_without_listeners_nothing_is_reported(watched: Watched, autojump_clock: trio.testing.MockClock) -> None:
    watched.seconds = None
    await watched.looks(2)
    watched.path.write_text("second one")
    await watched.looks(3)
    watched.seconds = 1.0
    await watched.looks(2 + int(ASIDE_SECONDS))
    assert watched.changes == 0, "what was there at the first look is no change"
    watched.path.write_text("the third of them")
    await watched.looks(4)
    assert watched.changes == 1
