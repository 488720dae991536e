"""`kill -9` in the middle of appends: what was acknowledged is there, whole, in order, with the same timestamps."""

import itertools
import random
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from support import store_writer
from support.store import records

from penstock.backs.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock_codecs.model import Record, StreamRef
from penstock_codecs.operations import CheckTail, FromSeqNum

ROUNDS = 20


class Ack(NamedTuple):
    stream: str
    batch: str
    first: int
    count: int
    first_timestamp: int
    last_timestamp: int


def write_and_kill(directory: Path, seed: int, dice: random.Random) -> list[Ack]:
    """What a writer was told before it was killed, at a random time after the first acknowledgement."""
    command = [sys.executable, store_writer.__file__, str(directory), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            ready, _, _ = select.select([process.stdout], [], [], 30)
            assert ready, "the writer says nothing"
            # The pipe is emptied all the while, or the writer would wait for us instead of writing.
            end = time.monotonic() + dice.uniform(0.0, 0.25)
            output = bytearray()
            while (left := end - time.monotonic()) > 0:
                if select.select([process.stdout], [], [], left)[0]:
                    piece = process.stdout.read1(65536)
                    assert piece, "the writer ended by itself"
                    output += piece
        finally:
            process.kill()
        output += process.stdout.read()
    lines = bytes(output).split(b"\n")[:-1]  # what follows the last line end is half a line
    return [Ack(*(part if at < 2 else int(part) for at, part in enumerate(line.decode().split()))) for line in lines]  # type: ignore[arg-type]


async def stored(back: EmbeddedBack, name: str, start: int) -> list[Record]:
    """The records of a stream from `start` to its tail: numbers are dense, batches are whole."""
    stream = StreamRef(store_writer.BASIN, name)
    found = await records(back, FromSeqNum(start), stream)
    assert [record.seq_num for record in found] == list(range(start, start + len(found)))
    assert (await back.perform(CheckTail(stream))).seq_num == start + len(found)
    assert all(one.timestamp <= other.timestamp for one, other in itertools.pairwise(found))
    at = 0
    while at < len(found):
        owner, batch, _, count, _ = found[at].body.split(b" ", 4)
        assert owner.decode() == name
        for index in range(int(count)):
            assert found[at + index].body.startswith(b"%b %b %d %b " % (owner, batch, index, count)), "half a batch"
        at += int(count)
    return found


async def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    dice = random.Random(20260821)
    settings = EmbeddedSettings(directory=tmp_path)
    told = 0
    there: dict[str, list[Record]] = {name: [] for name in store_writer.STREAMS}
    for number in range(ROUNDS):
        acks = write_and_kill(tmp_path, number, dice)
        async with open_embedded(settings) as back:
            for name, found in there.items():
                found += await stored(back, name, len(found))
        for ack in acks:
            batch = there[ack.stream][ack.first : ack.first + ack.count]
            assert len(batch) == ack.count, f"{ack} was acknowledged and is not there"
            assert all(ack.batch.encode() in record.body[:40] for record in batch)
            assert (batch[0].timestamp, batch[-1].timestamp) == (ack.first_timestamp, ack.last_timestamp)
        told += len(acks)
    assert told > 10 * ROUNDS, "too little was written for this to mean anything"
    async with open_embedded(settings) as back:
        for name, found in there.items():
            assert await stored(back, name, 0) == found, "later rounds changed what was there"
