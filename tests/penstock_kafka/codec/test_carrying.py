"""Keys, nulls and headers as streams carry them, and back."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.examples import examples
from support.kafka.own_headers import OWN_HEADERS

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.records import EVENT_TIME, Columns, Header, Headers, RecordBatch
from penstock_kafka.codec.batches import KafkaBatch, KafkaHeaders, read_batches
from penstock_kafka.codec.carrying import KEY, NULL, encoded_records, parts_of

NULLABLE = st.none() | st.binary(max_size=5)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=3).map(str.encode)
RECORDS = st.lists(
    st.tuples(NULLABLE, NULLABLE, st.lists(st.tuples(NAMES, NULLABLE), max_size=3).map(tuple)), min_size=1, max_size=5
)


def batch_of(records: list[tuple[bytes | None, bytes | None, KafkaHeaders]]) -> KafkaBatch:
    return KafkaBatch(
        keys=[key for key, _, _ in records],
        values=[value for _, value, _ in records],
        headers={index: headers for index, (*_, headers) in enumerate(records) if headers},
        timestamps=[1000] * len(records),
        offsets=range(len(records)),
    )


def stored(batch: KafkaBatch) -> RecordBatch:
    [part] = parts_of(batch)
    numbers = range(7, 7 + len(part.bodies))
    return RecordBatch(Columns(numbers, [1000] * len(part.bodies), part.bodies, part.headers))


@examples(most=100)
@given(RECORDS)
def test_a_record_comes_back_as_it_was_produced(records: list[tuple[bytes | None, bytes | None, KafkaHeaders]]) -> None:
    batch = batch_of(records)
    found = list(read_batches(encoded_records(stored(batch))))
    assert [key for one in found for key in one.keys] == list(batch.keys)
    assert [value for one in found for value in one.values] == list(batch.values)
    assert [offset for one in found for offset in one.offsets] == list(range(7, 7 + len(records)))
    [one] = found
    assert one.headers == batch.headers


def test_the_headers_that_carry_keys_and_nulls() -> None:
    nulls = batch_of([(b"k", None, ((b"a", None), (b"b", b""))), (None, b"plain", ()), (b"", b"", ())])
    columns = stored(nulls).columns
    assert columns.headers == {
        0: (Header(KEY, b"k"), Header(NULL, b"value,0"), Header(b"a", b""), Header(b"b", b"")),
        2: (Header(KEY, b""),),
    }
    assert columns.bodies == [b"", b"plain", b""]


def test_records_of_other_clients_have_the_key_that_they_name() -> None:
    headers = {0: (Header(b"a", b"1"), Header(KEY, b"k"), Header(KEY, b"second"), Header(NULL, b"value"))}
    [one] = read_batches(encoded_records(RecordBatch(Columns([3], [5], [b"body"], headers))))
    assert (one.keys, one.values) == ([b"k"], [b"body"]), "a body that is there is not null"
    assert one.headers == {0: ((b"a", b"1"), (KEY, b"second"), (NULL, b"value"))}


@examples(most=300)
@given(st.binary(max_size=1), OWN_HEADERS)
@example(b"", (Header(NULL, b""),))
def test_no_header_of_another_client_is_lost(body: bytes, headers: Headers) -> None:
    [one] = read_batches(encoded_records(RecordBatch(Columns([3], [5], [body], {0: headers}))))
    [key], [value], named = one.keys, one.values, one.headers.get(0, ())
    nulls = [b"value"] * (value is None) + [b"%d" % at for at, (_, content) in enumerate(named) if content is None]
    found = [(name, content or b"") for name, content in named]
    found += [(KEY, key)] if key is not None else []
    found += [(NULL, b",".join(nulls))] if nulls else []
    assert sorted(found) == sorted(headers)
    assert (value or b"") == body


def test_command_records_are_control_records() -> None:
    headers = {1: (Header(b"", b"fence"),)}
    batch = RecordBatch(Columns([0, 1, 2], [5, 5, 5], [b"a", b"token", b"b"], headers))
    first, command, last = read_batches(encoded_records(batch))
    assert [one.control for one in (first, command, last)] == [False, True, False]
    assert [list(one.offsets) for one in (first, command, last)] == [[0], [1], [2]]
    assert command.keys == [b"\0\0\xff\xff"], "version 0, and the type of unknown ones"


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        (((KEY, b"x"),), "record 1 has a header named kafka-key, which stands for its own key, nulls or time"),
        (((NULL, b"x"),), "record 1 has a header named kafka-null"),
        (((EVENT_TIME, b"5"),), "record 1 has a header named penstock-event-time"),
        (((b"", b"fence"),), "record 1 has a header without a name, which streams keep for commands"),
        (((b"ok", b""), (b"", None)), "record 1 has a header without a name"),
    ],
)
def test_headers_that_cannot_be_carried_are_refused(headers: KafkaHeaders, why: str) -> None:
    with pytest.raises(OperationFailed) as failed:
        parts_of(batch_of([(None, b"fine", ()), (None, b"wrong", headers)]))
    failure = failed.value.failure
    assert failure.message.startswith(why) and failure.code is FailureCode.NOT_REPRESENTABLE
    assert failure.details == {"index": 1}


def test_a_header_name_that_is_not_text_is_refused() -> None:
    batch = RecordBatch(Columns([3], [5], [b"body"], {0: (Header(b"\xff", b""),)}))
    with pytest.raises(OperationFailed, match="record 3 has a header whose name is not UTF-8"):
        encoded_records(batch)


def test_a_large_batch_is_appended_in_parts() -> None:
    parts = parts_of(batch_of([(None, b"x" * 1000, ())] * 2500), skip=1)
    assert [(part.first, len(part.bodies)) for part in parts] == [(1, 1000), (1001, 1000), (2001, 499)]
    parts = parts_of(batch_of([(None, b"x" * 600_000, ())] * 3))
    assert [(part.first, part.metered) for part in parts] == [(0, 600_008), (1, 600_008), (2, 600_008)]
    with pytest.raises(OperationFailed, match="record 0 has 1048577 bytes with its headers"):
        parts_of(batch_of([(None, b"x" * 1_048_569, ())]))
