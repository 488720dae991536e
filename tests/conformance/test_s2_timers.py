"""The items of the S2 checklist that wait for timers.

They run all at once, in threads, so that they take as long as the slowest. Their counterparts on a virtual clock are in
tests/gateway.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from support.s2.client import S2Client
from support.s2.frames import append_input

from penstock_proto import s2_pb2 as pb


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began


def wait_at_the_tail(s2: S2Client) -> float:
    """Item 36: clamped to the tail with wait=1, nothing comes."""
    stream = s2.ensure_stream("timers/clamp")
    s2.append(stream, "x")
    watch = Stopwatch()
    assert s2.read(stream, seq_num=9, clamp="true", wait=1).json()["records"] == []
    return watch.seconds


def wait_for_a_record(s2: S2Client) -> float:
    """Item 44: wait=5, and a record after 1 s."""
    stream = s2.ensure_stream("timers/wait-record")
    with ThreadPoolExecutor(1) as pool:
        watch = Stopwatch()
        pool.submit(lambda: (time.sleep(1), s2.append(stream, "late", "later")))
        records = s2.read(stream, seq_num=0, wait=5).json()["records"]
        assert [record["body"] for record in records] == ["late", "later"]
        return watch.seconds


def wait_in_vain(s2: S2Client) -> float:
    """Item 44: wait=5, and nothing comes."""
    stream = s2.ensure_stream("timers/wait-nothing")
    watch = Stopwatch()
    answer = s2.read(stream, {"accept": "application/protobuf"}, seq_num=0, wait=5)
    assert answer.status == 200
    assert not pb.ReadBatch.FromString(answer.body).records
    return watch.seconds


def wait_of_events(s2: S2Client) -> float:
    """Item 56: wait=2 at the tail."""
    stream = s2.ensure_stream("timers/sse-wait")
    watch = Stopwatch()
    with s2.events(stream, seq_num=0, wait=2) as events:
        ping, done = events.rest()
    assert (ping.name, done.name, done.data) == ("ping", None, "[DONE]")
    return watch.seconds


def wait_of_a_session(s2: S2Client) -> float:
    """2.4, 5.4: wait=2, re-armed by a record after 1 s; the end is clean."""
    stream = s2.ensure_stream("timers/s2s-wait")
    watch = Stopwatch()
    with s2.read_session(stream, "h2", seq_num=0, wait=2) as session:
        assert not session.batch().records
        time.sleep(1)
        s2.append(stream, "x")
        assert session.records(1)
        assert not any(frame.terminal for frame in session.rest())
    return watch.seconds


def pings(s2: S2Client, number: int) -> list[float]:
    """Item 51: the times of the first two pings; the waits between them are random."""
    stream = s2.ensure_stream(f"timers/pings-{number}")
    watch = Stopwatch()
    times = []
    with s2.events(stream, ("h1", "h2")[number % 2], seq_num=0) as events:
        for _ in range(2):
            event = events.next(20)
            assert event is not None
            assert (event.name, event.id) == ("ping", None)
            assert abs(event.json()["timestamp"] / 1000 - time.time()) < 2
            times.append(watch.seconds)
    return times


def heartbeats(s2: S2Client, number: int) -> list[float]:
    """Item 71: the times of the first two heartbeats."""
    stream = s2.ensure_stream(f"timers/heartbeats-{number}")
    watch = Stopwatch()
    times = []
    with s2.read_session(stream, ("h1", "h2")[number % 2], seq_num=0) as session:
        for _ in range(2):
            frame = session.next(20)
            assert frame is not None
            assert (frame.flag, frame.payload) == (0, b"\x12\x00")
            times.append(watch.seconds)
    return times


def heartbeats_do_not_extend_the_wait(s2: S2Client) -> float:
    """5.4: wait=16 ends after 16 s although at least one heartbeat came in between."""
    stream = s2.ensure_stream("timers/no-extension")
    watch = Stopwatch()
    with s2.read_session(stream, seq_num=0, wait=16) as session:
        assert len(session.rest(20)) >= 2
    return watch.seconds


Job = Callable[[str], Future]
JOBS: dict[str, tuple[Callable, tuple]] = {
    "wait at the tail": (wait_at_the_tail, ()),
    "wait for a record": (wait_for_a_record, ()),
    "wait in vain": (wait_in_vain, ()),
    "wait of events": (wait_of_events, ()),
    "wait of a session": (wait_of_a_session, ()),
    "no extension": (heartbeats_do_not_extend_the_wait, ()),
    **{f"pings {number}": (pings, (number,)) for number in range(6)},
    **{f"heartbeats {number}": (heartbeats, (number,)) for number in range(6)},
}


@pytest.fixture(scope="module")
def job(s2: S2Client) -> Iterator[Job]:
    """Starts all jobs; gives each by its name."""
    with ThreadPoolExecutor(len(JOBS)) as pool:
        running = {name: pool.submit(function, s2, *more) for name, (function, more) in JOBS.items()}
        yield running.__getitem__


def test_item_36_clamped_and_waiting(job: Job) -> None:
    assert 0.9 < job("wait at the tail").result() < 2.5


def test_item_44_wait(job: Job) -> None:
    assert 0.9 < job("wait for a record").result() < 2.5
    assert 4.9 < job("wait in vain").result() < 6.5


def test_item_56_wait_of_events(job: Job) -> None:
    assert 1.9 < job("wait of events").result() < 3.5


def test_wait_of_a_session_is_armed_again_by_records(job: Job) -> None:
    assert 2.9 < job("wait of a session").result() < 4.5


def check_heartbeats(all_times: list[list[float]]) -> None:
    for first, second in all_times:
        assert first < 2, "the first one comes at once"
        assert 4.9 < second - first < 16
    assert max(times[1] for times in all_times) - min(times[1] for times in all_times) > 0.1, "they are not random"


def test_item_51_pings(job: Job) -> None:
    check_heartbeats([job(f"pings {number}").result() for number in range(6)])


def test_item_71_heartbeats(job: Job) -> None:
    check_heartbeats([job(f"heartbeats {number}").result() for number in range(6)])


def test_heartbeats_do_not_extend_the_wait(job: Job) -> None:
    assert 15.9 < job("no extension").result() < 18


@pytest.mark.long
@pytest.mark.timeout(180)
def test_items_44_and_69_that_take_a_minute(s2: S2Client) -> None:
    """wait=600 acts as 60, and an append session that is idle for 60 s stays open, both at once."""
    waiting = s2.ensure_stream("timers/wait-600")
    idle = s2.ensure_stream("timers/idle")
    with s2.append_session(idle, "h1") as one, s2.append_session(idle, "h2") as two:
        for session in (one, two):
            session.send(append_input(b"before"))
            session.ack()
        watch = Stopwatch()
        answer = s2.read(waiting, timeout=90, seq_num=0, wait=600)
        assert answer.json()["records"] == []
        assert 59.5 < watch.seconds < 65
        time.sleep(max(0, 62 - watch.seconds))
        for session in (one, two):
            session.send(append_input(b"after"))
            assert session.ack()
    assert s2.bodies(idle, seq_num=0) == ["before"] * 2 + ["after"] * 2
