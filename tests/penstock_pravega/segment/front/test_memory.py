"""The segment front in a real process: data that clients announce, trickle or do not read costs little memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from support.process import GatewayProcess
from support.segment.client import DraftSocket, ReleasedSocket, bytes_of, header

from penstock_pravega.codec import draft, join_events, released

MIB = 1 << 20
SEGMENT = "scope/memory/0.#epoch.0"
STATUS = Path("/proc/self/status")

pytestmark = pytest.mark.skipif(not STATUS.exists(), reason="needs Linux's proc(5)")


class Watched:
    """A gateway, and how much more memory than at first it has ever had in RAM."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.address = ("127.0.0.1", gateway.segment_port)
        self._process = Path(f"/proc/{gateway.pid}")
        self._before = self._peak()

    def _peak(self) -> int:
        lines = (self._process / "status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

    @property
    def grown(self) -> int:
        return self._peak() - self._before


@pytest.fixture
def watched(fresh_gateway: GatewayProcess) -> Iterator[Watched]:
    """A gateway whose segment has been used a little."""
    with ReleasedSocket(("127.0.0.1", fresh_gateway.segment_port)) as client:
        client.create(SEGMENT)
        client.append(client.writer(SEGMENT), [b"x" * MIB], 1)
        client.content(SEGMENT)
    yield Watched(fresh_gateway)


def test_a_draft_block_of_1_gib(watched: Watched) -> None:
    """192 MiB of it arrive and are stored. Held in memory: the newest batches for followers (32 MiB), data on its way
    to the disk (8 MiB), and a piece or two; after the first third, nothing more.
    """
    piece = join_events([b"e" * 1000] * 1000)
    rounds = 192 * MIB // len(piece)
    with DraftSocket(watched.address, timeout=60) as client:
        connection = uuid4()
        client.setup(SEGMENT, connection)
        client.send_bytes(bytes_of(draft.BeginAppendBlock(connection, 0, 1 << 30)))
        level = 0

        def take() -> None:
            nonlocal level
            while level < rounds * len(piece) - 2 * MIB:
                level = client.reply().connection_offset_ack_level

        taking = threading.Thread(target=take)
        taking.start()
        for number in range(rounds):
            if number == rounds // 3:
                warm = watched.grown
            client.send_bytes(piece)
        taking.join(60)
        assert level >= rounds * len(piece) - 2 * MIB
        client.send_bytes(bytes(100))
    print(f"{warm / MIB:.0f} MiB, then {watched.grown / MIB:.0f} MiB")
    assert watched.grown < min(110 * MIB, warm + 32 * MIB)


def test_zero_bytes_that_fill_a_block(watched: Watched) -> None:
    """A block is filled with zero bytes up to 512 MiB, and ends: nothing is stored of them."""
    with DraftSocket(watched.address, timeout=60) as client:
        connection = uuid4()
        client.setup(SEGMENT, connection)
        client.send_bytes(bytes_of(draft.BeginAppendBlock(connection, 0, 512 * MIB)))
        for _ in range(512):
            client.send_bytes(bytes(MIB))
        client.send_bytes(bytes_of(draft.EndAppendBlock(connection, 0, 0)))
        assert client.acknowledged(connection, 0) == client.setup(SEGMENT, connection) == 0
    assert watched.grown < 16 * MIB


def test_what_is_announced_takes_nothing(watched: Watched) -> None:
    """Messages of 16 MiB of which a few bytes come, in both dialects; and one of 1 GiB, which is refused at once."""
    with ExitStack() as stack:
        for _ in range(60):
            client = stack.enter_context(ReleasedSocket(watched.address))
            writer = client.writer(SEGMENT)
            client.send_bytes(header(3, (1 << 24) - 1) + writer.bytes + b"x" * 1000)
        large = header(100, 0xFFFFFF)
        for said in (large, bytes_of(draft.Partial(draft.PartialKind.BEGIN, large))):
            for _ in range(60):
                stack.enter_context(DraftSocket(watched.address)).send_bytes(said + b"\xff" * 1000)
        with ReleasedSocket(watched.address) as client:
            client.send_bytes(header(3, 1 << 30))
            assert client.ended()
        with ReleasedSocket(watched.address) as client:
            assert client.setup(SEGMENT, UUID(int=5)) < 0
    assert watched.grown < 16 * MIB


def test_clients_that_take_nothing(watched: Watched) -> None:
    """Each asks for 400 MiB at once and reads none of it."""
    with ReleasedSocket(watched.address) as client:
        client.append(client.writer(SEGMENT), [b"y" * (MIB - 8)], 1)
    with ExitStack() as stack:
        clients = [stack.enter_context(ReleasedSocket(watched.address)) for _ in range(8)]
        for client in clients:
            client.send(*[released.ReadSegment(SEGMENT, 0, 2 * MIB, "", number) for number in range(200)])
        with ReleasedSocket(watched.address) as client:
            assert len(client.content(SEGMENT)) == 2 * MIB + 8
        assert watched.grown < 8 * 12 * MIB
