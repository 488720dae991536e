"""`kill -9` in the middle of appends: acknowledged records are there, whole, in order, with the same timestamps."""

import itertools
import random
import select
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from support.rounds import each_number_of_rounds
from support.store import records, stored_bytes
from support.store import writer as store_writer
from support.store.payload_files import check_files

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.byte_events import split_events
from penstock.model.byte_operations import GetAttribute
from penstock.model.operations import CheckTail, FromSeqNum, ListStreams
from penstock.model.records import Record, StreamRef


class Ack(NamedTuple):
    stream: str
    batch: str
    first: int
    count: int
    first_timestamp: int
    last_timestamp: int


def write_and_kill(directory: Path, seed: int, dice: random.Random) -> list[Ack]:
    """Run a writer, kill it at a random time after its first acknowledgement, and return its acknowledgements."""
    command = [sys.executable, store_writer.__file__, str(directory), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            ready, _, _ = select.select([process.stdout], [], [], 120)
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
    lines = bytes(output).split(b"\n")[:-1]  # the last line may be incomplete
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
        owner, batch, _, count, filler = found[at].body.split(b" ", 4)
        assert owner.decode() == name
        assert filler == store_writer.filler_of(batch.decode(), len(filler)), "a payload is not what was written"
        for index in range(int(count)):
            whole = b"%b %b %d %b %b" % (owner, batch, index, count, filler)
            assert found[at + index].body == whole, "half a batch"
        at += int(count)
    return found


class Bytes:
    """Acknowledgements of the segment clients of all rounds, compared with the stored bytes."""

    def __init__(self) -> None:
        self.told = dict.fromkeys(store_writer.WRITERS, 0)
        self.merged: set[str] = set()
        self.stream = StreamRef(store_writer.BASIN, store_writer.BYTES)

    async def check(self, back: EmbeddedBack, acks: list[Ack]) -> None:
        data = stored_bytes(back, self.stream)
        numbers: dict[str, list[int]] = {name: [] for name in self.told}
        for event in split_events(data):
            name, number = event.decode().split()
            numbers[name].append(int(number))
        for ack in acks:
            if ack.stream == store_writer.BYTES:
                self.told[ack.batch] = ack.first
                length = ack.first_timestamp
                assert data[:length].endswith(f"{ack.batch} {ack.first}".encode()), f"{ack} is not where it was said"
        for name, found in numbers.items():
            assert found == list(range(1, len(found) + 1)), "an event is lost, doubled, or not where it belongs"
            assert len(found) >= self.told[name], f"what {name} was told is not there"
            attribute = GetAttribute(self.stream, store_writer.WRITERS[name])
            assert max(await back.perform(attribute), 0) == len(found)

    async def check_transactions(self, back: EmbeddedBack, acks: list[Ack]) -> None:
        self.merged |= {ack.batch for ack in acks if ack.stream == store_writer.MERGED}
        found = Counter(split_events(stored_bytes(back, StreamRef(store_writer.BASIN, store_writer.MERGED))))
        assert set(found.values()) <= {store_writer.EVENTS_PER_TRANSACTION}
        assert self.merged <= {name.decode() for name in found}
        left = await back.perform(ListStreams(store_writer.BASIN, prefix="tx-"))
        assert not found.keys() & {info.name.encode() for info in left.items}, "merged, and still there"
        assert not left.has_more


@each_number_of_rounds
async def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path, rounds: int) -> None:
    """On a machine that is busy otherwise, more rounds write enough."""
    dice = random.Random(20260821)
    settings = EmbeddedSettings(directory=tmp_path)
    told = 0
    there: dict[str, list[Record]] = {name: [] for name in store_writer.STREAMS}
    clients = Bytes()

    def enough() -> bool:
        return told > 10 * rounds and min(clients.told.values()) > rounds and bool(clients.merged)

    number = 0
    while number < rounds or not enough():
        assert number < 20 * rounds, "too little was written for this to mean anything"
        acks = write_and_kill(tmp_path, number, dice)
        number += 1
        async with open_embedded(settings) as back:
            for name, found in there.items():
                found += await stored(back, name, len(found))
            await clients.check(back, acks)
            await clients.check_transactions(back, acks)
            check_files(back)
        for ack in acks:
            if ack.stream not in there:
                continue
            batch = there[ack.stream][ack.first : ack.first + ack.count]
            assert len(batch) == ack.count, f"{ack} was acknowledged and is not there"
            assert all(ack.batch.encode() in record.body[:40] for record in batch)
            assert (batch[0].timestamp, batch[-1].timestamp) == (ack.first_timestamp, ack.last_timestamp)
        told += len(acks)
    async with open_embedded(settings) as back:
        for name, found in there.items():
            assert await stored(back, name, 0) == found, "later rounds changed what was there"
        assert len(check_files(back)) >= rounds, "too little was written to files of payloads"
