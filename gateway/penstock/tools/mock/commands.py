"""Live connections of protocols whose messages are single requests, answered from a recording."""

from __future__ import annotations

from collections.abc import Callable

import trio

from penstock.capture.pcapng import Chunk, Conversation, Opened, Sender, Side, SocketAddress
from penstock.model.failures import OperationFailed
from penstock.model.limits import KIB
from penstock.net.upstream import Upstream
from penstock.protocols.plugin import listener_kinds
from penstock.tools.mock.answers import RecordedAnswer
from penstock.tools.mock.exchanges import CommandExchanges, Part, PartKind
from penstock.tools.mock.state import MockState

__all__ = ["CommandMock"]

_READ_BYTES = 256 * KIB
_NOWHERE = SocketAddress("0.0.0.0", 0)


class _Wire:
    """The exchanges of a live connection: its bytes go in as they are received and sent."""

    def __init__(self, protocol: str) -> None:
        self._conversation = Conversation(0, _NOWHERE, _NOWHERE, Side.FRONT, protocol=protocol)
        self._offsets = dict.fromkeys(Sender, 0)
        self.exchanges = CommandExchanges(self._conversation)
        list(self.exchanges.receive(Opened(self._conversation, 0)))

    def passed(self, sender: Sender, data: bytes) -> list[Part]:
        """Take bytes of a side; return the parts of exchanges that they complete."""
        event = Chunk(self._conversation, 0, sender, self._offsets[sender], data)
        self._offsets[sender] += len(data)
        return list(self.exchanges.receive(event))


class _Link:
    """A connection to a server that answers what was not recorded."""

    def __init__(self, stream: trio.abc.Stream, protocol: str) -> None:
        self._stream = stream
        self._wire = _Wire(protocol)

    async def ask(self, command: bytes) -> bytes | None:
        """Return the server's reply to a command; None if it has left."""
        self._wire.passed(Sender.CLIENT, command)
        await self._stream.send_all(command)
        while data := bytes(await self._stream.receive_some(_READ_BYTES)):
            for part in self._wire.passed(Sender.SERVER, data):
                if part.kind is PartKind.ANSWER:
                    return part.data
        return None

    async def close(self) -> None:
        await trio.aclose_forcefully(self._stream)


class CommandMock:
    """Answers the requests of one connection, one after the other."""

    def __init__(self, state: MockState, protocol: str, stream: trio.abc.Stream) -> None:
        self._state = state
        self._protocol = protocol
        self._stream = stream
        self._wire = _Wire(protocol)
        self._links: dict[Upstream, _Link] = {}

    async def run(self) -> None:
        """Serve until the client leaves, and close the connection."""
        try:
            while data := bytes(await self._stream.receive_some(_READ_BYTES)):
                for part in self._wire.passed(Sender.CLIENT, data):
                    if part.kind is PartKind.REQUEST:
                        request = part
                    elif part.kind is PartKind.ASKED and not await self._answer(request, part.data):
                        return
                if self._wire.exchanges.broken:
                    await self._refuse(f"bytes that are no message of {self._protocol}")
                    return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client has gone
        finally:
            for link in self._links.values():
                await link.close()
            await trio.aclose_forcefully(self._stream)

    async def _answer(self, request: Part, request_bytes: bytes) -> bool:
        """Answer a request. Return False if the connection must end."""
        state, test, head = self._state, self._state.test, request.text
        fork = state.fork_of(self._protocol, request.stream)
        if fork is not None:
            return await self._pass_to(fork, head, request_bytes, state.report.forks)
        recorded = state.book.choose(test, self._protocol, head, request_bytes, True)
        if isinstance(recorded, RecordedAnswer):
            for part in state.book.parts(recorded):
                if part.kind is PartKind.ANSWER:
                    await self._reply(part.data)
            state.report.answered += 1
            return True
        origin = await state.origin(self._protocol, test)
        if origin is None:
            return await self._refuse(head, " is not in the recording")
        return await self._pass_to(origin, head, request_bytes, lambda: state.report.passes(test, head))

    async def _pass_to(self, upstream: Upstream, head: str, request_bytes: bytes, count: Callable[[], None]) -> bool:
        """Have a server answer, and count its answer. Return False if the connection must end."""
        try:
            if upstream not in self._links:
                self._links[upstream] = _Link(await upstream.connect(), self._protocol)
            reply = await self._links[upstream].ask(request_bytes)
        except OperationFailed as error:
            return await self._refuse(f"{head}: {error.failure.message}")
        except trio.BrokenResourceError:
            reply = None
        if reply is None:
            return await self._refuse(f"{head}: the server has left")
        count()
        await self._reply(reply)
        return True

    async def _refuse(self, miss: str, reason: str = "") -> bool:
        """Answer with an error. Return whether the connection goes on."""
        self._state.report.miss(self._state.test, miss)
        reply = listener_kinds()[self._protocol].mock_refusal(f"penstock mock: {miss}{reason}")
        if reply:
            await self._reply(reply)
        return bool(reply)

    async def _reply(self, data: bytes) -> None:
        self._wire.passed(Sender.SERVER, data)
        await self._stream.send_all(data)
