"""Records as bytes and back: bytes that a segment client appends are read unchanged."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.model.byte_events import join_events, split_events
from penstock.model.byte_layout import (
    MAX_BODY,
    MOST_EMPTY,
    Layout,
    Run,
    byte_length,
    event_of,
    features_of,
    is_left_out,
    runs_of,
    starts_of,
    to_bytes,
)
from penstock.model.envelope import ENVELOPE_MARK, wrap
from penstock.model.features import Feature
from penstock.model.limits import MAX_RECORD_HEADERS, MIB
from penstock.model.records import NO_HEADERS, Columns, Header, Headers, metered_size

ALL = Layout.ENVELOPE_HEADERS | Layout.ENVELOPE_EMPTY | Layout.ENVELOPE_COMMANDS
PLAIN_HEADERS = (Header(b"k", b"v"),)
FENCE = (Header(b"", b"fence"),)

ENVELOPES = st.lists(st.sampled_from(list(ALL)), unique=True).map(lambda bits: Layout(sum(bits)))
HEADERS = st.one_of(
    st.just(()), st.just(FENCE), st.lists(st.builds(Header, st.binary(max_size=2), st.binary(max_size=2)), max_size=2)
).map(tuple)
BODIES = st.one_of(
    st.just(b""),
    st.binary(max_size=6),
    st.builds(ENVELOPE_MARK.__add__, st.binary(max_size=6)),
    st.builds(wrap, HEADERS, st.one_of(st.binary(max_size=4), st.just(ENVELOPE_MARK), st.just(wrap((), b"")))),
)
EVENTS = st.lists(BODIES, max_size=12)
RECORDS = st.one_of(
    st.tuples(st.just(()), BODIES),
    st.tuples(st.just(FENCE), st.text(max_size=4).map(str.encode)),
    st.tuples(st.lists(st.builds(Header, st.binary(min_size=1, max_size=2), BODIES), max_size=2).map(tuple), BODIES),
)
"""Records that an S2 client can append."""


def _columns(bodies: list[bytes], headers: Mapping[int, Headers] = NO_HEADERS) -> Columns:
    return Columns(range(len(bodies)), [0] * len(bodies), bodies, headers)


def _together(runs: list[Run]) -> bytes:
    return b"".join(to_bytes(_columns(run.bodies, run.headers), run.layout) for run in runs)


def _check(data: bytes, envelopes: Layout) -> list[Run]:
    """The laws that hold for all bytes; gives the runs."""
    runs = runs_of(data, envelopes)
    assert _together(runs) == data
    for run in runs:
        layout, bodies, headers = run.layout, run.bodies, run.headers
        assert 1 <= len(bodies) <= 1000
        assert metered_size(bodies, headers) <= MIB
        assert layout in (Layout.RAW, Layout.SENT, Layout.SENT | envelopes)
        assert set(headers) <= set(range(len(bodies)))
        columns = _columns(bodies, headers)
        assert byte_length(columns, layout) == len(to_bytes(columns, layout))
        assert run.data in (None, to_bytes(columns, layout))
        assert run.data is not None or envelopes.envelopes
    return runs


@given(st.binary(max_size=60), ENVELOPES)
@example(b"", ALL)
@example(bytes(7), ALL)
@example(bytes(8), ALL)
def test_any_bytes_come_back(data: bytes, envelopes: Layout) -> None:
    _check(data, envelopes)


@given(EVENTS, ENVELOPES, st.binary(max_size=9))
def test_events_come_back(bodies: list[bytes], envelopes: Layout, behind: bytes) -> None:
    _check(join_events(bodies), envelopes)
    _check(join_events(bodies) + behind, envelopes)


def _apart(records: list[tuple[Headers, bytes]]) -> Columns:
    return _columns([body for _, body in records], {at: some for at, (some, _) in enumerate(records) if some})


@given(st.lists(st.tuples(HEADERS, BODIES), max_size=8), ENVELOPES)
def test_the_bytes_of_records_are_those_of_each(records: list[tuple[Headers, bytes]], envelopes: Layout) -> None:
    for layout in (envelopes, envelopes | Layout.SENT):
        data = to_bytes(_apart(records), layout)
        assert data == b"".join(event_of(headers, body, layout) for headers, body in records)
        assert byte_length(_apart(records), layout) == len(data)
        starts = starts_of(_apart(records), layout)
        for (headers, body), start, end in zip(records, starts, starts[1:], strict=False):
            assert data[start:end] == event_of(headers, body, layout)
        assert starts[-1] == len(data)


@given(st.lists(RECORDS, max_size=8))
def test_records_that_are_copied_are_the_same(records: list[tuple[Headers, bytes]]) -> None:
    """Records enveloped for a segment client are unwrapped when a segment client appends them."""
    runs = _check(to_bytes(_apart(records), ALL), ALL)
    assert [(run.headers.get(at, ()), body) for run in runs for at, body in enumerate(run.bodies)] == records


@pytest.mark.parametrize("envelopes", [Layout.PLAIN, ALL])
def test_plain_events_are_one_run(envelopes: Layout) -> None:
    bodies = [b"event %d" % number for number in range(1000)]
    assert runs_of(join_events(bodies), envelopes) == [Run(Layout.SENT, bodies, {})]


@pytest.mark.parametrize("envelopes", [Layout.PLAIN, ALL])
@pytest.mark.parametrize("marked", [b"", wrap(PLAIN_HEADERS, b"")])
def test_many_small_events(envelopes: Layout, marked: bytes) -> None:
    bodies = [b"event %d" % number for number in range(10_000)]
    data = join_events([*bodies, *([marked] if marked else [])])
    runs = _check(data, envelopes)
    assert [len(run.bodies) for run in runs][:10] == [1000] * 10
    assert [body for run in runs for body in run.bodies][:10_000] == bodies


def test_what_is_cut_is_raw_throughout() -> None:
    data = join_events([b"whole"]) + bytes(5)
    assert runs_of(data, ALL) == [Run(Layout.RAW, [data], {})]


@pytest.mark.parametrize("envelopes", [Layout.PLAIN, ALL])
def test_many_empty_events_are_bytes_of_zero(envelopes: Layout) -> None:
    few, many = bytes(8 * MOST_EMPTY), bytes(8 * (MOST_EMPTY + 1))
    event = join_events([b"event"])
    assert [len(run.bodies) for run in _check(event + few, envelopes)] == [1000, 1]
    assert runs_of(event + many, envelopes) == [Run(Layout.RAW, [event + many], {})]
    assert [len(run.bodies[0]) for run in _check(bytes(2 * MIB), envelopes)] == [MAX_BODY, MAX_BODY, 16]


def test_large_raw_bytes_are_raw_pieces() -> None:
    data = bytes([255]) * (2 * MIB)
    assert [len(run.bodies[0]) for run in _check(data, ALL)] == [MAX_BODY, MAX_BODY, 16]


@pytest.mark.parametrize("envelopes", [Layout.PLAIN, ALL])
def test_a_large_event_is_raw_pieces_between_records(envelopes: Layout) -> None:
    """Its header is in the first piece, and what stands around it stays records."""
    data = join_events([b"before", bytes(MAX_BODY), bytes(MAX_BODY + 1), b"after", wrap((), ENVELOPE_MARK)])
    runs = _check(data, envelopes)
    assert [(run.layout & Layout.RAW, list(map(len, run.bodies))) for run in runs[:5]] == [
        (Layout.PLAIN, [6]),
        (Layout.PLAIN, [MAX_BODY]),
        (Layout.RAW, [MAX_BODY]),
        (Layout.RAW, [9]),
        (Layout.PLAIN, [5, 4 if envelopes else 11]),
    ]


def test_a_batch_is_no_larger_than_its_bound() -> None:
    runs = _check(join_events([bytes(600_000)] * 3 + [bytes(100)] * 5), Layout.PLAIN)
    assert [len(run.bodies) for run in runs] == [1, 1, 6]


def test_envelopes_of_large_records_are_unwrapped() -> None:
    """The envelope of the largest record is larger than a record may be, and comes back all the same."""
    headers = tuple(Header(b"%d" % number, b"") for number in range(MAX_RECORD_HEADERS // 10))
    body = bytes(MIB - metered_size((b"",), {0: headers}))
    data = event_of(headers, body, ALL)
    assert len(data) > MIB + 8
    assert _check(data, ALL) == [Run(Layout.SENT | ALL, [body], {0: headers})]


@pytest.mark.parametrize(
    ("envelope", "inside"),
    [
        (wrap(PLAIN_HEADERS, b"body"), Layout.ENVELOPE_HEADERS),
        (wrap(PLAIN_HEADERS, b""), Layout.ENVELOPE_HEADERS),
        (wrap((), b""), Layout.ENVELOPE_EMPTY),
        (wrap(FENCE, b"token"), Layout.ENVELOPE_COMMANDS),
    ],
)
def test_only_what_would_be_enveloped_is_unwrapped(envelope: bytes, inside: Layout) -> None:
    data = join_events([b"x", envelope])
    assert [run.layout for run in _check(data, ALL)] == [Layout.SENT | ALL]
    assert [run.layout for run in _check(data, inside)] == [Layout.SENT | inside]
    assert _check(data, ALL & ~inside) == [Run(Layout.SENT, [b"x", envelope], {})]


@pytest.mark.parametrize(
    "event",
    [
        ENVELOPE_MARK,
        ENVELOPE_MARK + b"\x02",
        wrap((), b"needs none"),
        wrap(FENCE, b"\xff" * 40),
        wrap((Header(b"", b"unknown"),), b""),
        wrap((Header(b"", b"a"), Header(b"k", b"b")), b""),
        wrap(tuple([Header(b"k", b"")] * (MAX_RECORD_HEADERS + 1)), b""),
    ],
    ids=["mark", "version", "plain", "fence", "command", "name", "headers"],
)
def test_what_looks_like_an_envelope_and_is_none_stays_as_it_is(event: bytes) -> None:
    data = join_events([event])
    runs = _check(data, ALL)
    assert not any(run.headers for run in runs)
    assert all(run.layout in (Layout.SENT, Layout.RAW) for run in runs)


def test_empty_events_and_envelopes_of_empty_ones_are_told_apart() -> None:
    runs = _check(join_events([b"a", b"", b"b", wrap((), b""), b"c"]), ALL)
    assert runs == [
        Run(Layout.SENT, [b"a", b"", b"b"], {}),
        Run(Layout.SENT | ALL, [b"", b"c"], {}),
    ]


def test_the_number_of_runs_is_bounded() -> None:
    """Bytes that want another layout with every event: from some point on they are records as they stand."""
    runs = _check(join_events([ENVELOPE_MARK, wrap((), b"")] * 20_000), ALL)
    assert len(runs) < 1100
    assert sum(len(run.bodies) for run in runs) == 40_000


@pytest.mark.parametrize(
    ("headers", "body", "layout", "expected"),
    [
        ((), b"b", Layout.PLAIN, b"b"),
        ((), b"", Layout.PLAIN, None),
        ((), b"", Layout.SENT, b""),
        ((), b"", Layout.ENVELOPE_EMPTY, wrap((), b"")),
        ((), b"", Layout.ENVELOPE_HEADERS, None),
        (PLAIN_HEADERS, b"b", Layout.PLAIN, b"b"),
        (PLAIN_HEADERS, b"", Layout.PLAIN, None),
        (PLAIN_HEADERS, b"", Layout.ENVELOPE_EMPTY, wrap((), b"")),
        (PLAIN_HEADERS, ENVELOPE_MARK, Layout.ENVELOPE_EMPTY, wrap((), ENVELOPE_MARK)),
        (PLAIN_HEADERS, b"b", Layout.ENVELOPE_HEADERS, wrap(PLAIN_HEADERS, b"b")),
        (PLAIN_HEADERS, b"", ALL, wrap(PLAIN_HEADERS, b"")),
        (FENCE, b"b", Layout.PLAIN, None),
        (FENCE, b"b", Layout.ENVELOPE_HEADERS, None),
        (FENCE, b"b", Layout.ENVELOPE_COMMANDS, wrap(FENCE, b"b")),
        ((), ENVELOPE_MARK, Layout.PLAIN, ENVELOPE_MARK),
        ((), ENVELOPE_MARK, Layout.SENT, ENVELOPE_MARK),
        ((), ENVELOPE_MARK, Layout.ENVELOPE_HEADERS, wrap((), ENVELOPE_MARK)),
    ],
)
def test_the_table(headers: Headers, body: bytes, layout: Layout, expected: bytes | None) -> None:
    event = b"" if expected is None else join_events([expected])
    assert event_of(headers, body, layout) == event
    columns = _columns([b"x", body, b"y"], {1: headers} if headers else {})
    assert to_bytes(columns, layout) == join_events([b"x"]) + event + join_events([b"y"])


def test_raw_bytes_have_no_header() -> None:
    assert event_of((), ENVELOPE_MARK, Layout.RAW | ALL) == ENVELOPE_MARK
    assert to_bytes(_columns([b"ab", b"", b"c"]), Layout.RAW) == b"abc"
    assert byte_length(_columns([b"ab", b"", b"c"]), Layout.RAW) == 3
    assert starts_of(_columns([b"ab", b"", b"c"]), Layout.RAW) == [0, 2, 2, 3]


LEFT_OUT = {
    1: (Feature.EMPTY_BODY,),
    2: (Feature.HEADERS,),
    3: (Feature.COMMAND,),
    4: (Feature.HEADERS, Feature.EMPTY_BODY),
}
ENVELOPED = LEFT_OUT | {4: (Feature.HEADERS,)}


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (Layout.PLAIN, LEFT_OUT),
        (Layout.ENVELOPE_EMPTY, LEFT_OUT),
        (Layout.ENVELOPE_HEADERS, ENVELOPED),
        (ALL, ENVELOPED),
        (Layout.SENT | ALL, ENVELOPED),
        (Layout.RAW, {}),
    ],
)
def test_features(layout: Layout, expected: dict[int, tuple[Feature, ...]]) -> None:
    headers = {2: PLAIN_HEADERS, 3: FENCE, 4: PLAIN_HEADERS}
    assert features_of(_columns([b"a", b"", b"b", b"t", b"", ENVELOPE_MARK], headers), layout) == expected
    assert features_of(_columns([b"a", ENVELOPE_MARK]), layout) == {}


@pytest.mark.parametrize("feature", list(Feature))
def test_what_is_not_enveloped_is_left_out(feature: Feature) -> None:
    headers: Headers = {Feature.HEADERS: PLAIN_HEADERS, Feature.COMMAND: FENCE, Feature.EMPTY_BODY: ()}[feature]
    for layout in (Layout.PLAIN, *ALL, ALL):
        data = event_of(headers, b"", layout)
        assert is_left_out(feature, layout) == (data != join_events([wrap(headers, b"")]))


def test_empty_events_of_segment_clients_have_no_feature() -> None:
    assert features_of(_columns([b"a", b""]), Layout.SENT) == {}


def test_layouts_keep_their_numbers() -> None:
    """They stand in the store."""
    assert {layout.name: layout.value for layout in Layout} == {
        "RAW": 1,
        "SENT": 2,
        "ENVELOPE_HEADERS": 4,
        "ENVELOPE_EMPTY": 8,
        "ENVELOPE_COMMANDS": 16,
    }
    assert (Layout.SENT | ALL).envelopes == ALL
    assert (Layout.SENT | Layout.RAW).envelopes == Layout.PLAIN


@given(EVENTS)
def test_events_of_a_sent_batch_are_what_was_sent(bodies: list[bytes]) -> None:
    assert split_events(to_bytes(_columns(bodies), Layout.SENT)) == bodies
