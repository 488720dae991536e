"""Recordings on a disk that hangs: no caller waits for it for long."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.testing

from penstock.observe.taps.connections import Connections
from penstock.recorder.files import FileRecording
from penstock.recorder.recorder import Recorder
from penstock.recorder.recordings import MOST_RECORDINGS, Recordings
from penstock.recorder.selection import Selection
from penstock.recorder.settings import FileSettings
from penstock.recorder.status import RecordingState


@pytest.fixture
async def recordings(tmp_path: Path) -> AsyncIterator[Recordings]:
    one = Recordings(Recorder(Connections(), {}), FileSettings(directory=tmp_path), None)
    yield one
    await one.close()


async def test_all_are_closed_at_the_same_time(recordings: Recordings, monkeypatch: pytest.MonkeyPatch) -> None:
    all_close = threading.Barrier(3, timeout=10)
    close = FileRecording.close

    def slow(recording: FileRecording, timeout: float = 5.0) -> bool:
        all_close.wait()  # raises where they are closed one by one
        return close(recording, timeout)

    monkeypatch.setattr(FileRecording, "close", slow)
    for _ in range(3):
        await recordings.start(Selection())
    with trio.CancelScope() as scope:
        scope.cancel()
        await recordings.close()
    assert not recordings.running and all_close.n_waiting == 0 and not all_close.broken


async def test_a_start_that_hangs_can_be_given_up(recordings: Recordings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording that starts after all once the disk is back is ended at once."""
    begins, hanging, ended = threading.Event(), threading.Event(), threading.Event()
    start, close = FileRecording.start, FileRecording.close

    def slow(recording: FileRecording) -> None:
        begins.set()
        assert hanging.wait(10)
        start(recording)

    def told(recording: FileRecording, timeout: float = 5.0) -> bool:
        closed = close(recording, timeout)
        assert recording.status().state is RecordingState.STOPPED
        ended.set()
        return closed

    monkeypatch.setattr(FileRecording, "start", slow)
    monkeypatch.setattr(FileRecording, "close", told)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(recordings.start, Selection())
            assert await trio.to_thread.run_sync(begins.wait, 10)
            nursery.cancel_scope.cancel()
        assert not recordings.running and not hanging.is_set()
    finally:
        hanging.set()
    assert await trio.to_thread.run_sync(ended.wait, 10)


async def test_starts_that_hang_take_no_threads_of_others(
    recordings: Recordings, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = threading.Event()
    monkeypatch.setattr(FileRecording, "start", lambda _recording: hanging.wait(10))
    monkeypatch.setattr(FileRecording, "close", lambda _recording, _timeout: True)
    others = trio.to_thread.current_default_thread_limiter()
    try:
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                for _ in range(MOST_RECORDINGS):
                    nursery.start_soon(recordings.start, Selection())
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
        assert others.borrowed_tokens == 0
    finally:
        hanging.set()
