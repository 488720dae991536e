"""Record batches: both directions, what kafka-python makes of them, damage, and bombs."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import cramjam
import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.limits import KIB, MIB
from penstock.wire.compression import DecompressionError
from penstock_kafka.codec.batches import BATCH_HEADER, KafkaBatch, encode_batch, read_batches
from penstock_kafka.codec.compression import KafkaCompression, compress, decompress

CODECS = pytest.mark.parametrize("codec", KafkaCompression, ids=lambda codec: codec.name.lower())
NULLABLE = st.none() | st.binary(max_size=20)
HEADERS = st.lists(st.tuples(st.binary(max_size=5), NULLABLE), min_size=1, max_size=3).map(tuple)


@st.composite
def batches(draw: st.DrawFn) -> KafkaBatch:
    records = draw(st.lists(st.tuples(NULLABLE, NULLABLE, st.none() | HEADERS, st.integers(0, 2**50)), max_size=8))
    base, gaps = draw(st.integers(0, 2**40)), draw(st.integers(0, 3))
    offsets = [base + index * (gaps + 1) for index in range(len(records))]
    by_broker, timestamps = draw(st.booleans()), [one[3] for one in records]
    if by_broker:  # then all have the time of the append
        timestamps = [max(timestamps, default=0)] * len(records)
    return KafkaBatch(
        base_offset=base,
        compression=draw(st.sampled_from(KafkaCompression)),
        append_time=by_broker,
        transactional=draw(st.booleans()),
        control=draw(st.booleans()),
        producer_id=draw(st.integers(-1, 2**62)),
        producer_epoch=draw(st.integers(-1, 2**15 - 1)),
        base_sequence=draw(st.integers(-1, 2**31 - 1)),
        leader_epoch=draw(st.integers(-1, 5)),
        keys=[one[0] for one in records],
        values=[one[1] for one in records],
        headers={index: one[2] for index, one in enumerate(records) if one[2]},
        timestamps=timestamps,
        offsets=offsets,
        next_offset=(offsets[-1] if offsets else base) + draw(st.integers(1, 3)),
    )


def refused(data: bytes, **limits: int) -> str:
    with pytest.raises(OperationFailed) as failed:
        list(read_batches(data, **limits))
    return f"{failed.value.failure.code.value}: {failed.value.failure.message}"


def one_record(value: bytes, codec: KafkaCompression = KafkaCompression.NONE) -> bytes:
    return encode_batch(KafkaBatch(compression=codec, keys=[None], values=[value], timestamps=[0], offsets=[0]))


def resealed(data: bytes, at: int, change: bytes) -> bytes:
    """The batch with some bytes changed, and a checksum that fits."""
    wrong = bytearray(data)
    wrong[at : at + len(change)] = change
    wrong[17:21] = struct.pack(">I", google_crc32c.value(bytes(wrong[21:])))
    return bytes(wrong)


@examples(most=60)
@given(st.lists(batches(), max_size=3), st.integers(0, 60))
def test_batches_are_read_as_they_were_written(given_batches: list[KafkaBatch], rest: int) -> None:
    """A part of one more batch at the end, as Fetch may return, is left out."""
    data = b"".join(map(encode_batch, given_batches))
    found = list(read_batches(data + one_record(b"x" * 100)[:rest]))
    assert [encode_batch(batch) for batch in found] == [encode_batch(batch) for batch in given_batches]
    for batch, before in zip(found, given_batches, strict=True):
        columns = (batch.keys, batch.values, batch.headers, list(batch.offsets), batch.next_offset)
        assert columns == (before.keys, before.values, before.headers, before.offsets, before.next_offset)
        assert list(batch.timestamps) == list(before.timestamps)


@examples(most=40)
@given(batches())
def test_kafka_python_reads_the_same_records(batch: KafkaBatch) -> None:
    records = pytest.importorskip("kafka.record.default_records", reason="kafka-python is not installed (group peers)")
    for module in ("snappy", "lz4"):
        pytest.importorskip(module, reason=f"{module} is not installed (group peers)")
    theirs: Any = records.DefaultRecordBatch(bytearray(encode_batch(batch)))
    assert theirs.validate_crc()
    if batch.control:
        return  # its iteration reads keys of its own kind
    given_headers = [
        [(name.decode("latin-1"), value) for name, value in batch.headers.get(index, ())] for index in range(len(batch))
    ]
    if any(not name.isascii() for some in given_headers for name, _ in some):
        return
    found = [(one.offset, one.timestamp, one.key, one.value) for one in theirs]
    assert [key and bytes(key) for _, _, key, _ in found] == list(batch.keys)
    assert [value and bytes(value) for *_, value in found] == list(batch.values)
    assert [offset for offset, *_ in found] == list(batch.offsets)


def test_lz4_has_independent_blocks() -> None:
    """Kafka's Java reader takes no others (bit 5 of the flags of the frame)."""
    assert compress(KafkaCompression.LZ4, b"x" * 100)[4] & 0x20


