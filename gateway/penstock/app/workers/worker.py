"""One worker as seen by its parent: a process that is restarted if it ends unexpectedly."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
from typing import Any, Final

import structlog
import trio

from penstock.app.config import Config
from penstock.app.workers.calls import STORE_LOST, PendingCalls
from penstock.app.workers.channel import Channel
from penstock.app.workers.hub import Hub
from penstock.app.workers.messages import Ask, CallFailed, CallResult, DrainWorker, Ready, StartRefused, Welcome
from penstock.backends.embedded import EmbeddedBack
from penstock_codecs.failures import OperationFailed

__all__ = ["Worker", "WorkerGone"]

log = structlog.get_logger()

BACK_OFF_SECONDS: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Pauses before a worker is restarted: the first after a long life, the next after each further short one."""
LASTING_SECONDS: Final = 30.0
"""A worker that ran this long resets the pauses."""
GRACE_SECONDS: Final = 5.0
"""Time for a drained worker to end, beyond the deadline of its connections."""
LOOK_SECONDS: Final = 10.0
SILENT_SECONDS: Final = 30.0
"""Every LOOK_SECONDS a worker is asked whether it is alive; one that does not answer within this hangs, and is
killed."""


class WorkerGone(Exception):
    """The worker's process is not running at present."""


class Worker:
    """A worker and its process. `over` is set when it has ended for good, `settled` when it accepts for the first time
    or cannot start; `refusal` then says why. `config`: what it runs when it is restarted.

    A worker that has accepted once is restarted whatever the reason for a failed start: the reason may pass.
    """

    def __init__(
        self, number: int, config: Config, back: EmbeddedBack, sockets: dict[str, list[socket.socket]]
    ) -> None:
        self.number = number
        self.config = config
        self.refusal: str | None = None
        self.settled = trio.Event()
        self.over = trio.Event()
        self._back = back
        self._sockets = sockets
        self._channel: Channel | None = None
        self._calls: PendingCalls | None = None
        self._process: trio.Process | None = None
        self._drained = trio.Event()

    async def run(self) -> None:
        """Keep the worker running until it has drained, or cannot start at all."""
        short_lives = 0
        try:
            while True:
                begun = trio.current_time()
                code = await self._live()
                if not self.settled.is_set():
                    self.refusal = (
                        self.refusal or f"worker {self.number} ended with code {code} before it accepted connections"
                    )
                if self.refusal is not None or self._drained.is_set():
                    return
                short_lives = 0 if trio.current_time() - begun >= LASTING_SECONDS else short_lives + 1
                seconds = BACK_OFF_SECONDS[min(short_lives, len(BACK_OFF_SECONDS) - 1)]
                log.error("worker_ended", worker=self.number, code=code, again_seconds=seconds)
                with trio.move_on_after(seconds):
                    await self._drained.wait()
                    return
        finally:
            self.close_sockets()
            self.settled.set()
            self.over.set()

    async def _live(self) -> int | None:
        """Run one process from start to end. Return its exit code, or None if it could not be started."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            self._refused(f"cannot start a worker: {error.strerror}")
            return None
        with ours:  # closing this end makes the worker end
            with theirs:
                process = await self._start(theirs)
            if process is None:
                return None
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch, process)
                    await self._attend(ours)
                    nursery.cancel_scope.cancel()
            finally:
                ours.close()
                with trio.CancelScope(shield=True):
                    code = await _ended(process)
        log.info("worker_stopped", worker=self.number, process=process.pid, code=code)
        return code

    async def _attend(self, ours: socket.socket) -> None:
        """Serve the worker's messages until it ends."""
        channel = self._channel = Channel(ours)
        calls = self._calls = PendingCalls(channel)
        descriptors = {name: [one.fileno() for one in some] for name, some in self._sockets.items()}
        channel.post(Welcome(self.number, self.config, descriptors))
        if self._drained.is_set():
            self.drain()  # the drain was requested while it was starting
        try:
            await Hub(channel, self._back).run(self._receive)
        except Exception:  # a bad message of one worker must not end the others
            log.exception("worker_failed", worker=self.number)
        finally:
            self._channel = None
            calls.lose()

    async def _watch(self, process: trio.Process) -> None:
        """Kill the process if it hangs."""
        try:
            while True:
                await trio.sleep(LOOK_SECONDS)
                with trio.fail_after(SILENT_SECONDS):
                    await self.ask("alive", None)
        except trio.TooSlowError:
            log.error("worker_unresponsive", worker=self.number, process=process.pid, seconds=SILENT_SECONDS)
            process.kill()
        except WorkerGone:
            return  # `_live` notices that the process has ended

    async def _start(self, theirs: socket.socket) -> trio.Process | None:
        sockets = [theirs, *itertools.chain.from_iterable(self._sockets.values())]
        try:
            self._process = process = await trio.lowlevel.open_process(
                [sys.executable, "-P", "-m", "penstock.app.workers", str(theirs.fileno())],
                pass_fds=[one.fileno() for one in sockets],
                stdin=subprocess.DEVNULL,
                process_group=0,  # signals of a terminal (Ctrl-C) are for the parent
            )
        except OSError as error:  # out of memory, processes or descriptors
            self._refused(f"cannot start a worker: {error.strerror}")
            return None
        log.info("worker_started", worker=self.number, process=process.pid)
        return process

    def _refused(self, reason: str) -> None:
        """Record why the process cannot start; log it if the worker has accepted before."""
        if self.settled.is_set():
            log.error("worker_refused", worker=self.number, reason=reason)
        else:
            self.refusal = reason

    def _receive(self, message: Any) -> None:
        match message:
            case CallResult() | CallFailed():
                assert self._calls is not None
                self._calls.answered(message)
            case Ready():
                self.settled.set()
            case StartRefused(reason):
                self._refused(reason)

    # ---- requests to the worker ----------------------------------------------------------------------------------

    def drain(self) -> None:
        """Drain the worker: it ends when its clients have finished, or at the deadline."""
        self._drained.set()
        if self._channel is not None:  # else a process that is being started may be inheriting the sockets
            self.close_sockets()
            self._channel.post(DrainWorker())

    def kill(self) -> None:
        """Kill the process, which did not end in time."""
        if self._process is not None:
            self._process.kill()

    def post(self, what: str, argument: object) -> None:
        """Call the worker's function `what` without waiting for an answer; see `ask`."""
        if self._channel is not None:
            self._channel.post(Ask(0, what, argument))

    async def ask(self, what: str, argument: object) -> Any:
        """Call the worker's function `what` and return its answer; see `penstock.app.workers.process`. Raises
        OperationFailed, WorkerGone."""
        if self._channel is None or self._calls is None:
            raise WorkerGone
        try:
            return await self._calls.call(lambda call: Ask(call, what, argument))
        except OperationFailed as error:
            if error.failure is STORE_LOST:
                raise WorkerGone from error
            raise

    def close_sockets(self) -> None:
        """Close the parent's copies of the sockets, so that no further process listens on them."""
        for one in itertools.chain.from_iterable(self._sockets.values()):
            one.close()


async def _ended(process: trio.Process) -> int:
    with trio.move_on_after(GRACE_SECONDS) as patience:
        await process.wait()
    if patience.cancelled_caught:
        process.kill()
    return await process.wait()
