"""Where a route leads, and how that is changed while clients are at work."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import trio

from penstock.backs.base import Back
from penstock.backs.breaker import Breaker
from penstock.routing.segments import SegmentNames
from penstock_codecs.failures import Failure, FailureCode, OperationFailed, fail
from penstock_codecs.operations import Capability

__all__ = ["Target", "TargetHolder"]

HELD_SECONDS: Final = 30.0
"""What waits while a target is held gives up after this."""


@dataclass(frozen=True, slots=True)
class Target:
    """A complete back, which knows records and bytes. `name` and `kind`: as configured. `delivery`: what is promised
    about lost acknowledgements, in the words of the configuration. `names`: how a segment store's segments are named,
    None for other kinds. `breaker`: of the connections to the server, where there is one server."""

    name: str
    kind: str
    back: Back
    delivery: str = "exactly-once"
    names: SegmentNames | None = None
    breaker: Breaker | None = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do."""
        return self.back.capabilities


class TargetHolder:
    """The target that a route has now. A cut-over holds it, swaps it, and releases it.

    While it is held, whoever wants to change something waits, for HELD_SECONDS at most: what waits was not sent. When
    it is swapped, sessions that were opened on the old target end with a failure that clients try again after.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._gate: trio.Event | None = None
        self._quiet: trio.Event | None = None
        self._under_way = 0
        self._waiting: set[trio.CancelScope] = set()
        self.generation = 0
        """How often it was swapped."""

    @property
    def target(self) -> Target:
        """Where the route leads now."""
        return self._target

    @property
    def held(self) -> bool:
        """Whether changes wait."""
        return self._gate is not None

    @property
    def under_way(self) -> int:
        """Changes that were begun and are not acknowledged yet."""
        return self._under_way

    # ---- a cut-over ----------------------------------------------------------------------------------------------

    async def hold(self, seconds: float) -> None:
        """Let no more changes begin, and wait for those under way: at most so long. Raises HOT_SERVER, and has let them
        go again, where some are still under way then, or it is held already. Cancelled it lets them go too."""
        if self._gate is not None:
            raise fail(FailureCode.HOT_SERVER, f"back {self._target.name} is held already")
        self._gate = trio.Event()
        try:
            with trio.move_on_after(seconds):
                while self._under_way:
                    self._quiet = trio.Event()
                    await self._quiet.wait()
                return
        except BaseException:
            self.release()
            raise
        self.release()
        raise fail(
            FailureCode.HOT_SERVER,
            f"back {self._target.name}: {self._under_way} changes are not acknowledged after {seconds:g} s",
        )

    def swap(self, target: Target) -> None:
        """Lead there from now on; held or not."""
        self._target = target
        self.generation += 1
        for scope in list(self._waiting):
            scope.cancel()

    def release(self) -> None:
        """Let changes begin again; nothing where it is not held."""
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.set()

    # ---- the router ----------------------------------------------------------------------------------------------

    async def admitted(self) -> None:
        """Wait until changes may begin. Raises HOT_SERVER where that takes too long."""
        gate = self._gate
        if gate is None:
            return
        with trio.move_on_after(HELD_SECONDS):
            while (gate := self._gate) is not None:
                await gate.wait()
            return
        raise fail(FailureCode.HOT_SERVER, f"back {self._target.name} is held for longer than {HELD_SECONDS:g} s")

    def begin(self) -> None:
        """A change is begun."""
        self._under_way += 1

    def end(self, count: int = 1) -> None:
        """So many are acknowledged, have failed, or were given up."""
        self._under_way -= count
        if not self._under_way and self._quiet is not None:
            self._quiet.set()

    @contextlib.contextmanager
    def change(self) -> Iterator[None]:
        """One change, from its beginning to its end."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    @contextlib.contextmanager
    def interrupted(self, generation: int) -> Iterator[None]:
        """What waits in the block is ended when the target is swapped: raises `moved()`; also at once, where it was
        swapped since `generation`."""
        if generation != self.generation:
            raise self.moved()
        with trio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                yield
            finally:
                self._waiting.discard(scope)
        if scope.cancelled_caught:
            raise self.moved()

    def moved(self) -> OperationFailed:
        """What the sessions of the old target end with."""
        why = f"the stream is on another server now, {self._target.name}: ask again"
        return OperationFailed(Failure(FailureCode.HOT_SERVER, why))
