"""Measure S2's protobuf: microseconds of CPU time per record, beside the protobuf library used plainly.

    .venv/bin/python bench/micro_s2_protobuf.py

Compare the columns of one line; the machine's mood moves whole lines. "library" is one message object per record.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from penstock.model.operations import Append
from penstock.model.record_encoding import decode_records, encode_records
from penstock.model.records import Columns, Header, StreamRef
from penstock_proto import s2_pb2
from penstock_s2.codec.protobuf import decode_append_input, encode_append_input
from penstock_s2.codec.validation import validate_append

STREAM = StreamRef("basin-01", "stream")
NOW = 1_760_000_000_000
SHAPES = [(100, 100), (100, 1000), (1000, 100), (1000, 1000), (16384, 60)]
Work = Callable[[], object]


def library_append(bodies: list[bytes], timestamps: list[int] | None) -> bytes:
    message = s2_pb2.AppendInput()
    for index, body in enumerate(bodies):
        message.records.add(timestamp=timestamps and timestamps[index], body=body)
    return message.SerializeToString()


def library_append_decode(payload: bytes) -> object:
    records = s2_pb2.AppendInput.FromString(payload).records
    return [
        (r.timestamp if r.HasField("timestamp") else None, [(h.name, h.value) for h in r.headers], r.body)
        for r in records
    ]


def library_batch(columns: Columns) -> bytes:
    message = s2_pb2.ReadBatch()
    for index, (seq_num, timestamp, body) in enumerate(
        zip(columns.seq_nums, columns.timestamps, columns.bodies, strict=True)
    ):
        record = message.records.add(seq_num=seq_num, timestamp=timestamp, body=body)
        for name, value in columns.headers.get(index, ()):
            record.headers.add(name=name, value=value)
    return message.SerializeToString()


def library_batch_decode(payload: bytes) -> object:
    records = s2_pb2.ReadBatch.FromString(payload).records
    return [(r.seq_num, r.timestamp, [(h.name, h.value) for h in r.headers], r.body) for r in records]


def works(size: int, count: int) -> dict[str, tuple[Work, Work]]:
    """By name: ours, and the library's way to the same."""
    bodies = [bytes([index % 256]) * size for index in range(count)]
    times = list(range(NOW, NOW + count))
    plain = Append(STREAM, bodies, 0)
    timed = Append(STREAM, bodies, 0, timestamps=times)
    headers = {i: (Header(b"trace", b"0123456789"),) for i in range(count)}
    headed = Append(STREAM, bodies, 0, headers=headers)
    steady = Columns(range(100_000, 100_000 + count), [NOW] * count, bodies)
    moving = Columns(range(100_000, 100_000 + count), times, bodies)
    wires = {id(append): memoryview(encode_append_input(append)) for append in (plain, timed, headed)}
    heading = Columns(range(100_000, 100_000 + count), times, bodies, headers)
    records, headed_records = encode_records(moving), encode_records(heading)

    def decode(append: Append) -> tuple[Work, Work]:
        wire = wires[id(append)]
        return lambda: validate_append(decode_append_input(wire, STREAM)), lambda: library_append_decode(bytes(wire))

    return {
        "decode AppendInput": decode(plain),
        "  with timestamps": decode(timed),
        "  with a header": decode(headed),
        "encode AppendInput": (lambda: encode_append_input(plain), lambda: library_append(bodies, None)),
        "  with timestamps ": (lambda: encode_append_input(timed), lambda: library_append(bodies, times)),
        "encode ReadBatch, one time": (lambda: encode_records(steady), lambda: library_batch(steady)),
        "  times that move": (lambda: encode_records(moving), lambda: library_batch(moving)),
        "  with a header ": (lambda: encode_records(heading), lambda: library_batch(heading)),
        "decode ReadBatch": (lambda: decode_records(records), lambda: library_batch_decode(records)),
        "  with a header  ": (lambda: decode_records(headed_records), lambda: library_batch_decode(headed_records)),
    }


def measure(pair: tuple[Work, Work], records: int) -> list[float]:
    """Medians of seven alternated rounds, in us per record."""
    rounds: list[list[float]] = [[], []]
    repeats = max(1, 20_000 // records)
    for _ in range(7):
        for work, seen in zip(pair, rounds, strict=True):
            begun = time.process_time()
            for _ in range(repeats):
                work()
            seen.append((time.process_time() - begun) / repeats / records * 1e6)
    return [statistics.median(seen) for seen in rounds]


def main() -> None:
    for size, count in SHAPES:
        print(f"\n{count} x {size} B{'ours':>24}{'library':>10}{'ratio':>8}")
        for name, pair in works(size, count).items():
            ours, library = measure(pair, count)
            print(f"{name:<28}{ours:>10.3f}{library:>10.3f}{library / ours:>8.1f}")


if __name__ == "__main__":
    main()
