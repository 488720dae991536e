"""Batches that are kept as they came: the bytes that stay, the header that changes, and batches that are not kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.records import EVENT_TIME, Header, RecordBatch, WireBytes
from penstock.wire.codec import installed_encoding
from penstock_kafka.codec import PLUGIN
from penstock_kafka.codec.batches import BATCH_HEADER, KafkaBatch, encode_batch, header_of, read_batches, resealed
from penstock_kafka.codec.carrying import parts_of
from penstock_kafka.codec.compression import KafkaCompression
from penstock_kafka.codec.kept import KAFKA_BATCHES, keep, kept_in, leading

ENCODING = PLUGIN.encodings[0]
NULLABLE = st.none() | st.binary(max_size=9)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=3).map(str.encode)


@st.composite
def produced(draw: st.DrawFn) -> KafkaBatch:
    """A batch that a producer may send."""
    headers = st.lists(st.tuples(NAMES, NULLABLE), max_size=2).map(tuple)
    rows = draw(st.lists(st.tuples(NULLABLE, NULLABLE, headers, st.integers(0, 2**41)), min_size=1, max_size=6))
    return KafkaBatch(
        compression=draw(st.sampled_from(KafkaCompression)),
        producer_id=draw(st.integers(-1, 9)),
        keys=[key for key, *_ in rows],
        values=[value for _, value, *_ in rows],
        headers={index: row[2] for index, row in enumerate(rows) if row[2]},
        timestamps=[row[3] for row in rows],
        offsets=range(len(rows)),
    )


def read(data: bytes | None) -> KafkaBatch:
    assert data is not None
    [batch] = read_batches(data)
    return batch


def kept(batch: KafkaBatch) -> bytes:
    wire = keep(read(encode_batch(batch)))
    assert wire is not None and wire.encoding == KAFKA_BATCHES
    return wire.data


def plain(*values: bytes, at: int = 5) -> KafkaBatch:
    count = len(values)
    return KafkaBatch(keys=[None] * count, values=values, timestamps=[at] * count, offsets=range(count))


@examples(most=100)
@given(produced(), st.integers(0, 2**62))
def test_a_placed_batch_differs_in_its_number_alone(batch: KafkaBatch, number: int) -> None:
    came = encode_batch(batch)
    placed = ENCODING.place(kept(batch), number, None, False) or b""
    assert placed[16:] == came[16:] and placed[8:12] == came[8:12]
    assert list(read(placed).offsets) == list(range(number, number + len(batch)))


@examples(most=100)
@given(
    st.lists(produced(), min_size=1, max_size=4), st.integers(0, 2**40), st.integers(0, 2**41), st.integers(0, 2**41)
)
def test_kept_batches_decode_to_the_records_that_were_appended(
    batches: list[KafkaBatch], number: int, first: int, now: int
) -> None:
    """Joined payloads are a payload. Timestamps rise, up to the clock's, and those that records had are event times."""
    pieces, bodies, timestamps, headers, last = [], [], [], {}, first
    for batch in batches:
        [part] = parts_of(read(encode_batch(batch)))
        assert part.wire is not None
        start, risen = len(bodies), []
        for index, own in enumerate(batch.timestamps):
            last = max(last, min(own, now))
            risen.append(last)
            event = () if own == last else (Header(EVENT_TIME, b"%d" % own),)
            if has := (*part.headers.get(index, ()), *event):
                headers[start + index] = has
        pieces.append(ENCODING.place(part.wire.data, number + start, risen, True) or b"")
        bodies += part.bodies
        timestamps += risen
    columns = ENCODING.decode(b"".join(pieces), timestamps[0])
    assert (columns.bodies, list(columns.timestamps), columns.headers) == (bodies, timestamps, headers)
    assert columns.seq_nums == range(number, number + len(bodies))


@examples(most=60)
@given(produced(), st.lists(st.integers(0, 2**41), min_size=6, max_size=6).map(sorted), st.booleans())
def test_a_batch_gets_other_timestamps(batch: KafkaBatch, given: list[int], same: bool) -> None:
    timestamps = [given[0]] * len(batch) if same else given[: len(batch)]
    placed = read(ENCODING.place(kept(batch), 7, timestamps, False))
    assert (placed.base_offset, placed.dense, list(placed.timestamps)) == (7, True, timestamps)
    assert placed.append_time is (timestamps[0] == timestamps[-1])
    assert (placed.compression, placed.producer_id) == (batch.compression, batch.producer_id)
    assert (placed.keys, placed.values, placed.headers) == (batch.keys, batch.values, batch.headers)


