"""Records of two sources, compared: each kind of difference is found, and nothing else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.capture.dialogue import APPENDED, DELIVERED, SeenRecord
from penstock.capture.pcapng import Conversation, SocketAddress
from penstock.model.envelope import ENVELOPE_MARK, wrap
from penstock.model.records import Header
from penstock.tools.comparing import BadField, Comparison, DiffKind, Fields, compare_streams
from penstock.tools.comparing.alignment import Gap, Same, align_contents
from penstock.tools.comparing.comparison import NotComparable
from penstock.tools.comparing.record_table import ComparedStream, Input, RecordRow, RecordTable
from penstock.tools.comparing.sources import stream_on_server

PLAIN = Fields()


def talk(number: int = 1) -> Conversation:
    return Conversation(number, SocketAddress("127.0.0.1", 1000 + number), SocketAddress("127.0.0.1", 8080))


def appended(bodies: Iterable[bytes], stream: str = "penstock/orders") -> list[SeenRecord]:
    return [SeenRecord(APPENDED, stream, body, seq_num=n, timestamp=n) for n, body in enumerate(bodies)]


def by_s3p(bodies: Iterable[bytes], stream: str = "orders") -> list[SeenRecord]:
    return [SeenRecord(APPENDED, stream, body, record_id=f"77-{n}", timestamp=77) for n, body in enumerate(bodies)]


def by_offset(bodies: Iterable[bytes], stream: str = "orders") -> list[SeenRecord]:
    return [SeenRecord(APPENDED, stream, body, offset=n) for n, body in enumerate(bodies)]


def numbered(count: int) -> list[bytes]:
    return [b"record %d" % number for number in range(count)]


def compared(a: Sequence[SeenRecord], b: Sequence[SeenRecord], fields: Fields = PLAIN, **options: object) -> Comparison:
    with RecordTable(fields) as table:
        for source, records in ((Input.A, a), (Input.B, b)):
            for record in records:
                table.put(source, record, "segment" if "#epoch" in record.stream else "")
        table.settle()
        return compare_streams(table, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kept", "first", "counts"),
    [
        (numbered(9)[4:], 4, {DiffKind.TRIMMED: 4}),
        (numbered(9)[4:], 0, {DiffKind.LOST: 4}),
        (numbered(9)[4:6] + numbered(9)[7:], 4, {DiffKind.TRIMMED: 4, DiffKind.LOST: 1}),
        ([b"other", *numbered(9)[5:]], 4, {DiffKind.TRIMMED: 4, DiffKind.ALTERED: 1}),
        ([], 9, {DiffKind.TRIMMED: 9}),
        ([], 0, {DiffKind.LOST: 9}),
    ],
)
def test_records_that_a_server_no_longer_keeps_are_trimmed_not_lost(
    kept: list[bytes], first: int, counts: dict[DiffKind, int]
) -> None:
    with RecordTable(PLAIN) as table:
        for source, records in ((Input.A, numbered(9)), (Input.B, kept)):
            for record in appended(records):
                table.put(source, record)
        table.begin(Input.B, "penstock/orders", first)
        table.settle()
        comparison = compare_streams(table)
    assert found(comparison) == counts
    assert comparison.equal == (set(counts) == {DiffKind.TRIMMED})


def found(comparison: Comparison) -> dict[DiffKind, int]:
    (stream,) = comparison.streams
    return dict(stream.counts)


def test_the_same_records_by_two_protocols_are_equal() -> None:
    comparison = compared(by_s3p(numbered(500)), appended(numbered(500)))
    assert comparison.equal
    (stream,) = comparison.streams
    assert stream.same == 500
    assert stream.a is not None and stream.b is not None
    assert (stream.a.name, stream.b.name) == ("orders", "penstock/orders")


@pytest.mark.parametrize("at", [0, 1, 250, 498, 499])
@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (lambda bodies, at: bodies.pop(at), {DiffKind.LOST: 1}),
        (lambda bodies, at: bodies.insert(at, bodies[at]), {DiffKind.DOUBLED: 1}),
        (lambda bodies, at: bodies.insert((at + 100) % 499, bodies.pop(at)), {DiffKind.REORDERED: 1}),
        (lambda bodies, at: bodies.__setitem__(at, b"altered"), {DiffKind.ALTERED: 1}),
        (lambda bodies, at: bodies.insert(at, b"new"), {DiffKind.ADDED: 1}),
    ],
)
def test_one_difference_is_found_and_named(plant: object, expected: dict[DiffKind, int], at: int) -> None:
    bodies = numbered(500)
    assert callable(plant)
    plant(bodies, at)
    comparison = compared(by_s3p(numbered(500)), appended(bodies))
    assert not comparison.equal
    assert found(comparison) == expected


def test_neighbours_that_changed_places() -> None:
    bodies = numbered(100)
    bodies[40], bodies[41] = bodies[41], bodies[40]
    comparison = compared(appended(numbered(100)), appended(bodies))
    assert found(comparison) == {DiffKind.REORDERED: 1}


def test_all_at_once() -> None:
    bodies = numbered(2000)
    bodies[1900] = b"altered"
    bodies.insert(1500, bodies.pop(1400))
    bodies.insert(1000, bodies[999])
    del bodies[500]
    comparison = compared(appended(numbered(2000)), appended(bodies))
    assert found(comparison) == {DiffKind.LOST: 1, DiffKind.DOUBLED: 1, DiffKind.REORDERED: 1, DiffKind.ALTERED: 1}
    shown = [one.kind for one in comparison.streams[0].shown]
    assert shown == [DiffKind.LOST, DiffKind.DOUBLED, DiffKind.REORDERED, DiffKind.ALTERED]


def test_what_differs_of_an_altered_record_is_named() -> None:
    a, b = appended(numbered(3)), appended(numbered(3))
    b[1] = replace(b[1], headers=(Header(b"x", b"y"),))
    (difference,) = compared(a, b).streams[0].shown
    assert (difference.kind, difference.fields) == (DiffKind.ALTERED, ("headers",))
    assert difference.a is not None and difference.a.place == "seq_num 1"


def test_declared_fields_are_ignored() -> None:
    a, b = appended(numbered(3)), appended(numbered(3))
    b[1] = replace(b[1], headers=(Header(b"trace", b"1"),), timestamp=1000)
    assert not compared(a, b).equal
    assert compared(a, b, Fields.of(["header:trace"], [])).equal
    assert compared(a, b, Fields.of(["headers"], [])).equal
    assert not compared(a, b, Fields.of(["headers"], ["timestamp"])).equal
    b[2] = replace(b[2], body=b"altered")
    assert compared(a, b, Fields.of(["headers", "body"], [])).equal


def test_unknown_fields_are_refused_by_name() -> None:
    with pytest.raises(BadField, match="'colour' cannot be ignored; expected body, headers or header:NAME"):
        Fields.of(["colour"], [])
    with pytest.raises(BadField, match="'offset' cannot be compared"):
        Fields.of([], ["offset"])


def test_records_are_in_the_order_of_their_positions_on_any_connection() -> None:
    """Two writers' acknowledgements may go by in another order than their records stand."""
    a, b = appended(numbered(100)), appended(numbered(100))
    random.Random(1).shuffle(b)
    assert compared(a, b).equal


