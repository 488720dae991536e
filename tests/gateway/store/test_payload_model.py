"""Files of payloads under random histories of appends, trims, deletions, purges, failures, restarts and crashes."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.store import (
    BASIN,
    Blocked,
    Fails,
    NoCommit,
    Wall,
    appending,
    bodies,
    sending,
    stored_bytes,
)
from support.store.payload_files import (
    body,
    check_files,
    file_names,
    forget,
)

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.byte_operations import GetByteStreamInfo, ReadBytes
from penstock.model.failures import FailureCode
from penstock.model.limits import MIB
from penstock.model.operations import (
    CheckTail,
    CreateStream,
    DeleteStream,
    EnsureBasin,
    FromSeqNum,
    Trim,
)
from penstock.model.records import StreamRef
from penstock.store import payload_files, sweeps
from penstock.store.payload_files import path_of
from penstock.store.sweeper import Sweeper

NAMES = ("a", "b", "c")


@dataclass(frozen=True)
class Appended:
    """Appends to streams in one group; `is_lost`: the transaction fails, after the payloads were written."""

    sizes: tuple[tuple[str, int], ...]
    is_bytes: bool
    is_lost: bool


@dataclass(frozen=True)
class Trimmed:
    name: str
    seq_num: int


@dataclass(frozen=True)
class Deleted:
    name: str


@dataclass(frozen=True)
class Purged:
    """`chunks`: the statements of so many are carried out, and nothing is freed, as if a crash came; None: all is."""

    chunks: int | None


@dataclass(frozen=True)
class Restarted:
    """`is_crash`: the store goes on with a copy of its files, as they were while it was open."""

    is_crash: bool


SIZES = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from((1, 30, 50, 90, 5000))), min_size=1, max_size=4)
STEPS = st.one_of(
    st.builds(Appended, SIZES.map(tuple), st.booleans(), st.sampled_from((False, False, False, True))),
    st.builds(Appended, SIZES.map(tuple), st.booleans(), st.just(False)),
    st.builds(Trimmed, st.sampled_from(NAMES), st.integers(0, 12)),
    st.builds(Deleted, st.sampled_from(NAMES)),
    st.builds(Purged, st.none() | st.integers(1, 3)),
    st.builds(Restarted, st.booleans()),
)


@dataclass
class Stream:
    bodies: list[bytes] = field(default_factory=list)
    trim_point: int = 0


class History:
    """A store whose payloads of 60 bytes and more go to files of 200, and what must be in its streams."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "0"
        self.streams: dict[str, Stream] = {}
        self._numbers = itertools.count()
        self._wall = Wall()

    async def run(self, steps: Sequence[object]) -> None:
        rest = iter([Restarted(False), *steps])
        step = next(rest, None)
        while step is not None:
            assert isinstance(step, Restarted)
            settings = EmbeddedSettings(directory=self.directory, payload_file_bytes=60, tail_cache_bytes=1)
            async with open_embedded(settings, self._wall) as back:
                if not self.streams:
                    await back.perform(EnsureBasin(BASIN))
                await self._check(back)
                for step in rest:
                    if isinstance(step, Restarted):
                        break
                    await self._do(back, step)
                    await self._check(back)
                else:
                    step = None
                if isinstance(step, Restarted) and step.is_crash:
                    self._copy()
        async with open_embedded(EmbeddedSettings(directory=self.directory)) as back:
            await self._check(back)
            await back._store.sweeper.purge()
            used = check_files(back)
            await self._check(back)
            assert file_names(self.directory) == [path_of(self.directory, number).name for number in sorted(used)]

    async def _do(self, back: EmbeddedBack, step: object) -> None:
        match step:
            case Appended():
                await self._append(back, step)
            case Trimmed(name, seq_num):
                stream = self.streams.get(name)
                if stream is not None:
                    stream.trim_point = max(stream.trim_point, min(seq_num, len(stream.bodies)))
                    await back.perform(Trim(StreamRef(BASIN, name), FromSeqNum(seq_num)))
            case Deleted(name):
                if self.streams.pop(name, None) is not None:
                    await back.perform(DeleteStream(StreamRef(BASIN, name)))
            case Purged(None):
                await back._store.sweeper.purge()
            case Purged(chunks):
                assert chunks is not None
                for _ in range(chunks):
                    purge = sweeps.purge_chunk(back._store._look_ups, 0)
                    if purge is not None:
                        await back._store.committer.settle(None, purge.statements)

    async def _append(self, back: EmbeddedBack, step: Appended) -> None:
        for name, _ in step.sizes:
            if name not in self.streams:
                self.streams[name] = Stream()
                await back.perform(CreateStream(StreamRef(BASIN, name)))
        added = [(name, body(next(self._numbers), size)) for name, size in step.sizes]

        async def append(name: str, data: bytes) -> None:
            ref = StreamRef(BASIN, name)
            operation = sending(data, stream=ref) if step.is_bytes else appending(data, stream=ref)
            with Fails(FailureCode.STORAGE) if step.is_lost else nullcontext():
                await back.perform(operation)

        with NoCommit(back) if step.is_lost else nullcontext():
            async with trio.open_nursery() as nursery, Blocked(back):
                for name, data in added:
                    nursery.start_soon(append, name, data)
                    await trio.testing.wait_all_tasks_blocked()
        if not step.is_lost:
            for name, data in added:
                self.streams[name].bodies.append(data)

    async def _check(self, back: EmbeddedBack) -> None:
        check_files(back)
        for name, stream in self.streams.items():
            ref = StreamRef(BASIN, name)
            assert (await back.perform(CheckTail(ref))).seq_num == len(stream.bodies)
            if stream.trim_point < len(stream.bodies):
                forget(back, ref)
                assert await bodies(back, FromSeqNum(stream.trim_point), ref) == stream.bodies[stream.trim_point :]
                first = (await back.perform(GetByteStreamInfo(ref))).start_offset
                data = (await back.perform(ReadBytes(ref, first, MIB))).data
                assert data == stored_bytes(back, ref)[-len(data) :] and stream.bodies[-1] in data

    def _copy(self) -> None:
        after = self.directory.with_name(str(int(self.directory.name) + 1))
        shutil.copytree(self.directory, after, ignore=shutil.ignore_patterns("*-shm", "*.lock"))
        self.directory = after


@examples(share=4, least=5)
@given(st.lists(STEPS, max_size=20))
def test_whatever_happens_payloads_are_counted_and_read_right(steps: list[object]) -> None:
    async def idle(_sweeper: Sweeper) -> None:
        await trio.sleep_forever()

    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(payload_files, "FILE_BYTES", 200)
        patch.setattr(sweeps, "ROWS_AT_ONCE", 2)
        patch.setattr(Sweeper, "run", idle)
        trio.run(History(Path(directory)).run, steps)
