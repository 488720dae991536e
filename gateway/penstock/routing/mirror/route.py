"""A route with two backs, a primary, which answers clients, and a secondary, which gets a copy; and its cut-over."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
import structlog
import trio
from msgspec.structs import replace

from penstock.core.back import Back
from penstock.core.internal_names import GATEWAY_TABLES
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.records import StreamRef
from penstock.routing.mirror.attributes import Attributes
from penstock.routing.mirror.mirror import Mirror
from penstock.routing.mirror.settings import MirrorSettings
from penstock.routing.mirror.sides import Sides
from penstock.routing.mirror.state import MirroredStream, StateTable
from penstock.routing.target import Target, TargetHolder
from penstock.tables.byte_table import ByteTable

__all__ = ["CutOver", "MirroredRoute", "reasons_against"]

_MOST_REASONS: Final = 20
log = structlog.get_logger()

_HOLD_SECONDS: Final = 10.0
"""Part of a cut-over's time limit that is reserved for the phase in which appends wait; at most half of the limit."""
_MOST_HELD_SECONDS: Final = 25.0
"""Longest time that appends wait for a cut-over: `TargetHolder` gives up after 30 s, and so do clients."""
_FORCED_SECONDS: Final = 5.0
"""Longest wait of a forced cut-over for appends in flight to be acknowledged."""