def test_what_was_read_again_is_there_once() -> None:
    records = [replace(one, action=DELIVERED, conversation=talk(n)) for n in (1, 2) for one in appended(numbered(50))]
    assert compared(appended(numbered(50)), records).equal


def test_what_one_read_gave_twice_is_doubled() -> None:
    records = [replace(one, action=DELIVERED, conversation=talk()) for one in appended(numbered(50))]
    records.insert(7, records[7])
    assert found(compared(appended(numbered(50)), records)) == {DiffKind.DOUBLED: 1}


def test_two_records_at_one_position_are_both_told() -> None:
    records = [replace(one, action=DELIVERED, conversation=talk(n)) for n in (1, 2) for one in appended(numbered(9))]
    records[12] = replace(records[12], body=b"something else")
    assert found(compared(appended(numbered(9)), records)) == {DiffKind.ADDED: 1}


def test_unacknowledged_appends_do_not_count() -> None:
    a = appended(numbered(3))
    refused = replace(a[0], acknowledged=False, seq_num=None, failure="ERR: no")
    assert compared([refused, *a], a).equal


def test_equal_records_are_counted() -> None:
    assert found(compared(appended([b"x"] * 10), appended([b"x"] * 9))) == {DiffKind.LOST: 1}
    assert found(compared(appended([b"x"] * 10), appended([b"x"] * 11))) == {DiffKind.DOUBLED: 1}


def test_streams_that_only_one_has() -> None:
    comparison = compared(
        [*appended([b"1"], "b/one"), *appended([b"2"], "b/two")], [*appended([b"1"], "b/one"), *by_s3p([b"3"], "three")]
    )
    assert [(one.a and one.a.name, one.b and one.b.name, one.equal) for one in comparison.streams] == [
        ("b/one", "b/one", True),
        ("b/two", None, False),
        (None, "three", False),
    ]


