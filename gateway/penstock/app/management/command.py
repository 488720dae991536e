"""Commands of Penstock in processes of their own, whose output is read line by line and no further than needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import trio

from penstock.model.limits import KIB, MIB

__all__ = ["CommandEnd", "CommandFailed", "object_of", "run_command"]

_COMMAND: Final = ["-m", "penstock"]
_MOST_AT_ONCE: Final = 2
"""Processes at a time: further calls wait for them."""
_MOST_LINE: Final = 16 * MIB
_MOST_ERRORS: Final = 4 * KIB
_GRACE_SECONDS: Final = 10.0
"""Time for a process to report what it did, after it was interrupted."""

_room = trio.CapacityLimiter(_MOST_AT_ONCE)


class CommandFailed(Exception):
    """A command failed, for a reason that its caller can do something about."""


class CommandEnd(msgspec.Struct):
    """The end of a command. `warnings`: lines that it wrote to standard error. `interrupted`: its time was over."""

    warnings: list[str] = msgspec.field(default_factory=list)
    interrupted: bool = False


async def run_command(
    arguments: Sequence[str],
    take: Callable[[bytes], bool],
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> CommandEnd:
    """Run a command and pass the lines of its output to `take`, until that returns False or the output ends.

    `environment`: variables in addition to those of this process, of which none configures Penstock. After `seconds`
    the process is interrupted as by Ctrl-C, and may still report. Raises CommandFailed with its error if it fails
    without any output, if a line has more than 16 MiB, and for an argument or value with a NUL.
    """
    for argument in arguments:
        if "\0" in argument:
            raise CommandFailed(f"{argument!r:.80} has a NUL")
    for name, value in (environment or {}).items():
        if "\0" in value:
            raise CommandFailed(f"the value of {name} has a NUL")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    async with _room:
        process = await trio.lowlevel.open_process(
            [sys.executable, *_COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**clean, **(environment or {})},
        )
        output = _Output(process, take)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(output.interrupt_after, seconds)
                await output.read()
                nursery.cancel_scope.cancel()
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
    if output.failure:
        raise CommandFailed(output.failure)
    if not output.lines and process.returncode:
        late = f"{arguments[0]} took more than {seconds:g} seconds"
        raise CommandFailed(late if output.end.interrupted else output.reason() or f"{arguments[0]} failed")
    return output.end


async def object_of(command: list[str], seconds: float, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a command that prints one JSON object, and return it. Raises CommandFailed."""
    lines: list[bytes] = []

    def take(line: bytes) -> bool:
        lines.append(line)
        return True

    end = await run_command(command, take, seconds, environment)
    if not lines:
        reason = "; ".join(end.warnings) or "it printed nothing"
        raise CommandFailed(f"{command[0]} ended without a result: {reason}")
    result: dict[str, Any] = msgspec.json.decode(b"".join(lines))
    return result


class _Output:
    """The output of a process."""

    def __init__(self, process: trio.Process, take: Callable[[bytes], bool]) -> None:
        self.lines = 0
        self.failure = ""
        self.end = CommandEnd()
        self._process = process
        self._take = take
        self._errors = b""

    async def read(self) -> None:
        """Read all output, or what is wanted of it, and wait for the end of the process."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_errors)
            await self._read_lines()
        await self._process.wait()
        self.end.warnings = self._errors.decode(errors="replace").splitlines()

    async def interrupt_after(self, seconds: float) -> None:
        """Interrupt the process after this time; kill it if it goes on."""
        await trio.sleep(seconds)
        self.end.interrupted = True
        self._process.send_signal(signal.SIGINT)
        await trio.sleep(_GRACE_SECONDS)
        self._process.kill()

    def reason(self) -> str:
        """Return the last line of standard error, without click's prefix; "" for none."""
        return self.end.warnings[-1].removeprefix("Error: ") if self.end.warnings else ""

    async def _read_lines(self) -> None:
        """Pass each line to `take`; kill the process when no more is wanted."""
        assert self._process.stdout is not None, "it is a pipe"
        held = bytearray()
        async for piece in self._process.stdout:
            held += piece
            *lines, held = held.split(b"\n")
            for line in lines:
                self.lines += 1
                if not self._take(bytes(line)):
                    self._process.kill()
                    return
            if len(held) > _MOST_LINE:
                self.failure = f"an item has more than {_MOST_LINE} bytes; read it with the command (docs/recording.md)"
                self._process.kill()
                return

    async def _read_errors(self) -> None:
        """Keep the end of standard error."""
        assert self._process.stderr is not None, "it is a pipe"
        async for piece in self._process.stderr:
            self._errors = (self._errors + piece)[-_MOST_ERRORS:]
