"""The target of a route, and how it is swapped while clients use it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import msgspec
import trio

from penstock.core.back import Back
from penstock.core.internal_names import InternalNames
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.operations import Capability
from penstock.net.breaker import Breaker

__all__ = ["Target", "TargetHolder"]

HELD_SECONDS: Final = 30.0
"""Longest time an operation waits while a target is held, in seconds."""


class Target(msgspec.Struct, frozen=True):
    """A complete back, with operations on both records and bytes. `name` and `kind`: as configured. `delivery`: the
    guarantee after lost acknowledgements, as configured. `names`: the server's names of internal streams, None
    if it has none. `breaker`: the circuit breaker of the server's connections, if there is one server."""

    name: str
    kind: str
    back: Back
    delivery: str = "exactly-once"
    names: InternalNames | None = None
    breaker: Breaker | None = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities of the back."""
        return self.back.capabilities


class TargetHolder:
    """The current target of a route. A cut-over holds it, swaps it, and releases it.

    While it is held, changes wait before they are sent, for HELD_SECONDS at most. When it is swapped, sessions that
    were opened on the old target end with a failure that clients retry.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._gate: trio.Event | None = None
        self._quiet: trio.Event | None = None
        self._under_way = 0
        self._waiting: set[trio.CancelScope] = set()
        self.generation = 0
        """Number of times the target was swapped."""

    @property
    def target(self) -> Target:
        """The current target."""
        return self._target

    @property
    def held(self) -> bool:
        """True if the target is held: changes wait."""
        return self._gate is not None

    @property
    def under_way(self) -> int:
        """Number of changes that have begun and are not acknowledged yet."""
        return self._under_way

    # ---- used by a cut-over --------------------------------------------------------------------------------------

    async def hold(self, seconds: float) -> None:
        """Let no more changes begin, and wait until those in progress have ended, for `seconds` at most.

        Raises HOT_SERVER if the target is already held. If some changes are still in progress after that time it raises
        HOT_SERVER too, and lets changes begin again, as it does on cancellation.
        """
        if self._gate is not None:
            raise fail(FailureCode.HOT_SERVER, f"back {self._target.name} is already held")
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
        """Replace the target, held or not, and interrupt the sessions of the old one."""
        self._target = target
        self.generation += 1
        for scope in list(self._waiting):
            scope.cancel()

    def release(self) -> None:
        """Let changes begin again. Does nothing if the target is not held."""
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.set()

    # ---- used by the router --------------------------------------------------------------------------------------

    async def admitted(self) -> None:
        """Wait until changes may begin. Raises HOT_SERVER after HELD_SECONDS."""
        gate = self._gate
        if gate is None:
            return
        with trio.move_on_after(HELD_SECONDS):
            while (gate := self._gate) is not None:
                await gate.wait()
            return
        raise fail(FailureCode.HOT_SERVER, f"back {self._target.name} is held for longer than {HELD_SECONDS:g} s")

    def begin(self) -> None:
        """Count a change as begun."""
        self._under_way += 1

    def end(self, count: int = 1) -> None:
        """Count changes as ended: acknowledged, failed or given up."""
        self._under_way -= count
        if not self._under_way and self._quiet is not None:
            self._quiet.set()

    @contextlib.contextmanager
    def change(self) -> Iterator[None]:
        """Count the block as one change."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    @contextlib.contextmanager
    def interrupted(self, generation: int) -> Iterator[None]:
        """Cancel the block when the target is swapped, and raise `moved()`; raise it at once if the target has been
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
        """Return the failure that sessions of the old target end with."""
        reason = f"the stream is now on another server, {self._target.name}: try again"
        return OperationFailed(Failure(FailureCode.HOT_SERVER, reason))