def test_streams_are_paired_by_names_that_are_given() -> None:
    a, b = appended(numbered(3), "b/one"), appended(numbered(3), "b/two")
    assert not compared(a, b).equal
    assert compared(a, b, named={"b/one": "b/two"}).equal


def test_a_segment_is_the_stream_it_belongs_to() -> None:
    events = [
        SeenRecord(DELIVERED, "penstock/orders/0.#epoch.0", body, offset=20 * n) for n, body in enumerate(numbered(9))
    ]
    assert compared(appended(numbered(9)), events).equal


def test_a_stream_with_two_names_is_one() -> None:
    """Two records were appended over S3P, one over S2, and all of them were read over S2."""
    read = [replace(one, action=DELIVERED) for one in appended(numbered(3))]
    a = [*by_s3p(numbered(2)), replace(appended(numbered(3))[2]), *read]
    comparison = compared(a, appended(numbered(3)))
    assert comparison.equal
    (stream,) = comparison.streams
    assert stream.a is not None and (stream.a.name, stream.a.records) == ("penstock/orders", 3)
    both = [*by_s3p(numbered(3)), *appended(numbered(3), "b/orders"), *appended(numbered(3), "c/orders")]
    assert len(compared(both, both).streams) == 3, "which of the two it is is unknown"


def test_what_two_protocols_delivered_of_one_stream_is_there_once() -> None:
    both = [replace(one, action=DELIVERED) for one in (*by_s3p(numbered(3)), *appended(numbered(3)))]
    assert compared(both, appended(numbered(3))).equal


def test_by_position() -> None:
    bodies = numbered(20)
    bodies[3] = b"altered"
    b = appended(bodies)
    del b[10]
    assert found(compared(appended(numbered(20)), b, by="position")) == {DiffKind.ALTERED: 1, DiffKind.LOST: 1}
    with pytest.raises(NotComparable, match="A has offset, B has seq_num"):
        compared(by_offset(numbered(3)), appended(numbered(3)), by="position")


def test_identifiers_of_s3p_are_counted_by_position() -> None:
    """They hold the server's time: no other server gives the same."""
    elsewhere = [replace(each, record_id=f"99-{n}") for n, each in enumerate(by_s3p(numbered(20)))]
    assert compared(by_s3p(numbered(20)), elsewhere, by="position").equal
    assert compared(by_s3p(numbered(20)), appended(numbered(20)), by="position").equal
    elsewhere[5] = replace(elsewhere[5], body=b"other")
    assert found(compared(by_s3p(numbered(20)), elsewhere[:-1], by="position")) == {
        DiffKind.ALTERED: 1,
        DiffKind.LOST: 1,
    }


HEADERS = (Header(b"key", b"value"),)


@pytest.mark.parametrize(
    ("headers", "body"), [(HEADERS, b"x"), (HEADERS, b""), ((), b""), ((), wrap(HEADERS, b"x")), ((), ENVELOPE_MARK)]
)
def test_an_envelope_is_the_record_that_it_carries(headers: tuple[Header, ...], body: bytes) -> None:
    """As a route with envelopes stores it, or a gateway gives it to clients of S3P."""
    (plain,) = appended([body])
    plain = replace(plain, headers=headers)
    comparison = compared([plain], by_s3p([wrap(headers, body)]))
    assert comparison.equal
    assert not compared([plain], by_s3p([wrap(headers, body + b"y")])).equal
    assert not compared([plain], by_s3p([wrap((*headers, *HEADERS), body)])).equal


@pytest.mark.parametrize("body", [ENVELOPE_MARK + b"\x02", ENVELOPE_MARK + b"\x01garbage", wrap((), b"x") + b"\x00"])
def test_what_only_looks_like_an_envelope_is_a_body(body: bytes) -> None:
    assert compared(appended([body]), by_s3p([body])).equal
    assert not compared(appended([b"x"]), by_s3p([body])).equal


def test_nothing_in_common() -> None:
    comparison = compared(appended(numbered(300)), appended([b"other %d" % n for n in range(200)]))
    assert found(comparison) == {DiffKind.ALTERED: 200, DiffKind.LOST: 100}


def rows(contents: Iterable[int]) -> list[RecordRow]:
    return [RecordRow(n, bytes([content]), b"", b"", b"", 0, "", 1, b"", 0, 0, n) for n, content in enumerate(contents)]