@CODECS
def test_kafka_pythons_batches_are_read(codec: KafkaCompression) -> None:
    records = pytest.importorskip("kafka.record.default_records", reason="kafka-python is not installed (group peers)")
    for module in ("snappy", "lz4"):
        pytest.importorskip(module, reason=f"{module} is not installed (group peers)")
    builder: Any = records.DefaultRecordBatchBuilder(2, int(codec), True, 77, 3, 5, 1 * MIB)
    headers = [("h", b"x"), ("n", None)]
    for number in range(100):
        builder.append(number, timestamp=1000 + number, key=b"k", value=b"value" * 20, headers=headers)
    [batch] = read_batches(bytes(builder.build()))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.transactional) == (77, 3, 5, True)
    assert (batch.keys, batch.values) == ([b"k"] * 100, [b"value" * 20] * 100)
    assert batch.headers == dict.fromkeys(range(100), ((b"h", b"x"), (b"n", None)))
    assert list(batch.timestamps) == list(range(1000, 1100))


def test_a_batch_without_records_moves_its_readers_on() -> None:
    [batch] = read_batches(encode_batch(KafkaBatch(base_offset=7, next_offset=12)))
    assert (len(batch), batch.base_offset, batch.next_offset) == (0, 7, 12)


# ---- damage ----------------------------------------------------------------------------------------------------------


@examples(most=150)
@given(st.data())
def test_damage_is_refused_and_nothing_else_happens(data: st.DataObject) -> None:
    """With a wrong checksum always; with a checksum that fits, the batch is read or refused with a documented error."""
    sent = encode_batch(data.draw(batches()))
    at = data.draw(st.integers(21, len(sent) - 1))
    change = data.draw(st.binary(min_size=1, max_size=4))[: len(sent) - at]
    if sent[at : at + len(change)] != change:
        assert "the checksum does not match" in refused(sent[:at] + change + sent[at + len(change) :])
    try:
        list(read_batches(resealed(sent, at, change)))
    except OperationFailed as error:
        assert error.failure.code in {
            FailureCode.BAD_FORMAT,
            FailureCode.LIMIT_EXCEEDED,
            FailureCode.NOT_IMPLEMENTED,
        }


@pytest.mark.parametrize(
    ("at", "change", "why"),
    [
        (16, b"\1", "not_implemented: a batch of format 1"),
        (16, b"\3", "bad_format: the batch at byte 0: a batch of format 3"),
        (21, b"\0\7", "not_implemented: compression 7 is not known"),
        (57, b"\0\0\0\2", "bad_format: the batch at byte 0: 2 records up to offset 0"),
        (57, b"\xff\xff\xff\xff", "limit_exceeded: a batch of -1 records"),
        (57, b"\7\0\0\0", "limit_exceeded: a batch of 117440512 records, at most 100000 are allowed"),
        (61, b"\x01", "record 0 has -1 bytes"),
        (61, b"\x50", "record 0 has 40 bytes"),
        (65, b"\x03", "length -2"),
        (66, b"\x22", "a field of 17 bytes, of which only 6 are there"),
    ],
)
def test_a_damaged_batch_is_named(at: int, change: bytes, why: str) -> None:
    assert why in refused(resealed(one_record(b"value"), at, change))


# ---- bombs -----------------------------------------------------------------------------------------------------------


@CODECS
def test_a_batch_that_grows_beyond_the_limit_is_refused(codec: KafkaCompression) -> None:
    bomb = one_record(bytes(4 * MIB), codec)
    assert codec is KafkaCompression.NONE or len(bomb) < 300 * KIB
    uncompressed = codec is KafkaCompression.NONE
    assert uncompressed or refused(bomb, max_bytes=1 * MIB).startswith("limit_exceeded: a batch of 1 records: ")
    assert "decompressed size exceeds" in refused(bomb, max_bytes=1 * MIB)
    [batch] = read_batches(bomb, max_bytes=5 * MIB)
    assert batch.values == [bytes(4 * MIB)]


def test_a_snappy_block_that_states_too_much_is_refused_before_it_is_read() -> None:
    with pytest.raises(Exception, match="decompressed size exceeds 1024 bytes"):
        decompress(KafkaCompression.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(10), 1024)


def test_snappy_is_read_bare_and_in_the_framing_of_java() -> None:
    text = [b"first" * 100, b"second" * 100]
    blocks = [bytes(cramjam.snappy.compress_raw(one)) for one in text]
    framed = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)
    assert decompress(KafkaCompression.SNAPPY, framed, 4000) == b"".join(text)
    assert decompress(KafkaCompression.SNAPPY, blocks[0], 4000) == text[0]
    for wrong in (framed[:-1], framed + b"\0\0\1\0", b"\x82SNAPPY\0" + bytes(9)):
        with pytest.raises(Exception, match="snappy"):
            decompress(KafkaCompression.SNAPPY, wrong, 4000)


@CODECS
@examples(most=30)
@given(data=st.binary(max_size=300))
def test_compression_is_undone_and_garbage_is_refused(codec: KafkaCompression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), 300) == data
    with suppress(DecompressionError):
        decompress(codec, data, 300)


def test_the_header_has_61_bytes() -> None:
    assert len(encode_batch(KafkaBatch())) == BATCH_HEADER == 61
