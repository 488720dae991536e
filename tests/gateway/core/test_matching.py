"""Patterns: the names that they match, their captures, and rewriting of names in both directions."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.globs import captured
from penstock.core.matching import Match, NamePattern, StreamPattern
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.records import StreamRef
from penstock.routing.rewriting import Rewriting


def rewriting(
    match: str, basin: str | None, stream: str | None, to_basin: str | None = None, to_stream: str | None = None
) -> Rewriting:
    return Rewriting.compile(StreamPattern.compile(Match(match), basin, stream), to_basin, to_stream)


@pytest.mark.parametrize(
    ("match", "basin", "stream", "name", "captured"),
    [
        ("exact", None, None, "telemetry/a/b", {}),
        ("exact", "telemetry", "orders", "telemetry/orders", {}),
        ("exact", "telemetry", "orders", "telemetry/orders2", None),
        ("exact", "telemetry", "orders", "telemetry2/orders", None),
        ("exact", "telemetry", "a*", "telemetry/ab", None),
        ("exact", "tele*", None, "telemetry/x", {"1": "metry"}),
        ("prefix", None, "eu/", "telemetry/eu/a/b", {"rest": "a/b"}),
        ("prefix", None, "eu/", "telemetry/eu", None),
        ("prefix", None, "", "telemetry/eu", {"rest": "eu"}),
        ("glob", "team-*", "*/x-?", "team-one/a/x-1", {"1": "one", "2": "a", "3": "1"}),
        ("glob", None, "*", "telemetry/a/b", None),
        ("glob", None, "**", "telemetry/a/b", {"1": "a/b"}),
        ("glob", None, "a.c", "telemetry/abc", None),
        ("glob", None, "a\nb*", "telemetry/a\nb\n", {"1": "\n"}),
        ("regex", None, r"(?P<area>eu|us)/(\d+)", "telemetry/eu/17", {"1": "eu", "2": "17", "area": "eu"}),
        ("regex", None, r"eu/\d+", "telemetry/eu/17x", None),
        ("regex", "t*", "(a)?b", "team-one/b", {"1": "eam-one", "2": ""}),
    ],
)
def test_patterns(
    match: str, basin: str | None, stream: str | None, name: str, captured: dict[str, str] | None
) -> None:
    asked = StreamRef(*name.split("/", 1))
    found = StreamPattern.compile(Match(match), basin, stream).match(asked)
    wanted = None if captured is None else {**captured, "basin": asked.basin, "stream": asked.stream}
    assert found == wanted


@pytest.mark.parametrize(
    ("given_", "name", "there"),
    [
        (("exact", None, None), "telemetry/orders", "telemetry/orders"),
        (("exact", "telemetry", "orders", "prod-telemetry", "o-2024"), "telemetry/orders", "prod-telemetry/o-2024"),
        (("prefix", "telemetry", "eu/", None, "{rest}"), "telemetry/eu/a/b", "telemetry/a/b"),
        (("exact", "team-*", None, "all-teams", "{1}/{stream}"), "team-one/orders", "all-teams/one/orders"),
        (("glob", None, "*/*", None, "{2}/{1}"), "telemetry/a/b", "telemetry/b/a"),
        (("glob", None, "**/*", None, "{1}/{2}"), "telemetry/a/b/c", "telemetry/a/b/c"),
        (("regex", None, r"(?P<area>..)-(.*)", None, "{stream}/{area}"), "telemetry/eu-1", "telemetry/eu-1/eu"),
        (("exact", None, None, None, "{{{stream}}}"), "telemetry/orders", "telemetry/{orders}"),
    ],
)
def test_names_there_and_back(given_: tuple[str, ...], name: str, there: str) -> None:
    made = rewriting(*given_)
    asked = StreamRef(*name.split("/", 1))
    captures = made.pattern.match(asked)
    assert captures is not None
    found = made.forward(asked, captures)
    assert str(found) == there
    assert made.basin_forward(asked.basin) == found.basin
    assert made.stream_back(asked.basin, found.stream) == asked.stream
    if made.basin.names <= {"basin"}:
        assert made.basin_back(found.basin) == (
            asked.basin if made.basin.names or "*" not in (given_[1] or "*") else None
        )


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        (("exact", None, None), "injective streams basins ordered"),
        (("exact", "telemetry", None, "prod-telemetry", "eu/{stream}"), "injective streams basins ordered"),
        (("prefix", "telemetry", "eu/", None, "x/{rest}"), "injective streams basins ordered"),
        (("glob", "telemetry", "eu/*", None, "{1}"), "injective streams basins ordered"),
        (("glob", "telemetry", "*/eu", None, "{1}"), "injective streams basins"),
        (("glob", "telemetry", "*/*", None, "{2}/{1}"), "injective streams basins"),
        (("glob", "telemetry", "*/*", None, "{1}-{2}"), "basins"),
        (("exact", "telemetry", None, None, "all"), "basins"),
        (("exact", None, None, "all-basins", "{stream}"), "streams ordered"),
        (("exact", "team-*", None, "all-teams", "{1}/{stream}"), "injective streams"),
        (("exact", None, None, "{stream}-basin", None), "ordered"),
        (("regex", "telemetry", "(a|b).*", None, "{1}"), "basins"),
        (("regex", "telemetry", "(a|b).*", None, "x{stream}"), "injective streams basins ordered"),
        (("regex", None, "(a|b).*", None, "x{stream}"), "injective streams basins ordered"),
    ],
)
def test_what_can_be_told_of_templates(given_: tuple[str, ...], said: str) -> None:
    made = rewriting(*given_)
    found = [made.injective, made.shows_streams, made.shows_basins, made.keeps_order]
    assert found == [word in said.split() for word in ("injective", "streams", "basins", "ordered")]


TAKES_28_CHARACTERS_SECONDS = [r"(a+)+b", r"(a|aa)+b", r"(?P<x>a*)*(?P<y>a*)*b", r"([^/]*a){14}b"]


@pytest.mark.parametrize("pattern", TAKES_28_CHARACTERS_SECONDS)
def test_no_name_that_a_client_chooses_takes_long(pattern: str) -> None:
    made = rewriting("regex", None, pattern)
    began = time.process_time()
    for name in ("a" * 28, "a" * 512, "é" * 256, "a" * 511 + "b"):
        made.pattern.match(StreamRef("telemetry", name))
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("match", "stream", "to_stream", "name"),
    [
        ("glob", "*/*/*/*/*", "{1}-{2}-{3}-{4}-{5}", "-" * 512),
        ("glob", "*/*/*/*/*", "{1}a{2}a{3}a{4}a{5}", "a" * 511 + "/"),
        ("glob", "**/**/**/**", "{1}{2}{3}{4}/{1}", "a/" * 255 + "b"),
        ("regex", "(a)(b)(c)(d)(e)", "{1}{2}{3}{4}{5}{1}{2}{3}{4}{5}x", "a" * 512),
    ],
)
def test_no_name_that_a_back_lists_takes_long(match: str, stream: str, to_stream: str, name: str) -> None:
    made = rewriting(match, "telemetry", stream, None, to_stream)
    began = time.process_time()
    assert made.stream_back("telemetry", name) is None
    assert time.process_time() - began < 1.0


def test_no_basin_that_a_client_names_takes_long() -> None:
    made = rewriting("exact", "*-*-*-*-*-*", None, "{1}a{2}a{3}a{4}a{5}a{6}b", None)
    began = time.process_time()
    assert not made.reaches_basin("a" * 48)
    assert made.basin_back("a" * 47 + "-") is None
    assert time.process_time() - began < 1.0


def test_a_capture_that_is_used_again_tells_its_length() -> None:
    made = rewriting("glob", "telemetry", "**", None, "{1}-{1}")
    assert made.stream_back("telemetry", "a-b-a-b") == "a-b"
    assert made.stream_back("telemetry", "a-b-a-c") is None
    assert made.stream_back("telemetry", "a-bb") is None


def test_what_is_not_certain_is_not_told() -> None:
    made = rewriting("glob", "telemetry", "*/*", None, "{1}-{2}")
    assert made.stream_back("telemetry", "a-b") == "a/b"
    assert made.stream_back("telemetry", "a-b-c") is None
    assert made.stream_back("telemetry", "ab") is None


@pytest.mark.parametrize(
    ("given_", "why"),
    [
        (("regex", None, "a(*"), "not a regular expression"),
        (("regex", None, r"(a|b)-\1"), r"backreference \1 at character 7 cannot be matched in linear time"),
        (("regex", None, "(?<=a)b"), "lookbehind (?<= at character 1"),
        (("regex", None, "(?P<stream>.*)-x"), "is called stream, which is reserved for the client's own name"),
        (("exact", None, "a", None, "{1}"), "to_stream: nothing captures {1}; there is {basin}, {stream}"),
        (("exact", None, "a", "{x}", None), "to_basin: nothing captures {x}"),
        (("exact", None, "a", None, "{a b}"), "a brace encloses a capture"),
        (("exact", None, "a", None, "a}"), "a brace encloses a capture"),
        (("exact", None, "a", "Prod-{basin}", None), "to_basin: a basin's name cannot contain 'Prod-'"),
        (("exact", None, "a", "prod", None), "to_basin: basin name must be 8 to 48"),
        (("exact", None, "a", None, ".."), "to_stream: stream name must not be"),
        (("exact", None, "a", None, "{stream}" + "x" * 513), "to_stream: a stream's name cannot contain"),
        (("exact", None, "a", None, ""), "to_stream: stream name must be 1 to 512"),
    ],
)
def test_templates_that_make_no_names(given_: tuple[str, ...], why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        rewriting(*given_)


def test_a_name_that_would_not_be_legal_is_refused() -> None:
    made = rewriting("prefix", None, "eu/", "prod-{basin}", "{rest}")
    for name, why in (("telemetry/eu/", "must be 1 to 512"), (f"{'b' * 48}/eu/a", "must be 8 to 48")):
        asked = StreamRef(*name.split("/", 1))
        captures = made.pattern.match(asked)
        assert captures is not None
        with pytest.raises(OperationFailed, match=why) as caught:
            made.forward(asked, captures)
        assert caught.value.failure.code is FailureCode.NOT_REPRESENTABLE


names = st.text("ab/-", min_size=1, max_size=6)


@given(
    st.sampled_from(
        [
            ("prefix", "telemetry", "a", None, "x{rest}"),
            ("glob", "telemetry", "*/**", None, "{2}-{1}"),
            ("glob", "telemetry", "*-*", None, "{2}/{1}"),
            ("glob", "telemetry", "?*", None, "{2}{1}"),
            ("regex", "telemetry", "(.*)-(.*)", None, "{1}{2}"),
            ("exact", "telemetry", None, None, "{stream}{stream}"),
        ]
    ),
    names,
)
def test_the_way_back_never_lies(given_: tuple[str, ...], name: str) -> None:
    """A server name shown to a client under some name is what that name leads to."""
    made = rewriting(*given_)
    shown = made.stream_back("telemetry", name)
    if shown is not None:
        asked = StreamRef("telemetry", shown)
        captures = made.pattern.match(asked)
        assert captures is not None
        assert made.stream.fill(captures) == name


@given(names, names, st.sampled_from([None, "x/{stream}", "x"]))
def test_what_a_listing_asks_for_leaves_nothing_out(name: str, begin: str, to: str | None) -> None:
    """Every name that a client should see lies in the span that the server is asked for."""
    for given_ in (("exact", "telemetry", None, None, to), ("prefix", "telemetry", "a/", None, "y{rest}")):
        made = rewriting(*given_)
        captures = made.pattern.match(StreamRef("telemetry", name))
        if captures is None:
            continue
        there = made.stream.fill(captures)
        for prefix, start_after in ((begin, ""), ("", begin), (name[:1], begin)):
            if name.startswith(prefix) and name > start_after:
                span = made.span(prefix, start_after)
                assert span is not None
                assert there.startswith(span[0]) and there > span[1]


def test_a_name_costs_little_however_many_wildcards_there_are() -> None:
    """A regular expression would take hours: a client could stop the gateway by asking for such a name."""
    pattern = StreamPattern.compile(Match.GLOB, None, "*-*-*-*-*-*-x")
    assert pattern.match(StreamRef("telemetry", "-" * 512)) is None
    found = pattern.match(StreamRef("telemetry", "-" * 510 + "-x"))
    assert found is not None and found["1"] == "-" * 505


@given(
    st.lists(st.sampled_from(["*", "**", "?", "a", "/", "-", "a-"]), min_size=1, max_size=7).map("".join),
    st.text("a/-", max_size=9),
)
def test_many_wildcards_take_and_capture_what_an_expression_does(glob: str, name: str) -> None:
    pattern = NamePattern.compile(Match.GLOB, glob)
    assert pattern.pieces is not None
    found = pattern.expression.fullmatch(name)
    assert captured(pattern.pieces, name) == (None if found is None else list(found.groups()))


def test_a_name_that_a_server_lists_costs_little_either() -> None:
    made = rewriting("glob", None, "*/*/*/*/*", None, "{1}-{2}-{3}-{4}-{5}-x")
    assert made.stream_back("telemetry", "-" * 512) is None
    assert made.stream_back("telemetry", "a-b-c-d-e-x") == "a/b/c/d/e"