@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)), st.integers(1, 20))
def test_an_alignment_has_every_record_once_and_in_order(a: list[int], b: list[int], window: int) -> None:
    left, right = [], []
    for one in align_contents(rows(a), rows(b), window):
        if isinstance(one, Same):
            assert one.a.digest == one.b.digest
            left.append(one.a)
            right.append(one.b)
        else:
            assert isinstance(one, Gap)
            left += one.a
            right += one.b
    assert (left, right) == (rows(a), rows(b))


@given(st.lists(st.integers(0, 5), max_size=40), st.lists(st.integers(0, 5), max_size=40))
def test_two_streams_are_equal_where_nothing_is_told_of_them(a: list[int], b: list[int]) -> None:
    ones, others = ([b"%d" % content for content in contents] for contents in (a, b))
    if not a or not b:
        return
    comparison = compared(appended(ones), appended(others))
    assert comparison.equal == (a == b)
    counts = comparison.streams[0].counts
    more = Counter(b) - Counter(a)
    less = Counter(a) - Counter(b)
    # Reordering and alteration keep the number of records; the others account for the difference.
    assert counts[DiffKind.LOST] - counts[DiffKind.ADDED] - counts[DiffKind.DOUBLED] == less.total() - more.total()


@pytest.mark.parametrize("globs", [["orders"], ["penstock/orders"], ["b/*", "pen*"]])
def test_only_some_streams(globs: list[str]) -> None:
    """Streams are chosen by any name that A has for them; streams only in B, under other names, are no difference."""
    a = [*by_s3p(numbered(3)), replace(appended(numbered(4))[3]), *appended([b"x"], "else/where")]
    b = [*appended(numbered(4)), *appended([b"y"], "else/where"), *appended([b"z"], "else/new")]
    comparison = compared(a, b, globs=globs)
    assert comparison.equal and len(comparison.streams) == 1
    assert len(compared(a, b, globs=["else/*"]).streams) == 2
    assert not compared(a, b, globs=["nothing"]).streams


@pytest.mark.parametrize("most", [0, 1, 3])
def test_the_first_differences_are_shown(most: int) -> None:
    """Of the stream: those that moved are known last."""
    bodies = numbered(100)
    del bodies[3]
    bodies.insert(90, bodies.pop(80))
    bodies[50] = b"altered"
    (stream,) = compared(appended(numbered(100)), appended(bodies), most_shown=most).streams
    assert stream.counts.total() == 3
    assert [one.kind for one in stream.shown] == [DiffKind.LOST, DiffKind.ALTERED, DiffKind.REORDERED][:most]


def test_which_of_the_other_fields_differs_is_named() -> None:
    b = [replace(one, timestamp=99, seq_num=one.seq_num + 5) for one in appended(numbered(2))]  # type: ignore[operator]
    for also in (["timestamp"], ["seq_num"], ["seq_num", "timestamp"]):
        (stream,) = compared(appended(numbered(2)), b, Fields.of((), also)).streams
        assert [one.fields for one in stream.shown] == [tuple(also)] * 2


def test_a_stream_may_be_named_by_any_of_its_names() -> None:
    a = [*by_s3p(numbered(2)), replace(appended(numbered(3))[2])]
    assert compared(a, appended(numbered(3), "b/two"), named={"orders": "b/two"}).equal


@pytest.mark.parametrize(
    ("layer", "name", "there"),
    [
        ("s3p", "a/b", "penstock/a/b"),
        ("s2s", "my-basin/a/b", "my-basin/a/b"),
        ("http", "alone", "penstock/alone"),
        ("s2s", "my-basin/a/0", "my-basin/a/0"),
        ("http", "Bad/x", None),
        ("http", "my-basin/", None),
        ("segment", "my-scope/orders/0.#epoch.0", "my-scope/orders"),
        ("segment", "my-scope/orders/1.#epoch.0", "my-scope/orders/1.#epoch.0"),
        ("segment", "Sc/orders/0.#epoch.0", "penstock/Sc/orders"),
        ("segment", "my-scope/_RGgroup/0.#epoch.0", None),
        ("segment", "no segment", None),
        ("", "my-basin/orders/0.#epoch.0", "my-basin/orders/0.#epoch.0"),
    ],
)
def test_what_a_stream_is_called_on_a_server(layer: str, name: str, there: str | None) -> None:
    """As a gateway calls it that translates for the recorded clients."""
    found = stream_on_server(ComparedStream((1,), Input.A, name, True, 1, frozenset(), layer), "penstock")
    assert (found and str(found)) == there
