"""Clients that break the segment protocol: the process is unharmed, and others are served."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.process import GatewayProcess, running_gateway
from support.segment.client import Address, DraftSocket, ReleasedSocket, SegmentSocket, bytes_of, header
from support.segment.messages import MESSAGES, WRITER

from penstock_codecs.codec import Role
from penstock_codecs.limits import MIB
from penstock_codecs.segment import PLUGIN, BlockData, Dialect, draft, join_events, released

CONFIG = """\
[listeners.segment]
bind = "127.0.0.1:{segment_port}"

[listeners.segment.limits]
read_hold_seconds = 1

[store]
directory = "{data}"

[log]
level = "debug"
format = "json"
"""
SEGMENT, TABLE = "scope/stream/0.#epoch.0", "table"
"""Those of the conversations that are changed."""
VIOLATION = "protocol_error"
"""Log event of each violation."""


@pytest.fixture(scope="module")
def process() -> Iterator[GatewayProcess]:
    """A gateway of this module's own, whose log it counts; it must end well."""
    with running_gateway(CONFIG) as process:
        with ReleasedSocket(("127.0.0.1", process.segment_port)) as client:
            client.new(SEGMENT, b"to be read")
            client.create_table(TABLE)
        yield process


@pytest.fixture(scope="module")
def address(process: GatewayProcess) -> Address:
    return "127.0.0.1", process.segment_port


def is_served(address: Address) -> None:
    """Clients that come later: both dialects, an append and a read."""
    with ReleasedSocket(address) as one, DraftSocket(address) as two:
        name = f"after-{uuid4().hex}"
        one.new(name, b"hello")
        assert two.content(name) == join_events([b"hello"])
        two.setup(name, writer := uuid4())
        two.append(writer, 0, [b"world"])
        assert one.content(name) == join_events([b"hello", b"world"])


# ---- near misses -----------------------------------------------------------------------------------------------------

