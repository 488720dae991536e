"""A prepared decision equals what the store would have decided, or it is decided anew."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.examples import examples
from support.store import NOW, STREAM, Fails, appending, fence

from penstock.store.heads import StreamHead
from penstock.store.optimistic import KnownHead, PreparedAppend, accept_if_current, again, prepare
from penstock.store.sequencer import sequence
from penstock_codecs.byte_layout import Layout
from penstock_codecs.failures import FailureCode
from penstock_codecs.model import U64_MAX, Header, RecordId
from penstock_codecs.operations import Append
from penstock_codecs.streams import DEFAULT_STREAM_CONFIG, StreamConfig, TimestampingMode

EXAMPLES = examples(share=4, least=10)
"""One takes 10 ms."""
HEADS = st.builds(
    StreamHead,
    st.just(StreamConfig()),
    st.integers(0, 1 << 62),
    st.none() | st.builds(RecordId, st.integers(NOW - 3, NOW + 3), st.integers(0, 5)),
    next_offset=st.integers(0, 1 << 40),
    fencing_token=st.just("tok"),
    trim_point=st.integers(0, 3),
    alive=st.just(True),
    sealed=st.just(False),
)
HEADERS = st.tuples(st.builds(Header, st.binary(min_size=1, max_size=3), st.binary(max_size=3)))


@st.composite
def appends(draw: st.DrawFn) -> Append:
    """Without timestamps and commands."""
    bodies = draw(st.lists(st.binary(max_size=20), min_size=1, max_size=5))
    headers = draw(st.dictionaries(st.integers(0, len(bodies) - 1), HEADERS, max_size=2))
    return appending(*bodies, headers=headers)


def seen(append: Append, head: StreamHead, config: StreamConfig = DEFAULT_STREAM_CONFIG) -> PreparedAppend | None:
    found = prepare(append, KnownHead.of(head, config), NOW, Layout.PLAIN, 7)
    return None if found is None else found[0]


@EXAMPLES
@given(appends(), HEADS, st.sampled_from([Layout.PLAIN, Layout.ENVELOPE_HEADERS | Layout.ENVELOPE_EMPTY]))
def test_it_is_what_the_store_decides(append: Append, head: StreamHead, envelopes: Layout) -> None:
    decided = sequence(append, (), head, DEFAULT_STREAM_CONFIG, NOW, envelopes)
    found = prepare(append, KnownHead.of(head, DEFAULT_STREAM_CONFIG), NOW, envelopes, 7)
    assert found is not None
    prepared, known = found
    taken = accept_if_current(prepared, head, DEFAULT_STREAM_CONFIG)
    assert taken is not None and taken.head == decided.head
    ((batch, *part),), ((wanted, *expected),) = taken.parts, decided.parts
    assert part == expected
    assert list(batch.records()) == list(wanted.records())
    assert (batch.metered, batch.first_id, batch.wire) == (wanted.metered, wanted.first_id, wanted.wire)
    assert known == KnownHead.of(decided.head, DEFAULT_STREAM_CONFIG)


@EXAMPLES
@given(appends(), HEADS)
def test_an_append_prepared_on_an_old_head_is_the_same_append(append: Append, head: StreamHead) -> None:
    prepared = seen(append, head)
    assert prepared is not None
    for other in (
        head._replace(next_seq=head.next_seq + 1),
        head._replace(last_id=RecordId(NOW + 9, 0)),
        head._replace(next_offset=head.next_offset + 1),
    ):
        assert accept_if_current(prepared, other, DEFAULT_STREAM_CONFIG) is None
    anew = again(prepared, STREAM)
    assert (anew.bodies, dict(anew.headers), anew.metered) == (append.bodies, dict(append.headers), append.metered)
    assert anew.timestamps is None


def test_another_timestamping_is_another_decision() -> None:
    prepared = seen(appending(b"x"), StreamHead(StreamConfig()))
    assert prepared is not None
    config = StreamConfig(timestamping_mode=TimestampingMode.ARRIVAL).resolve(None)
    assert accept_if_current(prepared, StreamHead(StreamConfig()), config) is None


@pytest.mark.parametrize(
    "append",
    [
        appending(),
        appending(b"x", timestamps=[NOW]),
        appending(b"x", exact=NOW),
        fence(b"tok"),
    ],
)
def test_what_only_the_store_can_decide(append: Append) -> None:
    assert seen(append, StreamHead(StreamConfig())) is None


def test_numbers_and_required_timestamps_are_the_stores_to_refuse() -> None:
    assert seen(appending(b"x", b"y"), StreamHead(StreamConfig(), next_seq=U64_MAX - 1)) is None
    config = StreamConfig(timestamping_mode=TimestampingMode.CLIENT_REQUIRE).resolve(None)
    assert seen(appending(b"x"), StreamHead(StreamConfig()), config) is None


@pytest.mark.parametrize(
    ("change", "head", "code"),
    [
        ({"match_seq_num": 1}, {}, FailureCode.SEQ_NUM_MISMATCH),
        ({"fencing_token": "other"}, {}, FailureCode.FENCING_TOKEN_MISMATCH),
        ({}, {"sealed": True}, FailureCode.STREAM_SEALED),
    ],
)
def test_conditions_are_those_of_the_head_that_is(
    change: dict[str, object], head: dict[str, object], code: FailureCode
) -> None:
    append = replace(appending(b"x"), **change)  # type: ignore[arg-type]
    prepared = seen(append, StreamHead(StreamConfig()))
    assert prepared is not None
    with Fails(code):
        accept_if_current(prepared, StreamHead(StreamConfig(), **head), DEFAULT_STREAM_CONFIG)  # type: ignore[arg-type]
