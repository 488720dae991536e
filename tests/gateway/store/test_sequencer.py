"""Conditions, numbers and timestamps of appends (S2 fact sheet 5.2, 5.3; S3P 0.2.0, section 12)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.store import NOW, Fails, appending, fence, trim_record

from penstock.store.heads import StreamHead
from penstock.store.sequencer import Sequenced, sequence, validate
from penstock_codecs.failures import FailureCode
from penstock_codecs.model import U64_MAX, Header, RecordId, next_record_id
from penstock_codecs.operations import Append
from penstock_codecs.s2.protobuf import decode_records
from penstock_codecs.streams import DEFAULT_STREAM_CONFIG, StreamConfig, TimestampingMode

NEW = StreamHead(StreamConfig())
UNCAPPED = StreamConfig(timestamping_uncapped=True)
REQUIRE = StreamConfig(timestamping_mode=TimestampingMode.CLIENT_REQUIRE)
ARRIVAL = StreamConfig(timestamping_mode=TimestampingMode.ARRIVAL)


def decide(append: Append, head: StreamHead = NEW, layer: StreamConfig = NEW.config, now: int = NOW) -> Sequenced:
    return sequence(append, validate(append), head, layer.over(DEFAULT_STREAM_CONFIG), now)


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
