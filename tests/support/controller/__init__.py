"""A controller over a real store, in this process, and a way to interrupt what it does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from support.store import Wall

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.back import Back, BackWrapper
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.byte_operations import AppendBytes, ByteStreamInfo, GetByteStreamInfo, ReadBytes
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import CreateBasin, Operation
from penstock.model.streams import BasinConfig, Retention, StreamConfig
from penstock_pravega.controller.controller import Advertised, ControllerSettings, SegmentsMode
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.controller.problems import ControllerProblem, ControllerRefusal
from penstock_pravega.controller.controller.records import Configuration
from penstock_pravega.segment.names import SegmentName, SegmentNames

R = TypeVar("R")

BASIN_SCOPE = "scope-of-streams"
"""A scope that is a basin."""
SCOPE = "tiny"
"""A scope that is none: its name is too short."""
SCOPES = (BASIN_SCOPE, SCOPE)
BASIN = "penstock"
NAMES = SegmentNames(BASIN)


def settings(mode: SegmentsMode = SegmentsMode.SEPARATE) -> ControllerSettings:
    """Return controller settings for tests."""
    return ControllerSettings(names=NAMES, segments=mode, advertise=lambda: Advertised(None, 12345))


@asynccontextmanager
async def store(directory: Path, wall: Wall) -> AsyncIterator[EmbeddedBack]:
    """A store with the default basin as it is configured: records go after a week, and appends create streams."""
    async with open_embedded(EmbeddedSettings(directory=directory), wall) as back:
        kept = StreamConfig(retention=Retention(604_800))
        await back.perform(CreateBasin(BASIN, BasinConfig(default_stream_config=kept, create_stream_on_append=True)))
        await back.perform(CreateBasin(INTERNAL_BASIN))  # as a gateway with a segment listener does at its start
        yield back


async def write(back: Back, scope: str, stream: str, data: bytes, segment: int = 0, suffix: str = "") -> None:
    """Append bytes to a segment, as a segment client does."""
    name = SegmentName.of_id(scope, stream, segment)
    named = SegmentName(scope, stream, name.number, name.epoch, suffix)
    await back.perform(AppendBytes(NAMES.to_stream(named), data))


async def content(back: Back, scope: str, stream: str, segment: int = 0) -> bytes:
    """All bytes of a segment that are kept."""
    ref = NAMES.to_stream(SegmentName.of_id(scope, stream, segment))
    start = (await back.perform(GetByteStreamInfo(ref))).start_offset
    return (await back.perform(ReadBytes(ref, start, 1 << 20))).data


async def info(back: Back, scope: str, stream: str, segment: int = 0, suffix: str = "") -> ByteStreamInfo | None:
    """About a segment; None where it is not there."""
    name = SegmentName.of_id(scope, stream, segment)
    try:
        ref = NAMES.to_stream(SegmentName(scope, stream, name.number, name.epoch, suffix))
        return await back.perform(GetByteStreamInfo(ref))
    except OperationFailed as error:
        assert error.failure.code in (FailureCode.STREAM_NOT_FOUND, FailureCode.BASIN_NOT_FOUND), error
        return None


def event(body: bytes) -> bytes:
    """One event as it stands in a segment."""
    return bytes(4) + len(body).to_bytes(4, "big") + body


def segments(count: int, **more: Any) -> Configuration:
    """Return a configuration with `count` segments."""
    return Configuration(segments=count, **more)


class RefusedWith:
    """`with RefusedWith(Problem.STREAM_EXISTS):` the block is refused so."""

    def __init__(self, problem: ControllerProblem) -> None:
        self.problem = problem

    def __enter__(self) -> RefusedWith:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        assert error is not None, f"nothing was refused; expected {self.problem}"
        if isinstance(error, ControllerRefusal):
            assert error.problem is self.problem, error
        return isinstance(error, ControllerRefusal)


class Interrupted(Exception):
    """The process ends here."""


class InterruptedBack(BackWrapper):
    """A back that ends the process at one of its operations: before it, or after it and before its result is returned.

    `left`: number of operations still performed (None: all).
    """

    def __init__(self, back: Back) -> None:
        super().__init__(back)
        self.left: int | None = None
        self.after = False

    async def perform(self, operation: Operation[R]) -> R:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                if self.left == -1 and self.after:
                    await self._inner.perform(operation)
                raise Interrupted
        return await self._inner.perform(operation)


async def interrupted(
    back: Back, wall: Wall, work: Callable[[Controller], Awaitable[object]], left: int, after: bool
) -> bool:
    """Do `work` with a controller whose process ends after `left` operations, and return whether it ended."""
    ending = InterruptedBack(back)
    ending.left, ending.after = left, after
    ended = False
    try:
        await work(Controller(ending, settings(), wall))
    except* Interrupted:
        ended = True
    return ended
