"""Regular expressions of configurations: they mean what Python's mean, and no text makes them take long."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.model.expressions import compile_expression

CATASTROPHES = [
    r"(a+)+b",
    r"(a|aa)+b",
    r"(a|a)*b",
    r"(.*a){20}b",
    r"^(\w+\s?)*$!",
    r"(a*)*(a*)*(a*)*b",
    r"(x+x+)+y|a*a*a*a*b",
]
"""Each takes Python's `re` seconds for 28 characters, and twice as long for one more."""

PIECES = st.sampled_from(
    [
        *(
            "a",
            "b",
            "é",
            "/",
            "-",
            "_",
            " ",
            ".",
            r"\.",
            r"\w",
            r"\W",
            r"\d",
            r"\D",
            r"\s",
            r"\S",
            "^",
            "$",
            r"\A",
            r"\Z",
        ),
        *("[ab]", "[^a]", "[]a]", "[^]b]", "[a-c-]", "[[a]", r"[\w-]", r"[\s\S]", r"[^\d]", r"[\D]", r"[\b]", r"[\]]"),
        *(r"\u00e9", r"\xe9", r"\351", r"\0", r"\N{LATIN SMALL LETTER A}", r"\é", r"\-", r"\ "),
        *("*", "+", "?", "*?", "{2}", "{,2}", "{1,}", "{1,2}?", "|", "(", ")", "(?:", "(?P<x>", "(?i:", "(?#c)"),
    ]
)
TEXTS = st.text("aAbBcé/-_ .\n\t1٣\x08\0é\u3000", max_size=12)


def told(match: re.Match[Any] | None) -> object:
    return None if match is None else (match.span(), match.groups(), match.groupdict())


@given(pieces=st.lists(PIECES, max_size=8), texts=st.lists(TEXTS, min_size=1, max_size=4))
@example(pieces=["a", "$"], texts=["a\n"])
@example(pieces=["(", "a", ")", "{,2}"], texts=["aa"])
def test_a_whole_name_is_taken_as_python_takes_it(pieces: list[str], texts: list[str]) -> None:
    pattern = "".join(pieces)
    try:
        theirs = re.compile(pattern)
        ours = compile_expression(pattern)
    except (re.error, FutureWarning):
        return
    except ValueError as error:
        assert "does not accept" in str(error) or "not a regular expression" in str(error)
        return
    assert (ours.groups, dict(ours.groupindex)) == (theirs.groups, dict(theirs.groupindex))
    for text in texts:
        assert (ours.fullmatch(text) is None) == (theirs.fullmatch(text) is None), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(?P<area>eu|us)-(.*)", "eu-orders"),
        (r"(\w+)/(\d+)", "café/٣"),
        (r"([^/]*)/(?:(x)|(y))", "a/y"),
        (r"(a*?)(a*)", "aaa"),
        (r"(?i)(ORDERS)-(\S+)", "orders-é"),
    ],
)
def test_groups_capture_what_python_captures(pattern: str, text: str) -> None:
    assert told(compile_expression(pattern).fullmatch(text)) == told(re.fullmatch(pattern, text))


def test_bytes_are_found_where_python_finds_them() -> None:
    for pattern, text in (
        (rb"card(-[0-9]{4}){2}", b"a card-1234-5678 and card-0000-1111"),
        (rb"[\x80-\xff]+\w", b"\x80\xffa\xe9b"),
        (rb"(?m)^k=.*$", b"k=1\nl=2\nk=3"),
        (rb"(?s)a.b", b"a\nb a\xffb"),
        (rb"\bab\B", b"abc ab abab"),
    ):
        ours = [found.span() for found in compile_expression(pattern).finditer(text)]
        assert ours == [found.span() for found in re.finditer(pattern, text)] and ours, pattern
    (found,) = compile_expression(rb"secret=\w+$").finditer(b"secret=x\n")
    assert found.span() == (0, 9), "the newline at the end of all is a part of it"


@pytest.mark.parametrize("pattern", ["[ab]", "[^ab]", "[]a]", "[^]a]", "[a-]", r"[\]a]", "[a[]"])
def test_a_set_has_the_characters_that_it_has_in_python(pattern: str) -> None:
    ours, theirs = compile_expression(pattern), re.compile(pattern)
    for text in "ab]^[-\\":
        assert (ours.fullmatch(text) is None) == (theirs.fullmatch(text) is None), text


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"\u00e9", r"\U000000e9", r"\xe9", r"\351", r"\0", r"\N{LATIN SMALL LETTER E WITH ACUTE}", r"\é"),
        *(r"\w", r"\W", r"[\w-]", r"[\b]", r"[\0-a]", r"a\Z", r"a{,2}", r"a(?#b)b"),
    ],
)
def test_an_escape_matches_what_it_matches_in_python(pattern: str) -> None:
    ours, theirs = compile_expression(pattern), re.compile(pattern)
    for text in ("é", "\0", "a", "aa", "ab", "aaa", "-", "\b", "\n", "a\n", "٣"):
        assert (ours.fullmatch(text) is None) == (theirs.fullmatch(text) is None), text


@pytest.mark.parametrize("pattern", CATASTROPHES)
@pytest.mark.parametrize("binary", [False, True])
def test_no_text_makes_a_pattern_take_long(pattern: str, binary: bool) -> None:
    began = time.process_time()
    text = "a" * 512
    if binary:
        raw = compile_expression(pattern.encode())
        assert raw.fullmatch(text.encode()) is None
        list(raw.finditer(text.encode()))
    else:
        assert compile_expression(pattern).fullmatch(text) is None
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(a)\1", r"backreference \1 at character 4 cannot be matched in linear time"),
        (r"(?P<x>a)(?P=x)", "backreference (?P= at character 9"),
        (r"a(?=b)", "lookahead (?= at character 2"),
        (r"a(?!b)", "lookahead (?! at character 2"),
        (r"(?<=a)b", "lookbehind (?<= at character 1"),
        (r"(?<!a)b", "lookbehind (?<! at character 1"),
        (r"(a)(?(1)b|c)", "condition (?( at character 4"),
        (r"(?>a)b", "atomic group (?> at character 1"),
        (r"a*+b", "possessive repetition *+ at character 2"),
        (r"a{2,3}+b", "possessive repetition {2,3}+ at character 2"),
        (r"[\W]", r"\W within brackets at character 2"),
        (r"a{2000}", "invalid repetition size: {2000}"),
        (r"(?x) a b", "(?x"),
        ("(", "is not a regular expression: missing ), unterminated subpattern at character 1"),
        ("(" * 9999, "is not a regular expression: maximum recursion depth"),
        ("a{99999999999}", "is not a regular expression: the repetition number is too large"),
    ],
)
def test_what_cannot_be_matched_so_is_refused_by_name_and_place(pattern: str, why: str) -> None:
    with pytest.raises(ValueError) as refused:
        compile_expression(pattern)
    assert why in str(refused.value) and repr(pattern) in str(refused.value)


@pytest.mark.parametrize("pattern", [r"[(?=]", r"\(\?=", r"[\\]\\1", r"\++", r"[+]+", r"\101\0", r"a}+"])
def test_what_looks_like_it_and_is_none_is_taken(pattern: str) -> None:
    assert compile_expression(pattern).groups == re.compile(pattern).groups
