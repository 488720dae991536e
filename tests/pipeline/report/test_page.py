"""The page: nothing from outside acts in it, and it needs nothing beside it."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.findings import HOSTILE, found

from penstock_spark.report import Findings, page
from penstock_spark.report.findings import MOST_WINDOWS, Top, window_s
from penstock_spark.report.text import bits, duration, name, size

VOID = frozenset({"meta", "br", "use", "path", "rect"})


class Reading(HTMLParser):
    """The elements, their attributes, and the text that people see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_names_from_outside_are_text_and_nothing_is_fetched_or_run() -> None:
    text = page(found(), title=HOSTILE)
    read = Reading(text)
    assert read.open == []
    tags = {tag for tag, _ in read.elements}
    assert not tags & {"script", "iframe", "object", "embed", "link", "img", "form", "base"}
    for _, attributes in read.elements:
        assert not [each for each in attributes if each.startswith("on")]
        for key in ("href", "xlink:href", "src"):
            assert (attributes.get(key) or "#").startswith("#")
    assert not re.search(r"url\((?!#)|@import", text)
    assert "default-src 'none'" in text
    assert "<script>alert('$x^2$')</script>" in "".join(read.text)
    assert "\u202e" not in text and "\x00" not in text


def test_identifiers_are_unique_and_all_that_is_referred_to_is_there() -> None:
    elements = Reading(page(found())).elements
    identifiers = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    wanted = {str(value)[1:] for _, attributes in elements for key, value in attributes.items() if key.endswith("href")}
    assert wanted <= set(identifiers)
    used = {label for _, attributes in elements if (label := attributes.get("aria-labelledby"))}
    assert used <= set(identifiers)


def test_plots_take_the_colours_of_the_page_and_tell_what_they_are() -> None:
    text = page(found())
    plots = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    assert len(plots) == 3
    for plot in plots:
        assert 'role="img"' in plot and "aria-label=" in plot
        assert not re.search(r"#(?:0a0b|010203|040506)", plot)
        assert "var(--ink)" in plot and "var(--s0)" in plot


def test_the_same_findings_give_the_same_page() -> None:
    assert page(found()) == page(found())


def test_what_is_left_out_is_said() -> None:
    text = "".join(Reading(page(found())).text)
    for said in (
        "and 1,093 more",
        "and 2 more routes",
        "and 1,204 more",
        "3, 98,102 missing: 17 to 20, 400 to 402, 900 to 99,000",
        "4 (1 altered)",
        "3.42",
    ):
        assert said in text


def test_nothing_found_is_said_and_nothing_asked_for_has_no_section() -> None:
    assert "<section" not in page(Findings())
    empty = Findings(
        throughput=Top(), latency=Top(), latency_totals=Top(), usage={"client": Top()}, quality=Top(), verdicts=Top(),
        differences=Top(),
    )  # fmt: skip
    text = "".join(Reading(page(empty)).text)
    assert "Nothing was recorded." in text
    assert text.count("none.") >= 4


def test_a_single_moment_is_drawn() -> None:
    whole = found()
    assert whole.throughput and whole.latency
    one = replace(whole, throughput=Top(whole.throughput.rows[:1]), latency=Top(whole.latency.rows[:1]))
    assert page(one).count("<svg") == 2


@examples(least=40)
@given(st.text())
def test_any_name_is_safe_in_text_and_in_attributes(value: str) -> None:
    shown = re.sub("^<bdi>(.*)</bdi>$", r"\g<1>", name(value))
    assert not re.search(r"[<>\"']", shown)
    assert all(each.isprintable() for each in shown)
    assert len(shown) <= 81 * 10


def test_names_written_from_the_right_move_nothing_beside_them() -> None:
    """Numbers stand behind names, and would be shown before them."""
    assert name("b/\u05d0\u05d1") == "<bdi>b/\u05d0\u05d1</bdi>"
    assert "<title>\u0627</title>" in page(Findings(), title="\u0627")


@examples(least=40)
@given(st.binary())
def test_any_body_can_be_shown(data: bytes) -> None:
    assert not re.search(r"[<>]", re.sub("^<bdi>(.*)</bdi>$", r"\g<1>", bits(data)))


@examples(least=40)
@given(st.floats(0, 1e9))
def test_time_windows_are_few_whatever_was_recorded(seconds: float) -> None:
    assert seconds / window_s(seconds) <= MOST_WINDOWS


def test_numbers_are_as_people_read_them() -> None:
    assert [size(value) for value in (None, 0, 1023, 1024, 123 * 1024**2, 5 * 1024**5)] == [
        "", "0 B", "1,023 B", "1.0 KiB", "123 MiB", "5.0 PiB",
    ]  # fmt: skip
    assert [duration(value) for value in (None, 0, 999, 1_500, 61_000, 2_500_000, 600_000_000)] == [
        "", "0 µs", "999 µs", "1.5 ms", "61 ms", "2.5 s", "10 min",
    ]  # fmt: skip