def test_numbers_that_kafka_cannot_spell() -> None:
    data = kept(plain(b"a", b"b"))
    assert ENCODING.place(data, 2**63 - 3, [2**63 - 1] * 2, False) is not None
    assert ENCODING.place(data, 2**63 - 2, None, False) is None
    assert ENCODING.place(data, 0, [5, 2**63], False) is None


def test_the_epoch_of_a_clusters_leader_is_not_passed_on() -> None:
    """The gateway tells clients of one epoch only; a client that has seen a later one takes its metadata for stale."""
    [batch] = read_batches(encode_batch(replace(plain(b"a"), leader_epoch=7)))
    placed = keep(batch)
    assert placed is not None and batch.leader_epoch == 7
    assert read(placed.data).leader_epoch == -1


def test_a_batch_of_a_transaction_leaves_it() -> None:
    placed = read(kept(replace(plain(b"a"), transactional=True, producer_id=4, producer_epoch=1)))
    assert (placed.transactional, placed.producer_id, placed.values) == (False, 4, [b"a"])


@pytest.mark.parametrize(
    "batch",
    [
        replace(plain(b"a", b"b"), offsets=[0, 2]),
        replace(plain(b"a", b"b", b"c"), offsets=[1, 0, 2]),
        replace(plain(b"a"), next_offset=5),
        replace(plain(b"a"), control=True),
    ],
    ids=["gap", "order", "last", "control"],
)
def test_a_batch_whose_numbers_are_not_those_of_its_records_is_not_kept(batch: KafkaBatch) -> None:
    assert keep(read(encode_batch(batch))) is None


def test_a_batch_whose_header_lies_about_its_timestamps_is_not_kept() -> None:
    data = encode_batch(plain(b"a"))
    assert keep(read(resealed(data, header_of(data)._replace(newest=6)))) is None
    assert keep(read(resealed(data, header_of(data)._replace(attributes=0x40)))) is None, "a delete horizon"


@examples(most=60)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=6), st.integers(0, 2000), st.integers(0, 1))
def test_the_leading_batches_are_whole(sizes: list[int], most: int, least: int) -> None:
    batches = [encode_batch(plain(b"x" * size, b"")) for size in sizes]
    found, records = leading([b"".join(batches[:2]), *batches[2:]], most, least=least)
    count = records // 2
    assert b"".join(found) == b"".join(batches[:count]) and count >= least
    assert sum(map(len, found)) <= most or count == least
    assert count == len(batches) or sum(map(len, batches[: count + 1])) > most


def test_zstd_is_kept_from_clients_that_do_not_know_it() -> None:
    for codec in KafkaCompression:
        last = replace(plain(b"b"), compression=codec)
        wire = WireBytes(KAFKA_BATCHES, (encode_batch(plain(b"a")), encode_batch(last)))
        records = RecordBatch.from_wire(
            wire, lambda data, _: ENCODING.decode(data, 0), count=2, first_seq_num=0, metered=18
        )
        assert kept_in(records, zstd=True) == wire.pieces
        assert kept_in(records, zstd=False) == (None if codec is KafkaCompression.ZSTD else wire.pieces)


def test_the_encoding_is_found_by_its_name() -> None:
    assert installed_encoding(KAFKA_BATCHES) is ENCODING and ENCODING.name == KAFKA_BATCHES
    assert installed_encoding("kafka.other") is installed_encoding("other.batches") is None


ONE = encode_batch(plain(b"a"))


@pytest.mark.parametrize("payload", [b"", b"x" * BATCH_HEADER, ONE[:-1], ONE + b"x"])
def test_a_damaged_payload_is_refused(payload: bytes) -> None:
    with pytest.raises(OperationFailed) as refused:
        ENCODING.decode(payload, 0)
    assert refused.value.failure.code is FailureCode.BAD_FORMAT
