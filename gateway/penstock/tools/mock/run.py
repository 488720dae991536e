"""Mock servers from the recording to the report, while a command runs or until a signal."""

from __future__ import annotations

import math
import os
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec
import trio

from penstock.capture.pcapng import Side
from penstock.core.address import Address
from penstock.core.errors import CannotStart, out_of_groups
from penstock.net.upstream import Upstream, UpstreamSettings
from penstock.protocols.environment import client_environment
from penstock.protocols.plugin import listener_kinds
from penstock.protocols.servers import Server
from penstock.recorder.captures.opening import CaptureEvents, UnreadableCapture, recorded_side
from penstock.tools.mock.answers import AnswerBook
from penstock.tools.mock.fork import ForkedRecords, StreamFork, open_fork, stream_recorded_as
from penstock.tools.mock.naming import MOCK_URL, directory_of, recordings_by_test
from penstock.tools.mock.origins import Origins
from penstock.tools.mock.report import MockReport
from penstock.tools.mock.servers import LOOPBACK, open_mock_servers
from penstock.tools.mock.state import MockState

__all__ = ["CommandNotRun", "MockSettings", "run_command", "run_with_mocks"]


class CommandNotRun(CannotStart):
    """The command cannot be run. `code`: the exit code of shells for that."""

    def __init__(self, command: str, error: OSError) -> None:
        super().__init__(f"{command}: {error.strerror}")
        self.code = 127 if isinstance(error, FileNotFoundError) else 126


class MockSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a run. `recording`: a capture, or a directory with captures and those of tests. `servers`: those that
    answer misses; none: misses are refused. `records`: what they answer is added to the recording. `forks`: streams
    that an embedded store serves. `repeats`: see `AnswerBook`. `test`: the one that asks until another is named.
    `listeners`: addresses by kind of client; empty: a free port for each kind. `tls`: serve clients over TLS. `side`:
    connections of clients or to servers; None: those of clients, or the others if only they were recorded."""

    recording: Path
    servers: Sequence[Server] = ()
    tls_ca: str | None = None
    records: bool = False
    forks: tuple[StreamFork, ...] = ()
    repeats: bool = False
    test: str = ""
    listeners: Mapping[str, Address] = msgspec.field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    side: Side | None = None


async def run_with_mocks(
    settings: MockSettings, command: Sequence[str], listening: Callable[[Mapping[str, Address]], None]
) -> tuple[int, MockReport]:
    """Serve mocks while a command runs, or until SIGINT or SIGTERM if there is none. Return its exit code, 128 + n for
    signal n, and the report.

    Without a command `listening` is called with the address of each kind of client. Otherwise SIGTERM is passed on to
    the command; SIGINT reaches it from the terminal. Raises CannotStart, CommandNotRun.
    """
    streams = frozenset(fork.stream for fork in settings.forks)

    def forked_too(protocol: str, stream: str) -> bool:
        return stream_recorded_as(protocol, stream) in streams

    with out_of_groups(), AnswerBook(repeats=settings.repeats, without=forked_too) as book:
        forked = _load(settings, book)
        async with AsyncExitStack() as stack:
            state = MockState(book, MockReport(), origins=await _origins(settings, stack))
            if settings.forks:
                addresses = await stack.enter_async_context(open_fork(forked))
                state.forked = streams
                state.forks = {kind: _fork(address) for kind, address in addresses.items()}
            state.begin_test(settings.test)
            listeners = dict(settings.listeners)
            if command or not listeners:
                listeners = dict.fromkeys(listener_kinds(), LOOPBACK) | listeners
            clients, control = await stack.enter_async_context(open_mock_servers(state, listeners, settings.tls))
            if command:
                code = await run_command(command, clients, {MOCK_URL: f"http://{control}"})
            else:
                with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                    listening(clients)
                    await anext(signals)
                code = 0
            report = state.report_now()
        return code, report


def _load(settings: MockSettings, book: AnswerBook) -> ForkedRecords:
    """Load the recording. Raises CannotStart."""
    recording, forked = settings.recording, ForkedRecords(settings.forks)
    if settings.records and recording.exists() and not recording.is_dir():
        raise CannotStart(f"{recording} is a file: new answers need a directory, which may have this file in it")
    if not recording.exists() and not settings.records:
        raise CannotStart(f"{recording}: there is no such file or directory")
    try:
        if settings.records:
            recording.mkdir(parents=True, exist_ok=True)
        for test, path in recordings_by_test(recording):
            side = settings.side or recorded_side([path])
            book.load(CaptureEvents([path], side=side), test)
            if settings.forks:
                forked.load(CaptureEvents([path], side=side))
    except OSError as error:
        raise CannotStart(f"{error.filename or recording}: {error.strerror}") from error
    except UnreadableCapture as error:
        raise CannotStart(str(error)) from error
    if not (book.size or settings.servers or settings.forks):
        raise CannotStart(f"{recording} has no requests that can be answered")
    return forked


async def _origins(settings: MockSettings, stack: AsyncExitStack) -> Origins | None:
    if not settings.servers:
        return None
    directory = partial(directory_of, settings.recording) if settings.records else None
    return await stack.enter_async_context(Origins(settings.servers, settings.tls_ca, directory))


def _fork(address: Address) -> Upstream:
    return Upstream(UpstreamSettings(name="fork", host=address.host, port=address.port, request_seconds=math.inf))


async def run_command(
    command: Sequence[str], servers: Mapping[str, Address], variables: Mapping[str, str] | None = None
) -> int:
    """Run a command with the environment of this process, `variables`, and those by which known clients find `servers`,
    by kind of listener. Return its exit code, 128 + n for signal n.

    SIGTERM is passed on to the command; SIGINT reaches it from the terminal. Raises CommandNotRun.
    """
    environment = os.environ | client_environment(servers, os.environ) | dict(variables or {})
    # Before the command starts, since it may be told to end at once.
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        try:
            process = await trio.lowlevel.open_process(list(command), env=environment)
        except OSError as error:
            raise CommandNotRun(command[0], error) from error
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_pass_signals_to, process, signals)
            code = await process.wait()
            nursery.cancel_scope.cancel()
    return 128 - code if code < 0 else code


async def _pass_signals_to(process: trio.Process, signals: AsyncIterator[int]) -> None:
    """Pass SIGTERM on; ignore SIGINT, which the terminal sends to the command, too."""
    async for number in signals:
        if number == signal.SIGTERM:
            process.send_signal(number)
