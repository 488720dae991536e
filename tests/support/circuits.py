"""A gateway's fronts over a back of each kind whose server can go away and come back, in this process."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
import trio
import trio.testing
from support.s3p import front as s3p_front
from support.segment import front as segment_front
from support.store import appending

from penstock.app.config import BackTable, kind_of_back
from penstock.backends.embedded import EmbeddedSettings, open_embedded
from penstock.model.operations import CreateBasin, CreateStream
from penstock.model.records import RecordId, StreamRef
from penstock.model.streams import BasinConfig
from penstock.net import upstream
from penstock.net.http.serving import serve_http
from penstock.protocols.back_opening import BackContext
from penstock.protocols.plugin import back_kinds
from penstock.routing.target import Target
from penstock_pravega.codec import Dialect, append_messages, released
from penstock_pravega.segment.config import SegmentBackTable
from penstock_pravega.segment.front import SegmentFront
from penstock_s2.config import S2BackTable
from penstock_s2.front import S2Front, S2Settings
from penstock_s3p.codec import AppendRecords, Command, ErrorReply, ReadRecords, TrimRecords
from penstock_s3p.config import S3PBackTable
from penstock_s3p.front import S3PFront

__all__ = ["ASKS", "BACKS", "OPEN_SECONDS", "STREAM", "Gateway", "Network", "gateway", "told"]

Ask = Callable[["Gateway"], Awaitable[str]]

STREAM: Final = StreamRef("penstock", "scope/stream")
SEGMENT: Final = "scope/stream/0.#epoch.0"
_NAME: Final = b"scope/stream"
_FAR_AWAY: Final = RecordId(1 << 52, 0)
_PATH: Final = "/v1/streams/scope%2Fstream/records"
OPEN_SECONDS: Final = 4.0
"""Seconds that a circuit stays open: a number that no pause has by itself."""
_COMMON: Final[dict[str, Any]] = {"address": "127.0.0.1:1", "breaker_open_seconds": OPEN_SECONDS, "recover_seconds": 10}
BACKS: Final[dict[str, BackTable]] = {
    "s2": S2BackTable(**_COMMON),
    "s3p": S3PBackTable(**_COMMON),
    "segment": SegmentBackTable(**_COMMON),
}


class Network:
    """The network to the server, which `serve` plays.

    `down`: connections are refused; `silent`: they are accepted and never answered.
    """

    def __init__(self, nursery: trio.Nursery, serve: Callable[[Any], Awaitable[object]]) -> None:
        self._nursery = nursery
        self._serve = serve
        self._open: list[Any] = []
        self.down = False
        self.silent = False
        self.dials = 0

    async def dial(self, host: str, port: int) -> trio.abc.Stream:
        """See `penstock.net.upstream.Dial`."""
        await trio.lowlevel.checkpoint()
        self.dials += 1
        if self.down:
            raise OSError(errno.ECONNREFUSED, f"{host}:{port}")
        ours, theirs = trio.testing.memory_stream_pair()
        self._open.append(theirs)
        if not self.silent:
            self._nursery.start_soon(self._serve_until_lost, theirs)
        return ours

    async def _serve_until_lost(self, stream: Any) -> None:
        try:
            await self._serve(stream)
        except* trio.ClosedResourceError:
            pass

    async def lose_all(self) -> None:
        """Break the connections that there are."""
        for stream in self._open:
            await trio.aclose_forcefully(stream)
        self._open.clear()


class Gateway:
    """The fronts, each with clients of its own; `target`: the back behind them; `network`: the way to its server."""

    def __init__(self, nursery: trio.Nursery, target: Target, network: Network) -> None:
        back = target.back
        self._nursery = nursery
        self.target = target
        self.network = network
        self._serve = {
            "s2": partial(serve_http, handler=S2Front(back, S2Settings(default_basin=STREAM.basin)).handle),
            "s3p": S3PFront(back).serve,
            "segment": SegmentFront(back).serve,
        }

    def connect(self, front: str) -> trio.abc.HalfCloseableStream:
        """Open a connection as a client."""
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._serve[front], theirs)
        return ours

    async def follow(self, ask: str, said: bytearray) -> None:
        """Add what a read that follows the stream says, for ever."""
        stream = self.connect("s2")
        headers = {"s2 event stream": "accept: text/event-stream\r\n", "s2 read session": _S2S}[ask]
        await stream.send_all(f"GET {_PATH}?seq_num=0 HTTP/1.1\r\nhost: x\r\n{headers}\r\n".encode())
        while data := await stream.receive_some():
            said += data

    async def lose(self) -> None:
        """Take the server away and send enough requests to open the circuit."""
        self.network.down = True
        await self.network.lose_all()
        await self.open_circuit()

    async def open_circuit(self) -> None:
        """Ask until the circuit is open."""
        breaker = self.target.breaker
        assert breaker is not None
        while breaker.state.value != "open":
            await told(self, "s2 tail")


# ---- what clients ask: each gives what it was told, "ok" or how it was refused ---------------------------------------

_APPEND_HI: Final = bytes.fromhex("000007000a041a026869")
"""An S2S frame: append one record."""


def _s2(method: str, path: str, headers: str = "", body: bytes = b"", wanted: bytes = b"") -> Ask:
    """An HTTP request. It is well when the answer holds `wanted`; a session may fail after its head."""

    async def ask(gateway: Gateway) -> str:
        stream = gateway.connect("s2")
        length = f"content-length: {len(body)}\r\n" if body and "chunked" not in headers else ""
        await stream.send_all(f"{method} {path} HTTP/1.1\r\nhost: x\r\n{headers}{length}\r\n".encode() + body)
        said = bytearray()
        while True:
            data = await stream.receive_some()
            assert data, f"closed without an answer: {bytes(said)!r}"
            said += data
            head, _, content = said.partition(b"\r\n\r\n")
            if b'"code"' in content:
                await trio.aclose_forcefully(stream)
                return "refused"
            if content and wanted in content and head.startswith(b"HTTP/1.1 200"):
                await trio.aclose_forcefully(stream)
                return "ok"

    return ask


def _s3p(command: Command) -> Ask:
    async def ask(gateway: Gateway) -> str:
        [reply] = await s3p_front.Client(gateway.connect("s3p")).call(command)
        return "refused" if isinstance(reply, ErrorReply) else "ok"

    return ask


def _segment(*requests: Callable[[UUID], Any]) -> Ask:
    """Requests of one writer, one after the other."""

    async def ask(gateway: Gateway) -> str:
        client = segment_front.Client(gateway.connect("segment"), Dialect.RELEASED)
        await client.greet()
        writer = uuid4()
        for request in requests:
            for event in found if isinstance(found := request(writer), list) else [found]:
                await client.send(event)
            if await client.reply() is None:
                return "refused"
        return "ok"

    return ask


_JSON: Final = "content-type: application/json\r\n"
_S2S: Final = "content-type: s2s/proto\r\n"
_CHUNK: Final = b"%x\r\n%b\r\n" % (len(_APPEND_HI), _APPEND_HI)
ASKS: Final[dict[str, Ask]] = {
    "s2 tail": _s2("GET", f"{_PATH}/tail"),
    "s2 read": _s2("GET", f"{_PATH}?seq_num=0"),
    "s2 long poll": _s2("GET", f"{_PATH}?tail_offset=0&wait=20", wanted=b"records"),
    "s2 event stream": _s2("GET", f"{_PATH}?seq_num=0", "accept: text/event-stream\r\n", wanted=b"first"),
    "s2 read session": _s2("GET", f"{_PATH}?seq_num=0", _S2S, wanted=b"first"),
    "s2 append": _s2("POST", _PATH, _JSON, b'{"records":[{"body":"appended later"}]}'),
    "s2 append session": _s2("POST", _PATH, f"{_S2S}transfer-encoding: chunked\r\n", _CHUNK),
    "s3p append": _s3p(AppendRecords(_NAME, [b"x"])),
    "s3p read": _s3p(ReadRecords(_NAME, 1)),
    "s3p blocking read": _s3p(ReadRecords(_NAME, 1, 8_000, _FAR_AWAY)),
    "s3p trim": _s3p(TrimRecords(_NAME, RecordId(1, 0))),
    "segment append": _segment(
        lambda writer: released.SetupAppend(7, writer, SEGMENT), lambda writer: append_messages(writer, [b"x"], 0, 8)
    ),
    "segment info": _segment(lambda _: released.GetStreamSegmentInfo(7, SEGMENT)),
    "segment read": _segment(lambda _: released.ReadSegment(SEGMENT, 0, 1000, "", 7)),
}


async def told(gateway: Gateway, ask: str) -> tuple[str, float]:
    """Send a request and return what the client received, and after how many seconds."""
    begun = trio.current_time()
    with trio.fail_after(100):
        said = await ASKS[ask](gateway)
    return said, trio.current_time() - begun


@asynccontextmanager
async def gateway(directory: Path, table: BackTable, patch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    """A gateway whose back knows the stream, which has a record."""
    kind = type(table).__struct_config__.tag
    async with (
        open_embedded(EmbeddedSettings(directory=directory / "far")) as far,
        open_embedded(EmbeddedSettings(directory=directory / "near")) as near,
        trio.open_nursery() as nursery,
    ):
        await far.perform(CreateBasin(STREAM.basin, BasinConfig()))
        await far.perform(CreateStream(STREAM))
        serves: dict[Any, Any] = {
            "s2": partial(serve_http, handler=S2Front(far, S2Settings()).handle),
            "s3p": S3PFront(far).serve,
            "segment": SegmentFront(far).serve,
        }
        network = Network(nursery, serves[kind])
        patch.setattr(upstream, "_dial_tcp", network.dial)
        async with back_kinds()[kind_of_back(table)].open(BackContext(embedded=near), "far", table) as target:
            await target.back.perform(appending(b"first", stream=STREAM))
            yield Gateway(nursery, target, network)
            nursery.cancel_scope.cancel()
