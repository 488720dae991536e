"""Envelopes: headers and empty bodies that come back whole, and plain bodies that only look like one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_codecs.envelope import ENVELOPE_MARK, wrap
from penstock_codecs.model import Columns, Header, Headers
from penstock_spark.clients.envelopes import unwrapped_records, wrapped

BODIES = st.one_of(st.binary(max_size=20), st.binary(max_size=20).map(lambda data: ENVELOPE_MARK + data))
HEADERS = st.lists(st.tuples(st.binary(max_size=5), st.binary(max_size=5)).map(lambda pair: Header(*pair)), max_size=3)


@given(st.lists(st.tuples(BODIES, HEADERS), max_size=5))
def test_what_was_wrapped_is_unwrapped(records: list[tuple[bytes, list[Header]]]) -> None:
    bodies = [body for body, _ in records]
    headers: dict[int, Headers] = {n: tuple(some) for n, (_, some) in enumerate(records) if some}
    stored = wrapped(bodies, headers)
    assert all(stored)
    found = unwrapped_records(Columns(range(len(stored)), (), stored))
    assert (found.bodies, found.headers) == (bodies, headers)


def test_what_is_no_envelope_is_a_plain_body() -> None:
    plain = Columns(range(2), (), [b"", b"x"])
    assert unwrapped_records(plain) is plain
    odd = [
        ENVELOPE_MARK,
        ENVELOPE_MARK + b"\x02",
        ENVELOPE_MARK + b"\x01\xff",
        wrap((), b"x") + b"\x12\x00",
        wrap((Header(b"k", b"v"),), b"y"),
    ]
    found = unwrapped_records(Columns(range(5), [1, 2, 3, 4, 5], odd))
    assert found.bodies == [*odd[:4], b"y"]
    assert found.headers == {4: (Header(b"k", b"v"),)}
    assert list(found.timestamps) == [1, 2, 3, 4, 5]
