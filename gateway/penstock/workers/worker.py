"""One worker, as its parent has it: a process, started again when it ends before it should."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
from typing import Any, Final

import structlog
import trio

from penstock.backs.embedded import EmbeddedBack
from penstock.config import Config
from penstock.workers.calls import LOST, Calls
from penstock.workers.channel import Channel
from penstock.workers.hub import Hub
from penstock.workers.messages import Ask, Done, Drain, Failed, Ready, Refused, Welcome
from penstock_codecs.failures import OperationFailed

__all__ = ["Worker", "WorkerGone"]

log = structlog.get_logger()

BACK_OFF_SECONDS: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
"""How long to wait before a worker is started again: each time longer that it did not last."""
LASTING_SECONDS: Final = 30.0
"""One that served for so long did last."""
GRACE_SECONDS: Final = 5.0
"""A worker that has drained has so long to end beyond the deadline for its connections."""
LOOK_SECONDS: Final = 10.0
SILENT_SECONDS: Final = 30.0
"""It is asked every so often whether it is alive. One that has not answered for so long hangs: it is killed."""


class WorkerGone(Exception):
    """There is no such process just now."""


class Worker:
    """`over` is set when it has ended for good, `settled` when it accepts for the first time, or cannot start: then
    `refusal` says why. `config`: what it is to run when it is started again.

    One that has accepted once is started again whatever the reason for which it could not be: that may pass.
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
        self._calls: Calls | None = None
        self._process: trio.Process | None = None
        self._drained = trio.Event()

    async def run(self) -> None:
        """Keep one running until it has drained, or cannot start at all."""
        short_lives = 0
        try:
            while True:
                begun = trio.current_time()
                code = await self._live()
                if not self.settled.is_set():
                    self.refusal = self.refusal or f"worker {self.number} ended with code {code} before it accepted"
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
        """One process from its start to its end; its exit code, None where there was none."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            self._refused(f"no worker can be started: {error.strerror}")
            return None
        with ours:  # it ends when it learns that this has been closed
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
        """Do what it asks for, until it ends."""
        channel = self._channel = Channel(ours)
        calls = self._calls = Calls(channel)
        descriptors = {name: [one.fileno() for one in some] for name, some in self._sockets.items()}
        channel.post(Welcome(self.number, self.config, descriptors))
        if self._drained.is_set():
            self.drain()  # it was being started when that was said
        try:
            await Hub(channel, self._back).run(self._receive)
        except Exception:  # what one worker says must not end the others
            log.exception("worker_failed", worker=self.number)
        finally:
            self._channel = None
            calls.lose()

    async def _watch(self, process: trio.Process) -> None:
        """Kill it where it hangs."""
        try:
            while True:
                await trio.sleep(LOOK_SECONDS)
                with trio.fail_after(SILENT_SECONDS):
                    await self.ask("alive", None)
        except trio.TooSlowError:
            log.error("worker_hangs", worker=self.number, process=process.pid, seconds=SILENT_SECONDS)
            process.kill()
        except WorkerGone:
            return  # it is about to be noticed

    async def _start(self, theirs: socket.socket) -> trio.Process | None:
        sockets = [theirs, *itertools.chain.from_iterable(self._sockets.values())]
        try:
            self._process = process = await trio.lowlevel.open_process(
                [sys.executable, "-P", "-m", "penstock.workers", str(theirs.fileno())],
                pass_fds=[one.fileno() for one in sockets],
                stdin=subprocess.DEVNULL,
                process_group=0,  # what is typed at a terminal is for the parent
            )
        except OSError as error:  # no memory, no process, no descriptor is left
            self._refused(f"no worker can be started: {error.strerror}")
            return None
        log.info("worker_started", worker=self.number, process=process.pid)
        return process

    def _refused(self, reason: str) -> None:
        """It cannot start."""
        if self.settled.is_set():
            log.error("worker_refused", worker=self.number, reason=reason)
        else:
            self.refusal = reason

    def _receive(self, message: Any) -> None:
        match message:
            case Done() | Failed():
                assert self._calls is not None
                self._calls.answered(message)
            case Ready():
                self.settled.set()
            case Refused(reason):
                self._refused(reason)

    # ---- what it is told and asked -------------------------------------------------------------------------------

    def drain(self) -> None:
        """It is to end when its clients have finished, or at the deadline."""
        self._drained.set()
        if self._channel is not None:  # else its sockets may be on their way to a process that is being started
            self.close_sockets()
            self._channel.post(Drain())

    def kill(self) -> None:
        """It has not ended."""
        if self._process is not None:
            self._process.kill()

    def tell(self, what: str, argument: object) -> None:
        """The same as `ask`, where nobody waits for an answer."""
        if self._channel is not None:
            self._channel.post(Ask(0, what, argument))

    async def ask(self, what: str, argument: object) -> Any:
        """What the worker answers; see `penstock.workers.process`. Raises OperationFailed, WorkerGone."""
        if self._channel is None or self._calls is None:
            raise WorkerGone
        try:
            return await self._calls.call(lambda call: Ask(call, what, argument))
        except OperationFailed as error:
            if error.failure is LOST:
                raise WorkerGone from error
            raise

    def close_sockets(self) -> None:
        """No worker will listen on them any more, but the one that does."""
        for one in itertools.chain.from_iterable(self._sockets.values()):
            one.close()


async def _ended(process: trio.Process) -> int:
    with trio.move_on_after(GRACE_SECONDS) as patience:
        await process.wait()
    if patience.cancelled_caught:
        process.kill()
    return await process.wait()
