"""Spreads, statistics and sums of conversations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.captures import NOW_NS, conversation, s2_talk, s3p_talk

from penstock.capture.dialogue.dialogues import Dialogues
from penstock.capture.dialogue.summaries import Summaries
from penstock.capture.pcapng import CaptureEvent, Chunk, Closed, Lost, Noted, Opened, Sender
from penstock.recorder.captures.choosing import CaptureFilter
from penstock.recorder.captures.lines import summary_line
from penstock.recorder.captures.stats import MAX_GROUPS, MAX_PERIODS, OTHERS, CountKey, Percentiles, Statistics


@given(st.lists(st.integers(0, 2**50), min_size=1), st.sampled_from([1, 50, 90, 99, 100]))
def test_percentiles_are_hardly_too_large(values: list[int], percent: int) -> None:
    spread = Percentiles()
    for value in values:
        spread.add(value)
    exact = sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]
    told = spread.percentile(percent)
    assert told is not None and exact <= told <= exact + exact // 32
    assert spread.most == max(values) and spread.count == len(values)


def test_spreads_take_little_memory() -> None:
    spread = Percentiles()
    for shift in range(64):
        for step in range(1000):
            spread.add((1 << shift) + (step << shift) // 1000)
    assert len(spread._classes) < 2100
    assert Percentiles().percentile(50) is None


def counted(events: list[CaptureEvent], choice: CaptureFilter | None = None) -> Statistics:
    choice = choice or CaptureFilter()
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


BAD_COMMAND = (b"*1\r\n$4\r\nNOPE\r\n", b"-ERR_BAD_FORMAT unknown command\r\n")
BAD_JSON = (
    b"POST /v1/streams/s/records HTTP/1.1\r\nhost: a\r\ns2-basin: penstock\r\ncontent-type: application/json\r\n"
    b"content-length: 3\r\n\r\n{x}",
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\nno\n",
)
NO_HTTP = (b"hello, world\r\n\r\n", BAD_JSON[1])


@pytest.mark.parametrize(("protocol", "talk"), [("s3p", BAD_COMMAND), ("s2", BAD_JSON), ("s2", NO_HTTP)])
def test_what_is_refused_is_one_error(protocol: str, talk: tuple[bytes, bytes]) -> None:
    """The problem in the request and each message of the error response count once together."""
    one = replace(conversation(), protocol=protocol)
    events: list[CaptureEvent] = [Opened(one, NOW_NS)]
    events += [Chunk(one, NOW_NS, sender, 0, data) for sender, data in zip(Sender, talk, strict=True)]
    events += [Closed(one, NOW_NS, sender) for sender in Sender]
    statistics = counted(events)
    assert statistics.total.errors == sum(count.errors for count in statistics.groups.values()) == 1
    summaries, dialogues = Summaries(), Dialogues()
    for event in events:
        summaries.event(event)
        for item in dialogues.receive(event):
            summaries.add(item)
    (summary,) = summaries.rest()
    assert (summary.problems, summary.failures) == (1, 0)


def test_statistics_of_a_part() -> None:
    events = [*s3p_talk(1), *s2_talk(2)]
    only = counted(events, CaptureFilter(streams=("penstock/i*",)))
    assert [group.stream for group in only.groups] == ["penstock/in"]
    assert {group.protocol for group in counted(events, CaptureFilter(protocols=("s3p",))).groups} == {"s3p"}


@pytest.mark.parametrize(("span", "least"), [(10, 5), (1000, MAX_PERIODS // 2), (10**12, MAX_PERIODS // 2)])
def test_periods_are_few(span: int, least: int) -> None:
    """For captures of any length, with times in any order."""
    one = conversation()
    events = [Chunk(one, NOW_NS + (step * 7919 % 500) * span * 10**6, Sender.CLIENT, step, b"x") for step in range(500)]
    periods = counted([Opened(one, NOW_NS), *events]).periods
    assert least <= len(periods) <= MAX_PERIODS
    assert sum(period.size for period in periods) == 500
    assert [period.start_ns for period in periods] == sorted(period.start_ns for period in periods)


def test_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.recorder.captures.stats.MAX_GROUPS", 1)
    statistics = counted([*s3p_talk(1), *s2_talk(2)])
    assert set(statistics.groups) == {CountKey("s3p", "listeners.s3p", "orders"), CountKey(OTHERS, OTHERS, OTHERS)}
    assert MAX_GROUPS > 1


def test_sums_of_conversations() -> None:
    summaries, dialogues, ended = Summaries(), Dialogues(), []
    late = conversation(9)
    cut = [Opened(late, NOW_NS, 5, 0), Lost(late, NOW_NS, Sender.CLIENT, 5, 7, "no room")]
    for event in [*cut, *s3p_talk(1), Noted(late, NOW_NS, "stream", "a/b")]:
        summaries.event(event)
        for item in dialogues.receive(event):
            summaries.add(item)
        ended += summaries.ended(event.conversation)
    (line,) = [summary_line(summary) for summary in ended]
    for event in s2_talk(2):
        summaries.event(event)
        for item in dialogues.receive(event):
            summaries.add(item)
        ended += summaries.ended(event.conversation)
    assert summary_line(ended[-1])["failures"] == 1
    assert (line["connection"], line["messages"], line["ended"], line["whole"]) == (1, 3, "server closed", True)
    assert line["route"] == ["orders"] and line["duration_ns"] == 10_003_000
    (rest,) = [summary_line(summary) for summary in summaries.rest()]
    assert (rest["ended"], rest["whole"], rest["lost_bytes"], rest["stream"]) == ("open", False, 7, ["a/b"])
    assert list(summaries.rest()) == []
