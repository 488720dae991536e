"""Records that are produced and fetched again, and the gaps between them."""

from __future__ import annotations

import google_crc32c
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.examples import examples
from support.kafka.own_headers import OWN_HEADERS

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.limits import MIB
from penstock.model.records import Header, Headers, WireBytes
from penstock_kafka.codec.batches import BATCH_HEADER, KafkaBatch, encode_batch, header_of
from penstock_kafka.codec.carrying import KEY, NULL
from penstock_kafka.codec.client_errors import broker_failure
from penstock_kafka.codec.client_records import read_fetched, to_produced
from penstock_kafka.codec.compression import KafkaCompression
from penstock_kafka.codec.kept import KAFKA_BATCHES
from penstock_kafka.codec.record_messages import AbortedTransaction

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=3).map(str.encode)
HEADERS = st.lists(st.builds(Header, NAMES, st.binary(max_size=3)), max_size=2).map(tuple)
KEYS = st.none() | st.binary(max_size=3)
COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"


def data(first: int, *values: bytes, producer: int = -1, **options: object) -> bytes:
    """Return a batch of these values; `offsets`: those of its records."""
    given = {"keys": [None] * len(values), "offsets": range(first, first + len(values))} | options
    return encode_batch(
        KafkaBatch(base_offset=first, producer_id=producer, values=list(values), timestamps=[5] * len(values), **given)  # type: ignore[arg-type]
    )


def fetched(content: bytes, start: int = 0, *aborted: AbortedTransaction) -> tuple[dict[int, bytes], int]:
    found, after = read_fetched(content, start, aborted)
    runs = [run.columns for run in found]
    for run in runs:
        assert list(run.seq_nums) == list(range(run.seq_nums[0], run.seq_nums[0] + len(run.bodies)))
    return {n: body for run in runs for n, body in zip(run.seq_nums, run.bodies, strict=True)}, after


@examples(most=100)
@given(st.lists(st.tuples(st.binary(max_size=5), HEADERS, KEYS), min_size=1, max_size=5), st.integers(0, 9))
def test_records_come_back_as_they_were_produced(records: list[tuple[bytes, Headers, bytes | None]], base: int) -> None:
    bodies = [body for body, _, _ in records]
    headers = {
        n: (*([] if key is None else [Header(KEY, key)]), *some)
        for n, (_, some, key) in enumerate(records)
        if some or key is not None
    }
    keys, values, named, _ = to_produced(bodies, headers)
    count = len(bodies)
    sent = KafkaBatch(
        base_offset=base,
        keys=keys,
        values=values,
        headers=named,
        timestamps=[7] * count,
        offsets=range(base, base + count),
    )
    runs, after = read_fetched(encode_batch(sent), base)
    [(run, kept)] = runs
    assert kept == WireBytes(KAFKA_BATCHES, (encode_batch(sent),))
    assert (run.bodies, run.headers, after) == (bodies, headers, base + count)


@examples(most=300)
@given(st.binary(max_size=1), OWN_HEADERS)
@example(b"", (Header(NULL, b""),))
def test_what_is_produced_can_be_read_again(body: bytes, headers: Headers) -> None:
    """With all its headers: those of the gateway's own come first."""
    try:
        keys, values, named, _ = to_produced([body], {0: headers})
    except OperationFailed as refused:
        assert refused.failure.code is FailureCode.NOT_REPRESENTABLE
        assert refused.failure.message.startswith("record 0 has a header named kafka-")
        assert any(name in (KEY, NULL) for name, _ in headers)
        return
    batch = KafkaBatch(keys=keys, values=values, headers=named, timestamps=[7], offsets=[0])
    [(run, _)], _ = read_fetched(encode_batch(batch), 0)
    assert run.bodies == [body]
    assert sorted(run.headers.get(0, ())) == sorted(headers)
    assert [one for one in run.headers.get(0, ()) if one.name == b"a"] == [one for one in headers if one.name == b"a"]


