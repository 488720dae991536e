"""Sinks are attached as connections open and as their requests show what they are about; nothing is lost meanwhile."""

from __future__ import annotations

import pytest
from support.captures.recorder import ORDERS, Process, use
from support.http.client import memory_pair
from support.listening import Heard

from penstock.capture.pcapng import Lost, Opened, Sender
from penstock.model.limits import KIB, MIB
from penstock.model.records import StreamRef
from penstock.observe.taps.tap import MOST_USES, Use
from penstock.recorder.pending import MOST_OF_ONE, PendingSink
from penstock.recorder.selection import Selection


def test_all_that_is_open_and_all_that_opens() -> None:
    process = Process()
    first = process.front()
    first.received(b"unheard")
    heard = process.record(Selection())
    second, back = process.front(), process.back("lite")
    for tap in (first, second, back):
        tap.received(b"heard")
    assert heard.opened[:2] == [(1, 7, 0, False), (2, 0, 0, False)] and len(heard.opened) == 3
    for tap in (first, second):
        assert heard.said(Sender.CLIENT, tap) == b"heard"
    assert heard.said(Sender.SERVER, back) == b"heard"


@pytest.mark.parametrize("selection", [Selection(), ORDERS])
def test_traffic_goes_on_while_open_connections_are_attached(selection: Selection) -> None:
    process = Process()
    taps = [process.front() for _ in range(300)]
    for tap in taps[:-1]:
        use(tap)
    heard = Heard()
    recording = process.recorder.start(selection, heard)
    steps = process.recorder.attach_open(recording)
    next(steps)
    assert 0 < len(heard.opened) < 100
    heard.takes = False
    taps[0].received(b"dropped")
    heard.takes = True
    taps[-2].end()
    use(taps[-1])
    new = process.front()
    use(new)
    for _ in steps:
        assert not new.over
    numbers = [number for number, *_ in heard.opened]
    assert sorted(numbers) == [tap.conversation.number for tap in (*taps, new) if tap is not taps[-2]]
    assert all((recording.sink in tap.sinks) == (tap not in (taps[0], taps[-2])) for tap in (*taps, new))


def test_a_recording_may_be_stopped_before_all_are_attached() -> None:
    process = Process()
    taps = [process.front() for _ in range(300)]
    heard = Heard()
    steps = process.recorder.attach_open(process.recorder.start(Selection(), heard))
    next(steps)
    process.stop(heard)
    assert list(steps) == []
    assert not any(tap.sinks for tap in taps)


def test_a_stream_is_recorded_from_the_connections_first_byte() -> None:
    process = Process()
    heard = process.record()
    tap, other = process.front(), process.front()
    for one in (tap, other):
        one.received(b"question ")
        one.sent([b"answer"], 6)
        one.received(b"about")
    assert not heard.events
    use(other, "invoices")
    use(tap, route="all", identity="analytics")
    tap.received(b" more")
    assert heard.opened == [(1, 0, 0, False)]
    assert heard.said(Sender.CLIENT) == b"question about more"
    assert heard.said(Sender.SERVER) == b"answer"
    assert heard.notes == [("route", "all"), ("stream", "penstock/orders"), ("identity", "analytics")]
    times = [event.time_ns for event in heard.events if not isinstance(event, Opened)]
    assert times == sorted(times)
    assert process.holding.bytes > 0, "the other may still become one"
    other.end()
    assert process.holding.bytes == 0


def test_what_is_held_back_ends_with_the_connection_or_the_recording() -> None:
    process = Process()
    heard = process.record()
    taps = [process.front() for _ in range(3)]
    for tap in taps:
        tap.received(bytes(KIB))
    taps[0].end()
    assert 2 * KIB < process.holding.bytes < 3 * KIB
    process.stop(heard)
    assert process.holding.bytes == 0
    assert not any(tap.sinks for tap in taps)
    use(taps[1])
    assert not heard.events


def test_a_connection_that_is_wanted_by_one_is_held_for_another() -> None:
    process = Process()
    orders, invoices = process.record(), process.record(Selection(streams=("invoices",)))
    tap = process.front()
    tap.received(b"first")
    use(tap)
    assert orders.said(Sender.CLIENT) == b"first"
    tap.received(b"second")
    use(tap, "invoices")
    assert invoices.said(Sender.CLIENT) == b"firstsecond"
    assert process.holding.bytes == 0
    assert len(tap.sinks) == 2


def test_the_oldest_bytes_of_a_long_silence_go() -> None:
    process = Process()
    heard = process.record()
    tap = process.front()
    for _ in range(100):
        tap.received(bytes(10 * KIB))
        tap.sent([b"ok"], 2)
    assert MOST_OF_ONE * 0.9 < process.holding.bytes <= MOST_OF_ONE
    use(tap)
    ((_, client, server, _),) = heard.opened
    assert client + len(heard.said(Sender.CLIENT)) == 100 * 10 * KIB
    assert server + len(heard.said(Sender.SERVER)) == 200
    assert MOST_OF_ONE * 0.9 < len(heard.said(Sender.CLIENT)) <= MOST_OF_ONE
    assert isinstance(heard.events[0], Opened) and heard.events[0].time_ns <= heard.events[1].time_ns


