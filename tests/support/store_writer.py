"""A program that appends to a store until it is killed, and says what was acknowledged, one line each.

`python store_writer.py DIRECTORY SEED`. A line: stream, number of the batch, first sequence number, records, first and
last timestamp. A body: stream, number of the batch, index, records of the batch, and filler.
"""

import os
import random
import sys
from pathlib import Path

import trio

from penstock.backs.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock_codecs.model import StreamRef, metered_size
from penstock_codecs.operations import Append, EnsureBasin, EnsureStream

BASIN = "crash-basin"
STREAMS = ("one", "two", "three")
IN_FLIGHT = 8


async def main(directory: Path, seed: int) -> None:
    """Append for ever."""
    settings = EmbeddedSettings(directory=directory, checkpoint_bytes=1 << 20, log_reset_bytes=4 << 20)
    async with open_embedded(settings) as back, trio.open_nursery() as nursery:
        await back.perform(EnsureBasin(BASIN))
        for name in STREAMS:
            await back.perform(EnsureStream(StreamRef(BASIN, name)))
            nursery.start_soon(_write, back, StreamRef(BASIN, name), random.Random(f"{seed} {name}"))


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
            filler = dice.randbytes(dice.choice((0, 50, 1000)))
            bodies = [f"{stream.stream} {name} {index} {count} ".encode() + filler for index in range(count)]
            sent.append(name)
            await session.send(Append(stream, bodies, metered_size(bodies, {})))


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), int(sys.argv[2]))