@pytest.mark.parametrize("headers", [((KEY, b"1"), (KEY, b"2")), ((NULL, b"value"),), ((NULL, b"x"), (b"a", b""))])
def test_headers_that_could_not_be_read_again_are_refused(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    with pytest.raises(OperationFailed, match="record 0 has a header named kafka-"):
        to_produced([b"body"], {0: tuple(Header(*header) for header in headers)})


def test_a_null_value_is_named() -> None:
    runs, _ = read_fetched(
        encode_batch(KafkaBatch(keys=[None], values=[None], timestamps=[1], offsets=[0])), 0, max_bytes=MIB
    )
    assert runs[0].columns.headers == {0: (Header(NULL, b"value"),)}


def test_compaction_leaves_gaps() -> None:
    """Records before the start are left out, and what is read next is behind the whole batch."""
    content = data(0, b"a", b"b", b"c", b"d", offsets=[0, 1, 5, 7], next_offset=10) + data(12, b"e")
    assert fetched(content, 1) == ({1: b"b", 5: b"c", 7: b"d", 12: b"e"}, 13)
    assert fetched(data(3, next_offset=9), 3) == ({}, 9)


@pytest.mark.parametrize("offsets", [(5, 3), (5, 5), (5, 9), (3, 6)], ids=str)
def test_a_broker_whose_offsets_fall(offsets: tuple[int, int]) -> None:
    """Records at one offset, or in another order than their offsets, would be numbered anew."""
    content = bytearray(data(5, b"a", b"b", offsets=(5, 6)))
    size = (len(content) - BATCH_HEADER) // 2  # of each record
    for index, offset in enumerate(offsets):
        content[BATCH_HEADER + index * size + 3] = 2 * (offset - 5) if offset >= 5 else -2 * (offset - 5) - 1
    content[17:21] = google_crc32c.value(bytes(content[21:])).to_bytes(4, "big")
    if offsets == (3, 6):
        assert fetched(bytes(content), 5) == ({6: b"b"}, 7), "what was passed already is left out"
        return
    with pytest.raises(OperationFailed, match="do not rise") as refused:
        fetched(bytes(content))
    assert refused.value.failure.code is FailureCode.BAD_FORMAT


def test_a_broker_that_repeats_a_batch() -> None:
    assert fetched(data(5, b"a", b"b") * 2) == ({5: b"a", 6: b"b"}, 7)
    with pytest.raises(OperationFailed, match="do not rise"):
        fetched(data((1 << 63) - 2, b"a", b"b"))


def compressed(first: int, count: int, value: bytes = b"x") -> bytes:
    return data(first, *[value] * count, compression=KafkaCompression.GZIP)


def portions(content: list[bytes]) -> list[int]:
    """Return how many records each answer has to a reader that asks for the batches behind what it has."""
    found, after = [], 0
    while after < sum(header_of(batch).records for batch in content):
        rest = [batch for batch in content if int.from_bytes(batch[:8], "big") + header_of(batch).records > after]
        records, after = fetched(b"".join(rest), after)
        found.append(len(records))
    return found


def test_small_records_that_are_well_compressed() -> None:
    """1 MiB has any number of them: they are decoded up to some number or size, and the next ones are asked for."""
    many = [compressed(first, 10_000) for first in range(0, 170_000, 10_000)]
    assert len(b"".join(many)) < MIB
    assert portions(many) == [50_000, 50_000, 50_000, 20_000]
    large = [compressed(first, 10, b"x" * 500_000) for first in range(0, 100, 10)]
    assert len(b"".join(large)) < MIB
    assert portions(large) == [40, 40, 20]
    assert portions([compressed(0, 100_000), compressed(100_000, 1)]) == [100_000, 1]


def test_a_batch_of_very_many_records_is_read_in_parts() -> None:
    """As brokers take it, which limit its bytes; each part is read from the same batch, which is kept for none."""
    content = [compressed(0, 250_000), data(250_000, b"after")]
    assert portions(content) == [100_000, 100_000, 50_000, 1]
    runs, after = read_fetched(b"".join(content), 220_000)
    assert ([len(run.columns.bodies) for run in runs], after) == ([30_000, 1], 250_001)
    assert [run.kept is None for run in runs] == [True, False]
    sparse = data(0, *[b"x"] * 150_000, offsets=range(0, 300_000, 2), next_offset=300_005)
    found, after = fetched(sparse, 1)
    assert ([*found], after) == ([*range(2, 200_002, 2)], 200_001)
    found, after = fetched(sparse, after)
    assert ([*found], after) == ([*range(200_002, 300_000, 2)], 300_005)
    assert fetched(sparse, 299_999) == ({}, 300_005)


def test_records_with_very_many_headers_are_read_in_parts() -> None:
    some = tuple((b"h%d" % number, b"") for number in range(5))
    content = data(0, *[b""] * 30_000, headers=dict.fromkeys(range(30_000), some)) + data(30_000, b"after")
    found, after = fetched(content)
    assert len(found) == after == 20_000
    assert fetched(content, after) == ({**dict.fromkeys(range(20_000, 30_000), b""), 30_000: b"after"}, 30_001)


def test_an_aborted_transaction_of_several_answers() -> None:
    """A broker names it in each answer that it reaches into."""
    content = [
        data(0, *[b""] * 60_000, producer=1, transactional=True),
        data(60_000, b"lost", producer=1, transactional=True),
        data(60_001, b"", producer=1, transactional=True, control=True, keys=[ABORT]),
        data(60_002, b"kept", producer=1, transactional=True),
    ]
    aborted = AbortedTransaction(producer_id=1, first_offset=0)
    assert fetched(b"".join(content), 0, aborted) == ({}, 60_000)
    assert fetched(b"".join(content[1:]), 60_000, aborted) == ({60_002: b"kept"}, 60_003)


def test_transactions() -> None:
    """Control records have numbers and are no records; those of an aborted transaction are left out up to its end."""
    content = b"".join(
        [
            data(0, b"kept", producer=1, transactional=True),
            data(1, b"lost", producer=2, transactional=True),
            data(2, b"plain"),
            data(3, b"", producer=1, transactional=True, control=True, keys=[COMMIT]),
            data(4, b"", producer=2, transactional=True, control=True, keys=[ABORT]),
            data(5, b"again", producer=2, transactional=True),
        ]
    )
    aborted = AbortedTransaction(producer_id=2, first_offset=1)
    assert fetched(content, 0, aborted) == ({0: b"kept", 2: b"plain", 5: b"again"}, 6)
    assert fetched(content, 3, aborted) == ({5: b"again"}, 6)


def test_a_broker_that_stamps() -> None:
    """Its time is that of the batch; the records keep what their producer said."""
    batch = KafkaBatch(append_time=True, keys=[None] * 2, values=[b"a", b"b"], timestamps=[3, 9], offsets=[0, 1])
    [(run, _)], _ = read_fetched(encode_batch(batch), 0)
    assert list(run.timestamps) == [9, 9]


@pytest.mark.parametrize(
    ("content", "start"),
    [
        (data(0, b"a", b"b"), 1),
        (data(0, b"a", b"b", offsets=[0, 2]), 0),
        (data(0, b"a", b"b", next_offset=4), 0),
    ],
    ids=["cut", "gap", "end"],
)
def test_batches_that_are_not_handed_out_as_they_are(content: bytes, start: int) -> None:
    runs, _ = read_fetched(content, start)
    assert runs and all(run.kept is None for run in runs)


@pytest.mark.parametrize("record", [{"headers": {1: ((b"", b"x"),)}}, {"values": [b"a", b"x" * MIB]}])
def test_a_record_that_no_stream_carries(record: dict[str, object]) -> None:
    """Those in the batches before it are read; then it is named."""
    columns = {"keys": [None] * 2, "values": [b"a", b"b"], "timestamps": [1] * 2, "offsets": [4, 5], **record}
    content = data(3, b"before") + encode_batch(KafkaBatch(base_offset=4, **columns))  # type: ignore[arg-type]
    assert fetched(content, 3) == ({3: b"before"}, 4)
    with pytest.raises(OperationFailed) as refused:
        read_fetched(content[len(data(3, b"before")) :], 4)
    assert refused.value.failure.code is FailureCode.NOT_REPRESENTABLE
    assert "record 5" in refused.value.failure.message


def test_errors_of_brokers() -> None:
    assert broker_failure(6, "here").message == "here: NOT_LEADER_OR_FOLLOWER"
    unknown = broker_failure(9999, "here", "why")
    assert (unknown.code, unknown.message) == (FailureCode.UPSTREAM_FAULT, "here: error 9999 (why)")
