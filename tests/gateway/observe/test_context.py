"""W3C Trace Context: what is read from headers and passed on."""

from __future__ import annotations

import pytest

from penstock.observe.context import TraceContext

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("told", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f" 00-{TRACE}-{SPAN}-03 ", True),  # unknown flags are not passed on
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", True),
        (f"cc-{TRACE}-{SPAN}-01", True),
    ],
)
def test_what_is_told_is_handed_on(told: str, sampled: bool) -> None:
    found = TraceContext.parse(told, "a=1,b=2")
    assert found is not None and found.sampled is sampled
    assert found.headers == [("traceparent", f"00-{TRACE}-{SPAN}-0{int(sampled)}"), ("tracestate", "a=1,b=2")]


@pytest.mark.parametrize(
    "told",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"00-{TRACE}-{SPAN}-01\n00",
    ],
)
def test_what_is_none_is_none(told: str) -> None:
    assert TraceContext.parse(told) is None


def test_a_state_that_is_too_long_is_left_out() -> None:
    found = TraceContext.parse(f"00-{TRACE}-{SPAN}-01", "a=" + "x" * 600)
    assert found is not None
    assert [name for name, _ in found.headers] == ["traceparent"]
