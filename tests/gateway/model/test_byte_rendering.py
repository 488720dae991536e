"""Batches as bytes, cut to the size of reads: every byte once, for any reads."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.byte_layout import Layout, event_of
from penstock.model.byte_rendering import Rendered, render, render_slice
from penstock.model.features import Feature
from penstock.model.records import Columns, Header, Headers

FENCE = (Header(b"", b"fence"),)
KEY = (Header(b"k", b"v"),)
NOTHING: frozenset[Feature] = frozenset()

LAYOUTS = st.lists(st.sampled_from([4, 8, 16]), unique=True).map(lambda bits: Layout(sum(bits)))
RECORDS = st.tuples(st.sampled_from([(), (), (), KEY, FENCE]), st.binary(max_size=3))
BATCHES = st.lists(st.tuples(LAYOUTS, st.lists(RECORDS, min_size=1, max_size=4)), min_size=1, max_size=4)

Batches = list[tuple[Layout, list[tuple[Headers, bytes]]]]


def rendered(batches: Batches) -> list[Rendered]:
    pieces: list[Rendered] = []
    number, offset = 0, 0
    for layout, records in batches:
        heads = {index: headers for index, (headers, _) in enumerate(records) if headers}
        numbers = range(number, number + len(records))
        pieces.append(render(Columns(numbers, (), [body for _, body in records], heads), layout, offset))
        number, offset = numbers.stop, pieces[-1].end_offset
    return pieces


def data_of(batches: Batches) -> bytes:
    return b"".join(event_of(headers, body, layout) for layout, records in batches for headers, body in records)


@given(BATCHES, st.data())
def test_any_read_gives_the_bytes(batches: Batches, data: st.DataObject) -> None:
    whole = data_of(batches)
    offset = data.draw(st.integers(0, len(whole)))
    most = data.draw(st.integers(1, 30))
    found = render_slice(rendered(batches), offset, most, NOTHING)
    assert found.data == whole[offset : offset + most]
    assert found.end_offset == offset + len(found.data)
    assert found.refused is None


@given(BATCHES, st.lists(st.integers(1, 20), min_size=1))
def test_reads_one_after_another_tell_each_record_that_was_left_out_once(batches: Batches, sizes: list[int]) -> None:
    """Those behind the last byte are told at the end."""
    pieces = rendered(batches)
    expected = Counter(feature for piece in pieces for mark in piece.marks for feature in mark.left_out)
    told: Counter[Feature] = Counter()
    offset, turn = 0, 0
    while True:
        here = [piece for piece in pieces if piece.end_offset >= offset]
        found = render_slice(here, offset, sizes[turn % len(sizes)], NOTHING)
        told.update(found.dropped)
        turn += 1
        if not found.data:
            break
        offset = found.end_offset
    assert told == expected


@given(BATCHES, st.sets(st.sampled_from(list(Feature)), min_size=1).map(frozenset), st.integers(1, 20))
def test_nothing_that_is_refused_is_given(batches: Batches, refuse: frozenset[Feature], most: int) -> None:
    pieces = rendered(batches)
    refused = [mark for piece in pieces for mark in piece.marks if not refuse.isdisjoint(mark.features)]
    end = refused[0].offset if refused else pieces[-1].end_offset
    offset = 0
    while (found := render_slice([piece for piece in pieces if piece.end_offset >= offset], offset, most, refuse)).data:
        offset = found.end_offset
    assert offset == end
    assert (None if found.refused is None else found.refused.seq_num) == (refused[0].seq_num if refused else None)
    for mark in refused:
        within = render_slice(pieces, max(mark.offset, mark.end_offset - 1), most, refuse)
        assert within.refused is not None
        assert not within.data


def test_a_whole_batch_is_not_copied() -> None:
    pieces = rendered([(Layout.PLAIN, [((), b"x" * 100)]), (Layout.PLAIN, [((), b"y")])])
    assert render_slice(pieces, 0, 108, NOTHING).data is pieces[0].data
    assert render_slice(pieces, 108, 9, NOTHING).data is pieces[1].data


def test_pieces_may_overlap() -> None:
    """A batch is given once more for its last records, which have no bytes."""
    pieces = rendered([(Layout.PLAIN, [((), b"x"), ((), b"")]), (Layout.PLAIN, [((), b"y")])])
    found = render_slice([pieces[0], *pieces], 0, 99, NOTHING)
    assert found.data == pieces[0].data + pieces[1].data
    assert found.dropped == {Feature.EMPTY_BODY: 1}


def test_a_gap_ends_what_is_given() -> None:
    """Rows may be purged between two looks into the file."""
    pieces = rendered([(Layout.PLAIN, [((), b"x")]), (Layout.PLAIN, [((), b"y")]), (Layout.PLAIN, [(KEY, b"z")])])
    found = render_slice([pieces[0], pieces[2]], 3, 99, NOTHING)
    assert (found.data, found.end_offset, found.dropped) == (pieces[0].data[3:], 9, {})
    assert render_slice([pieces[0], pieces[2]], 3, 99, frozenset(Feature)).refused is None


def test_records_that_are_gone_are_not_told() -> None:
    pieces = rendered([(Layout.PLAIN, [(FENCE, b""), (FENCE, b""), ((), b"x")])])
    assert render_slice(pieces, 0, 99, NOTHING).dropped == {Feature.COMMAND: 2}
    assert render_slice(pieces, 0, 99, NOTHING, first_seq_num=1).dropped == {Feature.COMMAND: 1}
    assert render_slice(pieces, 0, 99, frozenset({Feature.COMMAND}), first_seq_num=2).refused is None


@given(BATCHES, st.data())
def test_the_rest_is_what_was_behind(batches: Batches, data: st.DataObject) -> None:
    for piece in rendered(batches):
        offset = data.draw(st.integers(piece.first_offset, piece.end_offset))
        most = data.draw(st.integers(1, 30))
        rest = piece.rest(offset)
        assert rest.end_offset == piece.end_offset
        for refuse in (NOTHING, frozenset(Feature)):
            assert render_slice([rest], offset, most, refuse) == render_slice([piece], offset, most, refuse)
