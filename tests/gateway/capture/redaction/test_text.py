"""Searching text as it comes finds what searching the whole finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.redaction.leaves import whole_characters
from penstock.capture.redaction.text import Patterns, Search, joined

patterns = st.lists(
    st.sampled_from(
        [
            b"ab",
            b"a{2,4}",
            rb"\Bb{1,5}",
            rb"\bab\b",
            b"a.{3}b",
            b"(?s)c.?\n",
            b"ab|ba",
            b"(?m)b$",
            b"^ab",
            b"x*",
            b"(?m)^b",
        ]
    ),
    min_size=1,
    max_size=3,
)
texts = st.text("aabbc \n", max_size=80).map(str.encode)


@given(patterns=patterns, text=texts, cuts=st.lists(st.integers(0, 80), max_size=8), longest=st.integers(6, 20))
def test_in_any_pieces(patterns: list[bytes], text: bytes, cuts: list[int], longest: int) -> None:
    compiled = Patterns(patterns, longest)
    search, found, before = Search(compiled), [], 0
    for end in [*sorted(cut for cut in cuts if cut < len(text)), len(text)]:
        found += search.take(text[before:end])
        assert search.certain >= end - longest, "no more is held back than a match could need"
        before = end
    found += search.end()
    assert search.certain == len(text)
    assert joined(found) == joined(compiled.spans(text))


@given(patterns=patterns, texts=st.lists(texts, max_size=4))
def test_where_a_search_finds_nothing_no_part_has_a_match(patterns: list[bytes], texts: list[bytes]) -> None:
    compiled = Patterns(patterns, 20)
    if not compiled.may_match_in(b"c".join(texts)):
        assert not any(compiled.spans(text) for text in texts)


@given(text=st.text(max_size=20), start=st.integers(0, 60), size=st.integers(1, 10))
def test_whole_characters(text: str, start: int, size: int) -> None:
    data = text.encode()
    start = min(start, max(0, len(data) - 1))
    end = min(start + size, len(data))
    first, last = whole_characters(data, start, end)
    assert first <= start <= end <= last
    (data[:first] + b"*" * (last - first) + data[last:]).decode()
