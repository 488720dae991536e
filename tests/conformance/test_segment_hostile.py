"""Clients that break the segment protocol: the process is unharmed, and others are served.

The front's own tests hold the other violations, and the bounds on memory.
"""

from __future__ import annotations

import itertools
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.process import GatewayProcess, running_gateway
from support.segment.client import Address, DraftSocket, ReleasedSocket, SegmentSocket, bytes_of, header
from support.segment.messages import MESSAGES, WRITER

from penstock.model.limits import MIB
from penstock.wire.codec import Role
from penstock_pravega.codec import PLUGIN, Dialect, draft, join_events, released

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
_sources = itertools.cycle(f"127.0.9.{number}" for number in range(1, 251))
"""Addresses to connect from: a client that breaks the protocol is soon slowed, and with it all that come from its
address (docs/limits.md)."""


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
    with SegmentSocket(address, source=next(_sources)) as client, suppress(ConnectionResetError, BrokenPipeError):
        client.send_bytes(VIOLATIONS[name])
        while client.socket.recv(65536):
            pass
    lines = process.events(VIOLATION)[before:]
    assert len(lines) == 1, lines
    assert lines[0]["level"] == "info"
    assert lines[0]["reason"]
    is_served(address)


@pytest.mark.parametrize("said", [HELLO + SETUP + bytes_of(released.AppendBlock(WRITER, b"")), DRAFT_SETUP])
def test_who_goes_away_in_the_middle_breaks_nothing(process: GatewayProcess, address: Address, said: bytes) -> None:
    """At any byte, politely or not; that is no violation, and no trouble for the log either."""
    before = len(process.events(VIOLATION)), len(process.events("connection_failed"))
    tail = b"" if said.startswith(HELLO) else bytes_of(BEGIN, draft.Event(b"hello"))
    for cut in range(1, len(said + tail)):
        with SegmentSocket(address, source=next(_sources)) as client:
            client.send_bytes((said + tail)[:cut])
            if cut % 2:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    is_served(address)
    assert (len(process.events(VIOLATION)), len(process.events("connection_failed"))) == before
