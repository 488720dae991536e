"""Spreads, statistics and sums of conversations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.captures import NOW_NS, conversation, s2_talk, s3p_talk

from penstock.captures import Choice
from penstock.captures.lines import summary_line
from penstock.captures.spread import Spread
from penstock.captures.stats import MAX_GROUPS, MAX_PERIODS, OTHERS, Group, Statistics
from penstock_codecs.capture import CaptureEvent, Chunk, Lost, Noted, Opened, Sender
from penstock_codecs.dialogue.hearing import Dialogues
from penstock_codecs.dialogue.summaries import Summaries


@given(st.lists(st.integers(0, 2**50), min_size=1), st.sampled_from([1, 50, 90, 99, 100]))
def test_percentiles_are_hardly_too_large(values: list[int], percent: int) -> None:
    spread = Spread()
    for value in values:
        spread.add(value)
    exact = sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]
    told = spread.percentile(percent)
    assert told is not None and exact <= told <= exact + exact // 32
    assert spread.most == max(values) and spread.count == len(values)


def test_spreads_take_little_memory() -> None:
    spread = Spread()
    for shift in range(64):
        for step in range(1000):
            spread.add((1 << shift) + (step << shift) // 1000)
    assert len(spread._classes) < 2100
    assert Spread().percentile(50) is None


def counted(events: list[CaptureEvent], choice: Choice | None = None) -> Statistics:
    choice = choice or Choice()
    statistics, dialogues = Statistics(choice), Dialogues(choice.conversation)
    for event in events:
        statistics.count(event, dialogues)
    statistics.end(dialogues)
    return statistics


def test_statistics() -> None:
    events = [*s3p_talk(1, rounds=10), *s3p_talk(3, rounds=5), *s2_talk(2)]
    statistics = counted(events)
    line = statistics.as_line()
    groups = {(group["protocol"], group["stream"]): group for group in line["groups"]}
    s3p = groups["s3p", "orders"]
    assert (s3p["connections"], s3p["messages"], s3p["records_appended"], s3p["errors"]) == (2, 30, 15, 0)
    assert 2_000_000 <= s3p["answers"]["p50"] <= 2_062_500 and s3p["answers"]["max"] == 2_000_000
    s2 = groups["s2", "penstock/in"]
    assert (s2["records_appended"], s2["name"], s2["errors"]) == (2, "listeners.s2", 0)
    assert groups["s2", "penstock/none"]["errors"] == 1, "a head and a body say it"
    total = line["total"]
    assert (total["connections"], total["records_appended"]) == (3, 17)
    assert line["start"] == "2023-11-14T22:13:20.123456Z"
    assert sum(period["records"] for period in line["periods"]) == 17
    assert sum(period["messages"] for period in line["periods"]) == total["messages"]
    assert line["bytes"] == sum(
        len(e.data) for e in [*s3p_talk(1, 10), *s3p_talk(3, 5), *s2_talk(2)] if isinstance(e, Chunk)
    )


def test_statistics_of_a_part() -> None:
    events = [*s3p_talk(1), *s2_talk(2)]
    only = counted(events, Choice(streams=("penstock/i*",)))
    assert [group.stream for group in only.groups] == ["penstock/in"]
    assert {group.protocol for group in counted(events, Choice(protocols=("s3p",))).groups} == {"s3p"}


@pytest.mark.parametrize(("span", "least"), [(10, 5), (1000, MAX_PERIODS // 2), (10**12, MAX_PERIODS // 2)])
def test_periods_are_few(span: int, least: int) -> None:
    """However long the capture, and in whatever order its times are."""
    one = conversation()
    events = [Chunk(one, NOW_NS + (step * 7919 % 500) * span * 10**6, Sender.CLIENT, step, b"x") for step in range(500)]
    periods = counted([Opened(one, NOW_NS), *events]).periods
    assert least <= len(periods) <= MAX_PERIODS
    assert sum(period.size for period in periods) == 500
    assert [period.start_ns for period in periods] == sorted(period.start_ns for period in periods)


def test_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.captures.stats.MAX_GROUPS", 1)
    statistics = counted([*s3p_talk(1), *s2_talk(2)])
    assert set(statistics.groups) == {Group("s3p", "listeners.s3p", "orders"), Group(OTHERS, OTHERS, OTHERS)}
    assert MAX_GROUPS > 1


def test_sums_of_conversations() -> None:
    summaries, dialogues, ended = Summaries(), Dialogues(), []
    late = conversation(9)
    cut = [Opened(late, NOW_NS, 5, 0), Lost(late, NOW_NS, Sender.CLIENT, 5, 7, "no room")]
    for event in [*cut, *s3p_talk(1), Noted(late, NOW_NS, "stream", "a/b")]:
        summaries.event(event)
        for item in dialogues.receive(event):
            summaries.said(item)
        ended += summaries.ended(event.conversation)
    (line,) = [summary_line(summary) for summary in ended]
    for event in s2_talk(2):
        summaries.event(event)
        for item in dialogues.receive(event):
            summaries.said(item)
        ended += summaries.ended(event.conversation)
    assert summary_line(ended[-1])["failures"] == 1
    assert (line["connection"], line["messages"], line["ended"], line["whole"]) == (1, 3, "server closed", True)
    assert line["route"] == ["orders"] and line["duration_ns"] == 10_003_000
    (rest,) = [summary_line(summary) for summary in summaries.rest()]
    assert (rest["ended"], rest["whole"], rest["lost_bytes"], rest["stream"]) == ("open", False, 7, ["a/b"])
    assert list(summaries.rest()) == []