TYPES = sorted({cls.type_id.to_bytes(4, "big", signed=True) for _, cls in MESSAGES})
TOKENS = [bytes(4), bytes(8), b"\0\0\0\1", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0\xff\xff\xff", WRITER.bytes]


@st.composite
def near_misses(draw: st.DrawFn, dialect: str) -> bytes:
    """A valid conversation with a few bytes changed, inserted or deleted, of a writer that no other client is."""
    data = bytearray(PLUGIN.sample(Role.SERVER, dialect).replace(WRITER.bytes, uuid4().bytes))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        put = draw(st.sampled_from(TOKENS) | st.sampled_from(TYPES) | st.binary(max_size=3))
        data[at : at + draw(st.sampled_from([0, len(put)]))] = put
    return bytes(data)


def converse(address: Address, pieces: list[bytes]) -> int:
    """Send, finish sending, and take all that is said until the server closes; how many bytes it said."""
    with socket.create_connection(address, timeout=10, source_address=(next(_sources), 0)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        size = 0
        try:
            for piece in pieces:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            while data := connection.recv(1 << 20):
                size += len(data)
        except (ConnectionResetError, BrokenPipeError):
            pass  # it closed before we had said all
        return size


@pytest.mark.parametrize("dialect", [dialect.value for dialect in Dialect])
def test_near_misses(process: GatewayProcess, address: Address, dialect: str) -> None:
    """The connection is answered or closed, with one log line per violation, and no other client is affected."""
    answered = 0

    @examples(least=40, most=300)
    @given(near_misses(dialect), st.lists(st.integers(0, 500), max_size=2))
    def run(said: bytes, cuts: list[int]) -> None:
        nonlocal answered
        places = [0, *sorted(cuts), len(said)]
        answered += converse(address, [said[start:end] for start, end in itertools.pairwise(places)]) > 0

    before = len(process.events(VIOLATION))
    run()
    lines = process.events(VIOLATION)[before:]
    assert answered > 0
    assert len(lines) > 20, "most of them break the protocol"
    assert max(Counter(line["connection"] for line in lines).values()) == 1
    assert all(line["reason"] and line["listener"] == "listeners.segment" for line in lines)
    assert not process.events("connection_failed")
    is_served(address)


# ---- violations, one by one ------------------------------------------------------------------------------------------

HELLO = bytes_of(released.Hello(16, 5))
SETUP = bytes_of(released.SetupAppend(1, WRITER, SEGMENT))
DRAFT_SETUP = bytes_of(draft.SetupAppend(WRITER, SEGMENT))
BEGIN = draft.BeginAppendBlock(WRITER, 0, 100)
VIOLATIONS = {
    "released: an unknown type": HELLO + header(99, 0),
    "released: a length beyond the limit": HELLO + header(3, 1 << 24),
    "released: a negative length": HELLO + header(3, -1),
    "released: an oversize name": HELLO + header(28, 2000) + bytes(8) + b"\x07\xc0" + b"n" * 1990,
    "released: an AppendBlock without its end": HELLO + SETUP + bytes_of(released.AppendBlock(WRITER, b"")) * 2,
    "released: an append of more than two of the largest events": HELLO
    + SETUP
    + bytes_of(
        released.AppendBlock(WRITER, header(-2, 9 * MIB) + bytes(9 * MIB)),
        released.AppendBlockEnd(WRITER, 0, bytes(8 * MIB), 1, 1),
    ),
    "released: a list of more than 65,536": HELLO + header(90, 15) + bytes(8) + b"\0\1t" + b"\0\1\0\1",
    "draft: an unknown type": header(99, 0),
    "draft: a length beyond the limit": header(100, 1 << 24),
    "draft: a Begin in a Begin": bytes_of(draft.Partial(draft.PartialKind.BEGIN, b"")) * 2,
    "draft: nested Partials": bytes_of(*draft.partials(draft.Partial(draft.PartialKind.BEGIN, header(100, 0)), [4])),
    "draft: an oversize name": header(9, 2000) + b"\x07\xc0" + b"n" * 1998,
    "draft: a message in a block": DRAFT_SETUP + bytes_of(BEGIN, draft.KeepAlive()),
    "draft: a Begin of nobody": bytes_of(BEGIN),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_is_logged_once(process: GatewayProcess, address: Address, name: str) -> None:
    before = len(process.events(VIOLATION))
    with stranger(address) as client:
        until_closed(client, VIOLATIONS[name])
    lines = process.events(VIOLATION)[before:]
    assert len(lines) == 1, lines
    assert lines[0]["level"] == "info"
    assert lines[0]["reason"]
    is_served(address)


def until_closed(client: SegmentSocket, said: bytes) -> None:
    """Send this and wait until the server closes the connection, ignoring its replies."""
    try:
        client.send_bytes(said)
        while client.socket.recv(65536):
            pass
    except (ConnectionResetError, BrokenPipeError):
        pass


@pytest.mark.parametrize("said", [HELLO + SETUP + bytes_of(released.AppendBlock(WRITER, b"")), DRAFT_SETUP])
def test_who_goes_away_in_the_middle_breaks_nothing(process: GatewayProcess, address: Address, said: bytes) -> None:
    """At any byte, politely or not; that is no violation, and no trouble for the log either."""
    before = len(process.events(VIOLATION)), len(process.events("connection_failed"))
    tail = b"" if said.startswith(HELLO) else bytes_of(BEGIN, draft.Event(b"hello"))
    for cut in range(1, len(said + tail)):
        with stranger(address) as client:
            client.send_bytes((said + tail)[:cut])
            if cut % 2:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    is_served(address)
    assert (len(process.events(VIOLATION)), len(process.events("connection_failed"))) == before


# ---- memory ----------------------------------------------------------------------------------------------------------


class Watch:
    """The most memory that a process held while this was open."""

    def __init__(self, process: GatewayProcess) -> None:
        self._process = process
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.most = self.before = process.resident_bytes()

    def _run(self) -> None:
        while not self._over.wait(0.01):
            self.most = max(self.most, self._process.resident_bytes())

    @property
    def growth(self) -> int:
        return self.most - self.before

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


EVENTS = join_events([bytes([1]) * 65_528] * 16)
"""1 MiB."""


_sources = itertools.cycle(f"127.0.9.{number}" for number in range(1, 251))


def stranger(address: Address) -> SegmentSocket:
    """A client with nothing good in mind, each from another address: one alone would soon be slowed, and with it all
    that come from its address (docs/limits.md)."""
    return SegmentSocket(address, source=next(_sources))


def draft_block(address: Address, segment: str, length: int) -> DraftSocket:
    """A connection inside a block."""
    client = DraftSocket(address, timeout=60)
    client.create(segment)
    client.setup(segment, WRITER)
    client.send_bytes(bytes_of(draft.BeginAppendBlock(WRITER, 0, length)))
    return client


def test_a_block_of_1_gib_keeps_memory_flat(process: GatewayProcess, address: Address) -> None:
    """Announced, and 192 MiB of it sent as fast as they are taken; then it breaks off, and what was whole stays.

    What came first fills the caches, which have their own bounds, so memory is watched from then on.
    """
    warm, more = 64, 128
    acked = 0

    def listen() -> None:
        nonlocal acked
        while acked < (warm + more) * MIB:
            acked = client.reply().connection_offset_ack_level

    with draft_block(address, "gib", 1 << 30) as client:
        listening = threading.Thread(target=listen)
        listening.start()
        for _ in range(warm):
            client.send_bytes(EVENTS)
        while acked < (warm - 16) * MIB:
            time.sleep(0.01)
        with Watch(process) as watch:
            for _ in range(more):
                client.send_bytes(EVENTS)
            listening.join(60)
        assert watch.growth < 32 * MIB
        assert acked == (warm + more) * MIB
    with DraftSocket(address) as client:
        assert client.info("gib").write_offset == acked
        assert client.setup("gib", WRITER) == acked
        assert client.read_bytes("gib", acked - MIB, MIB) == EVENTS
        client.delete("gib")


def test_zero_bytes_by_the_hundred_mib_keep_memory_flat(process: GatewayProcess, address: Address) -> None:
    """A block that is filled with zero bytes up to 512 MiB, and ends: nothing is stored of them."""
    with Watch(process) as watch, draft_block(address, "zeros", 512 * MIB) as client:
        for _ in range(512):
            client.send_bytes(bytes(MIB))
        client.send_bytes(bytes_of(draft.EndAppendBlock(WRITER, 0, 0)))
        assert client.acknowledged(WRITER, 0) == 0
        assert client.setup("zeros", WRITER) == 0
        assert client.info("zeros").write_offset == 0
    assert watch.growth < 16 * MIB


ANNOUNCED = {
    "released: an AppendBlock beyond the limit": (HELLO + SETUP + header(3, 1 << 24), True),
    "released: an AppendBlock of 16 MiB": (HELLO + SETUP + header(3, (1 << 24) - 9) + WRITER.bytes, False),
    "draft: Partials of a message of 16 MiB": (
        bytes_of(draft.Partial(draft.PartialKind.BEGIN, header(100, 0xFFFFFF))),
        False,
    ),
    "draft: a message of 16 MiB": (header(100, 0xFFFFFF), False),
}


@pytest.mark.parametrize("name", ANNOUNCED)
def test_what_is_announced_costs_nothing(process: GatewayProcess, address: Address, name: str) -> None:
    """A hundred connections that announce a large message and send a little of it."""
    said, refused = ANNOUNCED[name]
    with Watch(process) as watch, ExitStack() as stack:
        sockets = [stack.enter_context(stranger(address)) for _ in range(100)]
        for client in sockets:
            if refused:
                until_closed(client, said)
            else:
                client.send_bytes(said + b"\xff" * 1000)
        is_served(address)
    assert watch.growth < 16 * MIB


def test_a_client_that_takes_no_replies_costs_no_memory(process: GatewayProcess, address: Address) -> None:
    """It asks for 100 MiB and reads nothing: the replies held for it are bounded."""
    with DraftSocket(address) as client:
        client.create("large")
        client.setup("large", writer := uuid4())
        client.send(draft.BeginAppendBlock(writer, 0, 2 * MIB), BlockData(writer, 0, EVENTS * 2))
        client.send(draft.EndAppendBlock(writer, 2 * MIB, 2 * MIB))
        assert client.acknowledged(writer, 2 * MIB) == 2 * MIB
    with Watch(process) as watch, DraftSocket(address) as client:
        for number in range(50):
            client.send_bytes(bytes_of(draft.ReadSegment("large", number, 2 * MIB)))
        is_served(address)
        # It is served as it takes them.
        for _ in range(50):
            assert len(client.reply().data) > MIB // 2
    assert watch.growth < 48 * MIB