class CutOver(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a cut-over. `swapped`: whether it was done. `primary`, `secondary`: the names of the backs now.
    `reasons`: the reasons against it, which a forced cut-over ignores, and steps that failed. `held_ms`: time that
    appends had to wait."""

    swapped: bool
    forced: bool
    primary: str
    secondary: str
    held_ms: int
    reasons: list[str]


async def reasons_against(states: StateTable) -> list[str]:
    """Return a reason for each stream that is not equal on both sides, in order of names, at most 20. Empty if all are
    equal."""
    reasons: list[str] = []
    more = 0

    async def look(stream: StreamRef, state: MirroredStream) -> None:
        nonlocal more
        faults = state.obstacles or ([] if state.equal else ["it is not copied and compared up to its end"])
        if faults and len(reasons) < _MOST_REASONS:
            reasons.append(f"stream {stream}: {'; '.join(faults)}")
        elif faults:
            more += 1

    await states.visit(look)
    return [*reasons, f"and {more} streams more"] if more else reasons


class _Kept(msgspec.Struct, frozen=True):
    """The entry of a cut-over in the table `#routes`: the names of both backs."""

    primary: str
    secondary: str


class MirroredRoute:
    """A mirrored route. `targets`: the configured back and the mirror's. `store`: the embedded store, for tables.

    `belongs` returns whether a listed stream is one of the route's.
    """

    def __init__(
        self,
        route: str,
        targets: tuple[Target, Target],
        store: Back,
        holder: TargetHolder,
        settings: MirrorSettings | None = None,
        belongs: Callable[[StreamRef], bool] = lambda _stream: True,
    ) -> None:
        self.route = route
        self._sides = targets
        self._holder = holder
        self._settings = settings or MirrorSettings()
        self._belongs = belongs
        self._kept = ByteTable(store, f"{GATEWAY_TABLES}routes")
        self._states = StateTable(store, route)
        self._attributes = Attributes()
        self._mirror = self._new_mirror()
        self._cutting = trio.Lock()
        self._scope = trio.CancelScope()
        self._idle, self._turned = trio.Event(), trio.Event()
        self._idle.set()
        self._swapping = False

    async def open(self) -> None:
        """Find out which back is the primary, after cut-overs of earlier runs, and put it into the holder. Call this
        before clients are served. Raises OperationFailed if the store fails."""
        (kept,) = await self._kept.get(self.route.encode())
        if kept is not None:
            words = msgspec.json.decode(kept, type=_Kept)
            if (words.primary, words.secondary) == (self.secondary, self.primary):
                log.info("cut_over_restored", route=self.route, primary=words.primary, secondary=words.secondary)
                self._sides = self._sides[1], self._sides[0]
        self._begin_mirror()

    def _begin_mirror(self) -> None:
        """Create a new mirror, and route clients through it."""
        self._mirror = self._new_mirror()
        self._holder.swap(replace(self._sides[0], back=self._mirror.tap))

    @property
    def cutting(self) -> bool:
        """True while a cut-over is in progress."""
        return self._cutting.locked()

    def leave(self, target: Target) -> None:
        """Stop mirroring the route like this: route its remaining clients to `target`, and end their sessions with a
        failure that clients retry."""
        self._holder.swap(target)

    async def run(self) -> None:
        """Copy and compare forever. If the mirror fails altogether, start it again after a pause."""
        while True:
            self._idle, self._turned = trio.Event(), trio.Event()
            pause = math.inf
            try:
                with trio.CancelScope() as self._scope:
                    await self._mirror.run()
            except Exception as error:
                log.exception("mirror_failed", route=self.route)
                self._mirror.last_failure = repr(error)
                pause = self._settings.most_retry_seconds
            finally:
                self._idle.set()
            with trio.move_on_after(pause):
                await self._turned.wait()
            if self._swapping:
                await self._turned.wait()

    @property
    def primary(self) -> str:
        """The name of the back that answers clients now."""
        return self._sides[0].name

    @property
    def secondary(self) -> str:
        """The name of the back that gets the copy now."""
        return self._sides[1].name

    def status(self) -> dict[str, Any]:
        """Return both sides and the mirror's counts as JSON values, for the management listener."""
        return self._mirror.status()

    async def streams(self, after: str, limit: int) -> tuple[list[dict[str, Any]], bool]:
        """Return the states of streams whose names sort after `after` (`basin/stream`), in order of names, at most
        `limit`; and whether there are more."""
        states, more = await self._states.page(after, limit)
        now = [(stream, self._mirror.state_now(stream) or state) for stream, state in states]
        return [{"stream": str(stream), **msgspec.to_builtins(state)} for stream, state in now], more

    # ---- cut-over ------------------------------------------------------------------------------------------------

    async def cut_over(self, *, force: bool = False, wait_seconds: float = 30.0) -> CutOver:
        """Make the secondary the primary, once both are equal. See docs/management.md.

        It takes `wait_seconds` at most, and clients' appends wait for part of that. If streams are not equal by then,
        it is done only with `force`. Raises TRANSACTION_CONFLICT while another cut-over is in progress.
        """
        try:
            self._cutting.acquire_nowait()
        except trio.WouldBlock:
            raise fail(FailureCode.TRANSACTION_CONFLICT, "a cut-over of this route is in progress") from None
        try:
            return await self._cut_over(force, trio.current_time() + wait_seconds)
        finally:
            self._cutting.release()

    async def _cut_over(self, force: bool, deadline: float) -> CutOver:
        reasons = await self._prepared(deadline - min(_HOLD_SECONDS, (deadline - trio.current_time()) / 2))
        held_at = trio.current_time()
        try:
            if not reasons:  # otherwise it is not done, or is forced: appends need not wait
                reasons += await self._settled(deadline)
            reasons += await reasons_against(self._states)
            swapped = force or not reasons
            if swapped:
                with trio.CancelScope(shield=True):  # a half-done cut-over is worse than a late answer
                    await self._hold_forced()
                    reasons += await self._swap(min(deadline, held_at + _MOST_HELD_SECONDS))
        finally:
            self._holder.release()
        held_ms = round((trio.current_time() - held_at) * 1000)
        log.info("cut_over", route=self.route, swapped=swapped, primary=self.primary, held_ms=held_ms, reasons=reasons)
        return CutOver(
            swapped=swapped,
            forced=force,
            primary=self.primary,
            secondary=self.secondary,
            held_ms=held_ms,
            reasons=reasons,
        )

    async def _prepared(self, deadline: float) -> list[str]:
        """Copy existing records while clients go on. Return reasons against the cut-over if that takes too long or
        fails."""
        try:
            with trio.move_on_at(deadline):
                await self._mirror.list_all()
                await self._mirror.settle(nearly=True)
                return []
        except OperationFailed as error:
            return [f"the streams of {self.primary} cannot be listed: {error.failure.message}"]
        return [self._late()]

    async def _settled(self, deadline: float) -> list[str]:
        """Hold appends and copy the rest. Return reasons against the cut-over if that takes too long or fails."""
        seconds = max(min(deadline - trio.current_time(), _MOST_HELD_SECONDS), 0.0)
        with trio.move_on_after(seconds):
            try:
                await self._holder.hold(seconds)
            except OperationFailed as error:
                return [error.failure.message]
            await self._mirror.settle()
            return []
        return [self._late()]

    async def _hold_forced(self) -> None:
        """Hold appends, if they are not held yet, so that those in flight are acknowledged by the old primary before
        the swap. If that fails, go on without."""
        if not self._holder.held:
            with suppress(OperationFailed):
                await self._holder.hold(_FORCED_SECONDS)

    def _late(self) -> str:
        failure = self._mirror.last_failure
        return "the mirror has not caught up in time" + (f"; the last failure: {failure}" if failure else "")

    async def _swap(self, deadline: float) -> list[str]:
        """Swap the backs. Return the steps that failed without preventing the swap.

        The swap is saved last, so that after a crash the saved primary is always complete. Raises OperationFailed if it
        cannot be saved: then the backs are not swapped.
        """
        self._swapping = True
        self._scope.cancel()
        await self._idle.wait()
        try:
            undone = [*await self._carry_attributes(deadline), *await self._give_configurations(deadline)]
            kept = _Kept(self.secondary, self.primary)
            await self._kept.put((self.route.encode(), msgspec.json.encode(kept)))
            self._sides = self._sides[1], self._sides[0]
        finally:
            self._begin_mirror()
            self._swapping = False
            self._turned.set()
        return undone

    async def _carry_attributes(self, deadline: float) -> list[str]:
        primary, secondary = self._sides
        failures: list[str] = []
        with trio.move_on_at(deadline) as time:
            await self._attributes.carry_over(primary.back, secondary.back, failures)
        if time.cancelled_caught:
            return ["writers may append records again: there was no time to report them all to the new back"]
        return [f"{len(failures)} writers may append records again: {failures[0]}"] if failures else []

    async def _give_configurations(self, deadline: float) -> list[str]:
        primary, secondary = self._sides
        failures: list[str] = []
        failed = 0

        async def give(stream: StreamRef, _state: MirroredStream) -> None:
            nonlocal failed
            try:
                await Sides(stream, primary.back, secondary.back).give_configuration()
            except OperationFailed as error:
                failed += 1
                failures[:] = failures or [error.failure.message]

        with trio.move_on_at(deadline) as time:
            try:
                await self._states.visit(give)
            except OperationFailed as error:
                return [f"some streams do not stamp records as before: {error.failure.message}"]
        if time.cancelled_caught:
            return ["some streams do not stamp records as before: there was no time to configure them"]
        return [f"{failed} streams do not stamp records as before: {failures[0]}"] if failed else []

    def _new_mirror(self) -> Mirror:
        primary, secondary = self._sides
        return Mirror(self.route, primary, secondary, self._states, self._settings, self._belongs, self._attributes)
