"""A program that appends to a store until it is killed, and says what was acknowledged, one line each.

`python writer.py DIRECTORY SEED`. A line: stream, number of the batch, first sequence number, records, first and
last timestamp. A body: stream, number of the batch, index, records of the batch, and filler that follows from the
number. Every sixth batch or so is large enough for a file of payloads, of which a new one is begun now and then.

Two segment clients number their events, from 1 on, and go on where the store says that they are; their lines: BYTES,
the writer, its position, 0, the stream's length, 0. One makes transactions; its lines: MERGED, the name, and zeros.
"""

import os
import random
import sys
from pathlib import Path

import trio

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import AppendBytes, GetAttribute, Merge, WriterPosition
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.limits import MIB
from penstock.model.operations import Append, CreateStream, EnsureBasin, EnsureStream
from penstock.model.records import StreamRef, metered_size
from penstock.store import payload_files

BASIN = "crash-basin"
STREAMS = ("one", "two", "three")
BYTES, MERGED = "bytes", "merged"
WRITERS = {"left": bytes(15) + b"l", "right": bytes(15) + b"r"}
EVENTS_PER_TRANSACTION = 3
IN_FLIGHT = 8


def filler_of(name: str, size: int) -> bytes:
    """Return the filler of a batch."""
    return random.Random(name).randbytes(size)


async def main(directory: Path, seed: int) -> None:
    """Append for ever."""
    payload_files.FILE_BYTES = MIB  # type: ignore[misc]
    settings = EmbeddedSettings(directory=directory, checkpoint_bytes=1 << 20, log_bytes=4 << 20)
    async with open_embedded(settings) as back, trio.open_nursery() as nursery:
        await back.perform(EnsureBasin(BASIN))
        for name in (*STREAMS, BYTES, MERGED):  # before the first acknowledgement, after which this may be killed
            await back.perform(EnsureStream(StreamRef(BASIN, name)))
        for name in STREAMS:
            nursery.start_soon(_write, back, StreamRef(BASIN, name), random.Random(f"{seed} {name}"))
        for name in WRITERS:
            nursery.start_soon(_write_bytes, back, name, random.Random(f"{seed} {name}"))
        nursery.start_soon(_merge, back, seed)


async def _write(back: EmbeddedBack, stream: StreamRef, dice: random.Random) -> None:
    sent: list[str] = []
    room = trio.Semaphore(IN_FLIGHT)

    async with back.append_session(stream) as session, trio.open_nursery() as nursery:

        async def say() -> None:
            while True:
                for ack in await session.receive():
                    name = sent.pop(0)
                    count = ack.end.seq_num - ack.start.seq_num
                    line = (
                        f"{stream.stream} {name} {ack.start.seq_num} {count} {ack.start.timestamp} {ack.end.timestamp}"
                    )
                    os.write(1, line.encode() + b"\n")
                    room.release()

        nursery.start_soon(say)
        while True:
            await room.acquire()
            name = f"{dice.getrandbits(64):016x}"
            count = dice.choice((1, 2, 10, 100))
            filler = filler_of(name, dice.choice((0, 50, 1000, 5000)))
            bodies = [f"{stream.stream} {name} {index} {count} ".encode() + filler for index in range(count)]
            sent.append(name)
            await session.send(Append(stream, bodies, metered_size(bodies, {})))


async def _write_bytes(back: EmbeddedBack, name: str, dice: random.Random) -> None:
    """Append as a segment client that resumes: first repeat appends whose acknowledgements it may have missed."""
    stream, writer = StreamRef(BASIN, BYTES), WRITERS[name]
    position = max(await back.perform(GetAttribute(stream, writer)), 0)
    for number in range(max(position - 2, 1), position + 1):
        try:
            await back.perform(_events(stream, name, number, number))
        except OperationFailed as error:
            assert error.failure.code is FailureCode.STALE_WRITER_POSITION
        else:
            raise AssertionError("an event was taken twice")
    room = trio.Semaphore(IN_FLIGHT)
    sent: list[int] = []

    async with back.append_session(stream) as session, trio.open_nursery() as nursery:

        async def say() -> None:
            while True:
                for ack in await session.receive():
                    os.write(1, f"{BYTES} {name} {sent.pop(0)} 0 {ack.offset} 0\n".encode())
                    room.release()

        nursery.start_soon(say)
        while True:
            await room.acquire()
            size = dice.choice((1, 2, 5)) if dice.randrange(20) else 1100  # then it is several batches
            first, position = position + 1, position + size
            sent.append(position)
            await session.send(_events(stream, name, first, position))


def _events(stream: StreamRef, name: str, first: int, last: int) -> AppendBytes:
    data = join_events([f"{name} {number}".encode() for number in range(first, last + 1)])
    return AppendBytes(stream, data, WriterPosition(WRITERS[name], last))


async def _merge(back: EmbeddedBack, seed: int) -> None:
    """Transactions, one after the other."""
    number = 0
    while True:
        name = f"tx-{seed}-{number}"
        await back.perform(CreateStream(StreamRef(BASIN, name)))
        for _ in range(EVENTS_PER_TRANSACTION):
            await back.perform(AppendBytes(StreamRef(BASIN, name), join_events([name.encode()])))
        await back.perform(Merge(StreamRef(BASIN, MERGED), (StreamRef(BASIN, name),)))
        os.write(1, f"{MERGED} {name} 0 0 0 0\n".encode())
        number += 1


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), int(sys.argv[2]))
