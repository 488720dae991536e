"""Conditions, numbers and timestamps of appends (S2 fact sheet 5.2, 5.3; S3P 0.2.0, section 12)."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.store import NOW, STREAM, Fails, appending, fence, trim_record

from penstock.model.byte_layout import Layout, runs_of, to_bytes
from penstock.model.byte_operations import NO_ATTRIBUTE, AppendBytes, WriterPosition
from penstock.model.envelope import wrap
from penstock.model.failures import FailureCode
from penstock.model.operations import Append
from penstock.model.record_encoding import decode_records
from penstock.model.records import U64_MAX, Header, RecordBatch, RecordId, next_record_id
from penstock.model.streams import DEFAULT_STREAM_CONFIG, StreamConfig, TimestampingMode
from penstock.store.batches import BatchRow, ByteSpan
from penstock.store.heads import StreamHead
from penstock.store.sequencer import check_bytes, sequence, sequence_bytes, validate

NEW = StreamHead(StreamConfig())
UNCAPPED = StreamConfig(timestamping_uncapped=True)
REQUIRE = StreamConfig(timestamping_mode=TimestampingMode.CLIENT_REQUIRE)
ARRIVAL = StreamConfig(timestamping_mode=TimestampingMode.ARRIVAL)


class Decided(NamedTuple):
    batch: RecordBatch
    row: BatchRow
    span: ByteSpan
    head: StreamHead


def decide(
    append: Append,
    head: StreamHead = NEW,
    layer: StreamConfig = NEW.config,
    now: int = NOW,
    envelopes: Layout = Layout.PLAIN,
) -> Decided:
    (part,), after = sequence(append, validate(append), head, layer.over(DEFAULT_STREAM_CONFIG), now, envelopes)
    assert part.last_id == after.last_id
    return Decided(part.batch, part.row, part.span, after)


def stamps(append: Append, head: StreamHead = NEW, layer: StreamConfig = NEW.config, now: int = NOW) -> list[int]:
    return list(decide(append, head, layer, now).batch.columns.timestamps)


def head_at(ms: int, seq: int = 0, next_seq: int = 7) -> StreamHead:
    return NEW._replace(next_seq=next_seq, last_id=RecordId(ms, seq))


class TestTimestamps:
    def test_without_any_the_arrival_time_is_taken(self) -> None:
        assert stamps(appending(b"a", b"b")) == [NOW, NOW]

    def test_clients_are_raised_to_the_maximum_so_far(self) -> None:
        assert stamps(appending(b"a", b"b", b"c", timestamps=[50, 40, 60])) == [50, 50, 60]
        assert stamps(appending(b"a", b"b", timestamps=[5, 15]), head_at(10)) == [10, 15]

    def test_a_missing_one_among_them_is_the_arrival_time(self) -> None:
        assert stamps(appending(b"a", b"b", b"c", timestamps=[50, None, 60])) == [50, NOW, NOW]

    def test_the_future_is_capped_unless_uncapped(self) -> None:
        append = appending(b"a", timestamps=[NOW + 5000])
        assert stamps(append) == [NOW]
        assert stamps(append, layer=UNCAPPED) == [NOW + 5000]
        assert stamps(appending(b"a", timestamps=[U64_MAX]), layer=UNCAPPED) == [U64_MAX]

    def test_require_refuses_missing_ones(self) -> None:
        assert stamps(appending(b"a", timestamps=[5]), layer=REQUIRE) == [5]
        for timestamps in (None, [5, None]):
            append = appending(*[b"x"] * len(timestamps or [0]), timestamps=timestamps)
            with Fails(FailureCode.INVALID, "record timestamp was required but was missing"):
                decide(append, layer=REQUIRE)

    def test_arrival_ignores_the_clients(self) -> None:
        assert stamps(appending(b"a", timestamps=[5]), layer=ARRIVAL) == [NOW]

    def test_a_clock_that_goes_back_does_not_take_the_stream_with_it(self) -> None:
        sequenced = decide(appending(b"a", b"b"), head_at(NOW + 10, seq=3), now=NOW)
        assert list(sequenced.batch.columns.timestamps) == [NOW + 10, NOW + 10]
        assert list(sequenced.batch.record_ids()) == [RecordId(NOW + 10, 4), RecordId(NOW + 10, 5)]

    @pytest.mark.parametrize("layer", [NEW.config, UNCAPPED, REQUIRE, ARRIVAL])
    def test_an_exact_one_is_taken_as_it_is_whatever_the_mode(self, layer: StreamConfig) -> None:
        assert stamps(appending(b"a", b"b", exact=NOW + 99), layer=layer) == [NOW + 99, NOW + 99]
        assert stamps(appending(b"a", exact=10), head_at(10), layer) == [10]
        with Fails(FailureCode.NON_MONOTONIC_TIMESTAMP) as fails:
            decide(appending(b"a", exact=9), head_at(10), layer)
        assert fails.failure.details == {"last": 10}

    def test_zero_is_a_timestamp(self) -> None:
        assert list(decide(appending(b"a", exact=0)).batch.record_ids()) == [RecordId(0, 0)]


class TestConditions:
    def test_match_is_the_next_number_also_when_that_is_zero(self) -> None:
        decide(appending(b"a", match=0))
        decide(appending(b"a", match=7), head_at(1))
        for wrong in (0, 6, 8, U64_MAX):
            with Fails(FailureCode.SEQ_NUM_MISMATCH) as fails:
                decide(appending(b"a", match=wrong), head_at(1))
            assert fails.failure.details == {"seq_num_mismatch": 7}

    def test_a_token_must_be_the_current_one_and_none_always_passes(self) -> None:
        fenced = NEW._replace(fencing_token="tok")
        decide(appending(b"a", token=""))
        decide(appending(b"a"), fenced)
        decide(appending(b"a", token="tok"), fenced)
        for wrong, head, current in (("x", NEW, ""), ("", fenced, "tok"), ("to", fenced, "tok")):
            with Fails(FailureCode.FENCING_TOKEN_MISMATCH) as fails:
                decide(appending(b"a", token=wrong), head)
            assert fails.failure.details == {"fencing_token_mismatch": current}

    def test_fencing_wins_over_match_and_match_over_timestamps(self) -> None:
        with Fails(FailureCode.FENCING_TOKEN_MISMATCH):
            decide(appending(b"a", token="x", match=3))
        with Fails(FailureCode.SEQ_NUM_MISMATCH):
            decide(appending(b"a", match=3, exact=1), head_at(10))

    def test_numbers_run_out(self) -> None:
        almost = head_at(1, next_seq=U64_MAX - 2)
        assert decide(appending(b"a", b"b"), almost).head.next_seq == U64_MAX
        with Fails(FailureCode.INVALID, "no sequence numbers left"):
            decide(appending(b"a", b"b", b"c"), almost)

    def test_a_sealed_stream_takes_nothing_whatever_else_is_wrong(self) -> None:
        sealed = head_at(10)._replace(sealed=True, fencing_token="tok")
        for append in (appending(b"a"), appending(b"a", token="x", match=3)):
            with Fails(FailureCode.STREAM_SEALED):
                decide(append, sealed)

    def test_an_empty_batch_is_refused(self) -> None:
        with Fails(FailureCode.INVALID, "must not be empty"):
            decide(appending())


class TestCommands:
    def test_a_fence_is_checked_against_the_old_token_and_counts_afterwards(self) -> None:
        after = decide(fence(b"tok", token="")).head
        assert (after.fencing_token, after.next_seq) == ("tok", 1)
        assert decide(fence(b"", token="tok"), after).head.fencing_token == ""

    def test_trim_is_bounded_by_its_own_number_and_never_goes_back(self) -> None:
        head = head_at(1, next_seq=10)
        assert decide(trim_record(4), head).head.trim_point == 4
        assert decide(trim_record(U64_MAX), head).head.trim_point == 11
        assert decide(trim_record(4), head._replace(trim_point=6)).head.trim_point == 6

    def test_several_in_a_batch_take_effect_in_order(self) -> None:
        commands = {index: (Header(b"", b"fence"),) for index in (0, 2)}
        assert decide(appending(b"one", b"body", b"two", headers=commands)).head.fencing_token == "two"

    def test_broken_ones_are_refused(self) -> None:
        for name, payload in ((b"bogus", b""), (b"trim", bytes(7)), (b"fence", b"x" * 37), (b"fence", b"\xff")):
            with Fails(FailureCode.INVALID):
                decide(appending(payload, headers={0: (Header(b"", name),)}))


class TestOffsets:
    """Lengths and offsets of records in bytes (see `byte_layout`)."""

    def test_each_record_takes_its_event_behind_all_before_it(self) -> None:
        after = decide(appending(b"ab", b"c")).head
        assert after.next_offset == 8 + 2 + 8 + 1
        _, _, span, after = decide(appending(b"d"), after)
        assert (span, after.next_offset) == (ByteSpan(19, 28, Layout.PLAIN), 28)
        assert after.last_modified == NOW

    def test_what_segment_clients_cannot_see_takes_nothing(self) -> None:
        span = decide(fence(b"tok"), head_at(1)._replace(next_offset=7)).span
        assert span == ByteSpan(7, 7, Layout.PLAIN)
        headers = {0: (Header(b"name", b"value"),)}
        assert decide(appending(b"x", b"", headers=headers)).span == ByteSpan(0, 9, Layout.PLAIN)

    @pytest.mark.parametrize(
        ("body", "headers"),
        [(b"x", (Header(b"name", b"value"),)), (b"", ()), (wrap((), b""), ())],
        ids=["headers", "empty", "looks like one"],
    )
    def test_envelopes_are_kept_with_the_batches_that_need_them(self, body: bytes, headers: tuple[Header, ...]) -> None:
        envelopes = Layout.ENVELOPE_HEADERS | Layout.ENVELOPE_EMPTY
        append = appending(b"before", body, headers={1: headers} if headers else {})
        batch, _, span, _ = decide(append, envelopes=envelopes)
        assert span.layout == envelopes
        assert span.end_offset == len(to_bytes(batch.columns, envelopes)) == 8 + 6 + 8 + len(wrap(headers, body))
        assert decide(appending(b"x"), envelopes=envelopes).span == ByteSpan(0, 9, Layout.PLAIN)


class TestBytes:
    WRITER = bytes(range(16))

    def appending(self, position: int | None = None, offset: int | None = None) -> AppendBytes:
        writer = None if position is None else WriterPosition(self.WRITER, position)
        return AppendBytes(STREAM, b"data", writer, offset)

    def test_a_writer_only_goes_forward_and_may_leave_gaps(self) -> None:
        check_bytes(self.appending(), NEW, NO_ATTRIBUTE)
        check_bytes(self.appending(-5), NEW, NO_ATTRIBUTE)
        check_bytes(self.appending(8), NEW, 5)
        for stale in (5, 4, NO_ATTRIBUTE):
            with Fails(FailureCode.STALE_WRITER_POSITION) as fails:
                check_bytes(self.appending(stale), NEW, 5)
            assert fails.failure.details == {"position": 5}

    def test_a_writer_goes_on_from_where_it_says(self) -> None:
        def appending(after: int) -> AppendBytes:
            return AppendBytes(STREAM, b"data", WriterPosition(self.WRITER, 8, after))

        check_bytes(appending(5), NEW, 5)
        check_bytes(appending(NO_ATTRIBUTE), NEW, NO_ATTRIBUTE)
        for after, position in ((4, 5), (6, 5), (NO_ATTRIBUTE, 5), (5, NO_ATTRIBUTE), (5, 8)):
            with Fails(FailureCode.STALE_WRITER_POSITION) as fails:
                check_bytes(appending(after), NEW, position)
            assert fails.failure.details == {"position": position}

    def test_an_offset_is_the_length(self) -> None:
        head = NEW._replace(next_offset=7)
        check_bytes(self.appending(offset=7), head, NO_ATTRIBUTE)
        for wrong in (0, 6, 8):
            with Fails(FailureCode.OFFSET_MISMATCH) as fails:
                check_bytes(self.appending(offset=wrong), head, NO_ATTRIBUTE)
            assert fails.failure.details == {"offset": 7}

    def test_sealed_wins_over_stale_and_stale_over_the_offset(self) -> None:
        with Fails(FailureCode.STREAM_SEALED):
            check_bytes(self.appending(1, offset=9), NEW._replace(sealed=True), 5)
        with Fails(FailureCode.STALE_WRITER_POSITION):
            check_bytes(self.appending(1, offset=9), NEW, 5)

    def test_several_batches_follow_one_another_in_every_respect(self) -> None:
        events = [bytes([at % 256]) * 5 for at in range(2500)]
        data = b"".join(bytes(4) + len(event).to_bytes(4, "big") + event for event in events)
        head = head_at(NOW + 5, seq=2, next_seq=10)._replace(next_offset=100)
        parts, after = sequence_bytes(runs_of(data, Layout.PLAIN), head, NOW)
        assert [part.row.records for part in parts] == [1000, 1000, 500]
        seq, offset, seen = 10, 100, b""
        for batch, row, span, last_id in parts:
            assert (batch.first_seq_num, row.first_seq, span.first_offset) == (seq, seq, offset)
            ids = [RecordId(NOW + 5, number - 7) for number in range(seq, row.last_seq + 1)]
            assert list(batch.record_ids()) == ids
            assert last_id == ids[-1]
            assert (row.layout, row.payload) == (span.layout, to_bytes(batch.columns, span.layout))
            seen += to_bytes(batch.columns, span.layout)
            seq, offset = row.last_seq + 1, span.end_offset
        assert seen == data
        assert (after.next_seq, after.next_offset, after.last_id) == (2510, 100 + len(data), parts[-1].last_id)

    def test_they_are_refused_where_numbers_run_out_and_where_it_is_sealed(self) -> None:
        runs = runs_of(bytes(8) * 3, Layout.PLAIN)
        assert sequence_bytes(runs, head_at(1, next_seq=U64_MAX - 3), NOW).head.next_seq == U64_MAX
        with Fails(FailureCode.INVALID, "no sequence numbers left"):
            sequence_bytes(runs, head_at(1, next_seq=U64_MAX - 2), NOW)
        with Fails(FailureCode.STREAM_SEALED):
            sequence_bytes(runs, NEW._replace(sealed=True), NOW)


@given(
    st.lists(
        st.tuples(
            st.lists(st.one_of(st.none(), st.integers(0, 12), st.just(U64_MAX)), min_size=1, max_size=6),
            st.booleans(),
            st.integers(0, 12),
        ),
        max_size=6,
    )
)
def test_whatever_comes_numbers_are_dense_and_identifiers_rise(
    appends: list[tuple[list[int | None], bool, int]],
) -> None:
    head, last, number = NEW, None, 0
    for timestamps, uncapped, now in appends:
        layer = UNCAPPED if uncapped else NEW.config
        batch, row, _, head = decide(appending(*[b"x"] * len(timestamps), timestamps=timestamps), head, layer, now)
        for record, found in zip(batch.records(), batch.record_ids(), strict=True):
            assert record.seq_num == number
            assert last is None or record.timestamp >= last.ms
            assert found == next_record_id(last, record.timestamp)
            last, number = found, number + 1
        assert head.last_id == last and head.next_seq == number == row.last_seq + 1
        assert list(decode_records(row.payload).timestamps) == list(batch.columns.timestamps)
