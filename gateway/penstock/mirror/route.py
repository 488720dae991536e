"""A route with two backs: the primary, which answers clients, and the secondary, which is given a copy."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import msgspec
import structlog
import trio

from penstock.backs.base import Back
from penstock.mirror.attributes import Attributes
from penstock.mirror.cut_over import CutOver, reasons_against
from penstock.mirror.mirror import Mirror
from penstock.mirror.settings import MirrorSettings
from penstock.mirror.sides import Sides
from penstock.mirror.state import StateTable, StreamState, Table
from penstock.routing.target import Target, TargetHolder
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.model import StreamRef

__all__ = ["MirroredRoute"]

log = structlog.get_logger()

_HOLD_SECONDS: Final = 10.0
"""So much of a cut-over's time, or half of it if that is less, is left for what is done while appends wait."""
_MOST_HELD_SECONDS: Final = 25.0
"""Appends wait no longer than this for a cut-over, since clients give up: `TargetHolder` does after 30 s."""
_FORCED_SECONDS: Final = 5.0
"""Where a cut-over is forced, appends that are under way may be acknowledged for so long."""


class _Kept(msgspec.Struct, frozen=True):
    """What a cut-over leaves in the table `#routes`: the names of both backs."""

    primary: str
    secondary: str


class MirroredRoute:
    """See the module. `targets`: the configured back and the mirror's. `store`: the embedded store, for tables.

    `belongs`: whether a stream of the backs is one of the route's; asked where streams are listed.
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
        self._kept = Table(store, "routes")
        self._states = StateTable(store, route)
        self._attributes = Attributes()
        self._mirror = self._new_mirror()
        self._cutting = trio.Lock()
        self._scope = trio.CancelScope()
        self._idle, self._turned = trio.Event(), trio.Event()
        self._idle.set()
        self._swapping = False

    async def open(self) -> None:
        """Find out which back is the primary, after cut-overs of earlier runs, and put it into the holder. To be called
        before clients are served. Raises OperationFailed where the store fails."""
        kept = await self._kept.get(self.route)
        if kept is not None:
            words = msgspec.json.decode(kept, type=_Kept)
            if (words.primary, words.secondary) == (self.secondary, self.primary):
                log.info("cut_over_kept", route=self.route, primary=words.primary, secondary=words.secondary)
                self._sides = self._sides[1], self._sides[0]
        self._begin_mirror()

    def _begin_mirror(self) -> None:
        """Another mirror, and clients are led by way of it."""
        self._mirror = self._new_mirror()
        self._holder.swap(replace(self._sides[0], back=self._mirror.tap))

    @property
    def cutting(self) -> bool:
        """Whether a cut-over is under way."""
        return self._cutting.locked()

    def leave(self, target: Target) -> None:
        """The route is not mirrored like this any more: whoever is led by way of it still is led to `target`, and
        sessions end with a failure that clients try again after."""
        self._holder.swap(target)

    async def run(self) -> None:
        """Copy and compare, for ever; where that fails altogether it begins again after a pause."""
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
        """The name of the back that is given the copy now."""
        return self._sides[1].name

    def status(self) -> dict[str, Any]:
        """For the management listener: the sides, and the mirror's counts."""
        return self._mirror.status()

    async def streams(self, after: str, limit: int) -> tuple[list[dict[str, Any]], bool]:
        """What is known of each stream, in the order of names, behind `after` (`basin/stream`); and whether there are
        more."""
        found, more = await self._states.page(after, limit)
        now = [(stream, self._mirror.state_now(stream) or state) for stream, state in found]
        return [{"stream": str(stream), **msgspec.to_builtins(state)} for stream, state in now], more

    # ---- cut-over ------------------------------------------------------------------------------------------------

    async def cut_over(self, *, force: bool = False, wait_seconds: float = 30.0) -> CutOver:
        """Make the secondary the primary, once both are equal. See docs/management.md.

        In all it takes `wait_seconds` at most, and clients' appends wait for part of that. Where streams are not equal
        then, it is done only with `force`. Raises TRANSACTION_CONFLICT while another cut-over is under way.
        """
        try:
            self._cutting.acquire_nowait()
        except trio.WouldBlock:
            raise fail(FailureCode.TRANSACTION_CONFLICT, "a cut-over of this route is under way") from None
        try:
            return await self._cut_over(force, trio.current_time() + wait_seconds)
        finally:
            self._cutting.release()

    async def _cut_over(self, force: bool, deadline: float) -> CutOver:
        reasons = await self._prepared(deadline - min(_HOLD_SECONDS, (deadline - trio.current_time()) / 2))
        held_at = trio.current_time()
        try:
            if not reasons:  # else nobody need wait for what will not be
                reasons += await self._settled(deadline)
            reasons += await reasons_against(self._states)
            swapped = force or not reasons
            if swapped:
                with trio.CancelScope(shield=True):  # half of it would be worse than a client that has gone
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
        """Copy what there is, while clients go on; reasons against where that takes too long."""
        try:
            with trio.move_on_at(deadline):
                await self._mirror.list_all()
                await self._mirror.settle(nearly=True)
                return []
        except OperationFailed as error:
            return [f"the streams of {self.primary} cannot be listed: {error.failure.message}"]
        return [self._late()]

    async def _settled(self, deadline: float) -> list[str]:
        """Hold appends and copy what is left; reasons against where that takes too long."""
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
        """What is acknowledged by the old primary is there before the new one is the primary; as far as that can be."""
        if not self._holder.held:
            with suppress(OperationFailed):
                await self._holder.hold(_FORCED_SECONDS)

    def _late(self) -> str:
        failure = self._mirror.last_failure
        return "the mirror has not caught up in time" + (f"; the last failure: {failure}" if failure else "")

    async def _swap(self, deadline: float) -> list[str]:
        """What was left undone, which is no reason not to go on. Written down it is last: whoever dies after that finds
        the new primary complete. Raises OperationFailed where it cannot be: then it did not happen."""
        self._swapping = True
        self._scope.cancel()
        await self._idle.wait()
        try:
            undone = [*await self._carry_attributes(deadline), *await self._give_configurations(deadline)]
            kept = _Kept(self.secondary, self.primary)
            await self._kept.put(self.route, msgspec.json.encode(kept))
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
            return ["writers may send again what is there: there was no time to tell the new back of them all"]
        return [f"{len(failures)} writers may send again what is there: {failures[0]}"] if failures else []

    async def _give_configurations(self, deadline: float) -> list[str]:
        primary, secondary = self._sides
        failures: list[str] = []
        failed = 0

        async def give(stream: StreamRef, _state: StreamState) -> None:
            nonlocal failed
            try:
                await Sides(stream, primary.name, primary.back, secondary.name, secondary.back).give_configuration()
            except OperationFailed as error:
                failed += 1
                failures[:] = failures or [error.failure.message]

        with trio.move_on_at(deadline) as time:
            try:
                await self._states.visit(give)
            except OperationFailed as error:
                return [f"not all streams stamp records as before: {error.failure.message}"]
        if time.cancelled_caught:
            return ["not all streams stamp records as before: there was no time to configure them"]
        return [f"{failed} streams do not stamp records as before: {failures[0]}"] if failed else []

    def _new_mirror(self) -> Mirror:
        primary, secondary = self._sides
        return Mirror(self.route, primary, secondary, self._states, self._settings, self._belongs, self._attributes)