def test_many_small_messages_take_their_room_too() -> None:
    process = Process(most_of_one=10 * KIB)
    process.record()
    tap = process.front()
    for _ in range(1000):
        tap.received(b"x")
    assert process.holding.bytes <= 10 * KIB
    assert sum(len(held.events) for held in process.recorder._held.values()) < 100


def test_all_connections_together_are_bounded() -> None:
    process = Process(most_of_one=256 * KIB, most_of_all=1 * MIB)
    heard = process.record()
    taps = [process.front() for _ in range(20)]
    for tap in taps:
        tap.received(bytes(100 * KIB))
    assert process.holding.bytes <= 1 * MIB
    for tap in (taps[0], taps[-1]):
        use(tap)
    assert heard.opened == [(1, 100 * KIB, 0, False), (20, 0, 0, False)]


def test_what_was_let_go_makes_the_connection_the_last_to_let_go() -> None:
    process = Process(most_of_one=256 * KIB, most_of_all=250 * KIB)
    heard = process.record()
    first, second, third = [process.front() for _ in range(3)]
    for tap in (first, second, third, first):
        tap.received(bytes(100 * KIB))
    for tap in (first, second, third):
        use(tap)
    assert heard.opened == [(1, 100 * KIB, 0, False), (2, 100 * KIB, 0, False), (3, 0, 0, False)]
    assert len(heard.said(Sender.CLIENT, first)) == 100 * KIB


def test_at_the_total_bound_no_client_is_examined_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 10,000 connections that took 0.2 ms for each piece, of all of them."""
    asked: list[PendingSink] = []
    shorten = PendingSink.shorten

    def counted(held: PendingSink, most: int) -> None:
        asked.append(held)
        shorten(held, most)

    monkeypatch.setattr(PendingSink, "shorten", counted)
    process = Process(most_of_all=100 * KIB)
    process.record()
    taps = [process.front() for _ in range(500)]
    for tap in taps:
        tap.received(bytes(1 * KIB))
    assert len(asked) <= 2 * len(taps)
    for tap in taps:
        tap.end()
    assert process.holding.bytes == 0


def test_what_was_used_before_the_recording_began_counts() -> None:
    process = Process()
    tap = process.front()
    tap.received(b"unheard")
    use(tap)
    heard = process.record()
    tap.received(b"heard")
    assert heard.opened == [(1, 7, 0, False)]
    assert heard.said(Sender.CLIENT) == b"heard"
    assert heard.notes == [("stream", "penstock/orders")]


def test_a_route_brings_its_back() -> None:
    process = Process({"orders": ("lite",), "rest": ("second",)})
    back = process.back("lite")
    heard = process.record(Selection(routes=("orders",)))
    other, later, front = process.back("second"), process.back("lite"), process.front()
    use(front, route="orders")
    for tap in (back, other, later, front):
        tap.received(b"x")
    numbers = [number for number, *_ in heard.opened]
    assert sorted(numbers) == sorted(tap.conversation.number for tap in (back, later, front))


def test_each_use_is_noted_once_and_so_many_are_remembered() -> None:
    process = Process()
    heard = process.record(Selection())
    tap = process.front()
    for turn in range(3):
        for number in range(MOST_USES + 20):
            use(tap, f"s{number}", route="all", identity=f"i{turn % 2}" if number == 0 else "")
    assert len(tap.uses) == MOST_USES
    streams = [value for key, value in heard.notes if key == "stream"]
    assert streams == [f"penstock/s{number}" for number in range(MOST_USES)]
    assert [pair for pair in heard.notes if pair[0] != "stream"] == [("route", "all"), ("identity", "i0")]
    assert tap.noted["stream"] == streams


def test_a_stream_that_is_not_remembered_is_recorded_all_the_same() -> None:
    process = Process()
    heard = process.record(Selection(streams=("last",)))
    tap = process.front()
    tap.received(b"question")
    for number in range(MOST_USES):
        use(tap, f"s{number}")
    use(tap, "last")
    use(tap, "last")
    assert heard.opened == [(1, 0, 0, False)]
    assert heard.said(Sender.CLIENT) == b"question"
    assert ("stream", "penstock/last") in heard.notes
    assert Use("", StreamRef("penstock", "last"), "") not in tap.uses


def test_a_late_recording_that_is_full_loses_no_others_bytes() -> None:
    process = Process()
    full, heard = process.record(), process.record()
    full.takes = False
    tap = process.front()
    tap.received(b"question")
    use(tap)
    assert heard.said(Sender.CLIENT) == b"question"
    assert not full.events and not any(isinstance(event, Lost) for event in heard.events)


@pytest.mark.parametrize("selection", [Selection(), ORDERS])
def test_the_management_listener_is_never_recorded(selection: Selection) -> None:
    process = Process()
    heard = process.record(selection)
    tap = process.connections.accepted(memory_pair()[1], 1, "management", "management").tap
    tap.received(b"GET /tail")
    use(tap)
    assert not heard.events and not tap.sinks
    assert [one.conversation.protocol for one in process.connections] == ["management"]
