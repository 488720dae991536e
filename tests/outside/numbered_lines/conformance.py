"""Conformance cases: what any server of Numbered Lines does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from numbered_lines.codec import Line, LinesCodec
from penstock.protocols.conformance import Cases, Deviation, Suite, TestedServer, require_equal
from penstock.wire.codec import NEED_DATA, PAUSED, Role

__all__ = ["SUITE"]


class LinesTestSession:
    """A connection to the server, and a name for the case's stream."""

    def __init__(self, stream: trio.abc.Stream, name: str, patience: float) -> None:
        self.name = name.encode()
        self._stream = stream
        self._patience = patience
        self._codec = LinesCodec(Role.CLIENT)

    async def ask(self, *line: bytes) -> list[Line]:
        """Send a line and return those of its answer."""
        await self._stream.send_all(b"".join(self._codec.send(line)))
        found: list[Line] = []
        with trio.move_on_after(self._patience):
            while not found or found[-1][0] == b"ROW":
                while (event := self._codec.next_event()) is NEED_DATA:
                    self._codec.receive(await self._stream.receive_some())
                if event is PAUSED:
                    break
                assert isinstance(event, tuple)
                found.append(event)
            return found
        raise Deviation(f"expected an answer to {line}, got {found}")


@asynccontextmanager
async def _session(server: TestedServer) -> AsyncIterator[LinesTestSession]:
    async with await server.connect() as stream:
        yield LinesTestSession(stream, server.new_name(), server.patience)


_CASES: Final = Cases[LinesTestSession]()


@_CASES.case("PUT")
async def put_counts_from_zero(session: LinesTestSession) -> None:
    """Lines are numbered from 0 on."""
    for number in (b"0", b"1"):
        require_equal(await session.ask(b"PUT", session.name, b"x"), [(b"OK", number)])


@_CASES.case("GET")
async def get_from_a_number(session: LinesTestSession) -> None:
    """Lines come in order from a number on, so many at most, then the next number."""
    for body in (b"a", b"b", b"c"):
        await session.ask(b"PUT", session.name, body)
    answer = await session.ask(b"GET", session.name, b"1", b"1")
    require_equal(answer, [(b"ROW", b"1", b"b"), (b"END", b"2")])


SUITE: Final = Suite(
    title="Numbered Lines",
    source="Numbered Lines, by commands",
    clauses={"PUT": "Append", "GET": "Read"},
    cases=tuple(_CASES.found),
    session=_session,
)
