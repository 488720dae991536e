"""The queue between the trio thread and a recording's."""

import time

from support.captures.recording import Talk, check_bytes, given_up, spans

from penstock.capture.pcapng import CaptureEvent, Chunk, Closed, Lost, Opened, Sender
from penstock.model.limits import KIB, MIB
from penstock.recorder.queue import BATCH_BYTES, EVENT_BYTES, EventQueue


class Queue(EventQueue):
    """A Sink by itself."""

    def __init__(self, limit: int = 64 * MIB) -> None:
        super().__init__(limit)
        self.admit()

    def rest(self) -> list[CaptureEvent]:
        """All that waits, written."""
        events = []
        while batch := self.take():
            events += batch
            self.written()
        return events


def test_events_come_out_in_the_order_in_which_they_went_in() -> None:
    queue = Queue()
    talks = [Talk(queue, number) for number in range(3)]
    assert all(talk.open() for talk in talks)
    for turn in range(5):
        for talk in talks:
            assert talk.say(turn + 1)
    events = queue.rest()
    assert [event.conversation.number for event in events] == [0, 1, 2] * 6
    assert [type(event) for event in events] == [Opened] * 3 + [Chunk] * 15
    check_bytes(events)
    assert queue.held == 0


def test_a_batch_is_bounded_and_takes_room_until_it_is_written() -> None:
    queue = Queue()
    talk = Talk(queue, 1)
    talk.open()
    for _ in range(40):
        talk.say(100 * KIB)
    held = queue.held
    assert held == 40 * (100 * KIB + EVENT_BYTES) + EVENT_BYTES
    size = sum(len(event.data) for event in queue.take() if isinstance(event, Chunk))
    assert BATCH_BYTES - 100 * KIB < size <= BATCH_BYTES + 100 * KIB
    assert queue.held == held
    queue.written()
    assert queue.held < held - size
    queue.rest()
    assert queue.held == 0


def test_the_conversation_with_most_waiting_is_given_up_and_the_others_are_whole() -> None:
    queue = Queue(1 * MIB)
    small, large = [Talk(queue, number) for number in range(5)], Talk(queue, 9)
    assert all(talk.open() for talk in [*small, large])
    went_on = True
    for _ in range(40):
        assert all(talk.say(1000) for talk in small)
        went_on = large.say(100 * KIB) and went_on
    assert not went_on
    assert not large.say(1), "it comes back by itself"
    events = queue.rest()
    check_bytes(events)
    assert given_up(events) == [9]
    assert spans(events) == {**{number: [(0, 40_000)] for number in range(5)}, 9: []}
    assert queue.drops.conversations == 1


def test_what_was_taken_before_is_not_lost_again() -> None:
    queue = Queue(1 * MIB)
    talk, other = Talk(queue, 1), Talk(queue, 2)
    talk.open()
    talk.say(5000, Sender.SERVER)
    before = queue.rest()
    talk.say(500 * KIB, Sender.SERVER)
    other.open()
    assert other.say(600 * KIB), "the other one has less waiting"
    assert spans(before, Sender.SERVER)[1] == [(0, 5000)]
    (lost,) = [event for event in queue.rest() if isinstance(event, Lost)]
    assert (lost.conversation, lost.sender, lost.offset) == (talk.conversation, Sender.SERVER, 5000)


def test_what_is_larger_than_the_queue_gives_up_itself_at_the_place_that_was_reached() -> None:
    queue = Queue(64 * KIB)
    talk, other = Talk(queue, 1), Talk(queue, 2)
    assert talk.open() and other.open() and other.say(100) and talk.say(10)
    queue.rest()
    assert not talk.say(100 * KIB)
    (lost,) = queue.rest()
    assert isinstance(lost, Lost) and (lost.offset, lost.length) == (10, 0)
    assert other.say(100), "another client paid for it"


def test_a_conversation_that_was_given_up_comes_back_with_its_next_beginning() -> None:
    queue = Queue(64 * KIB)
    talk = Talk(queue, 1)
    talk.open()
    assert not talk.say(100 * KIB)
    generation = queue.generation
    queue.admit()
    assert queue.generation > generation
    assert not talk.say(5), "without a beginning"
    assert talk.open(continued=True) and talk.say(7)
    assert spans(queue.rest())[1] == [(100 * KIB + 5, 100 * KIB + 12)]


def test_a_conversation_that_is_over_is_forgotten() -> None:
    queue = Queue()
    closed, reset, stopped = (Talk(queue, number) for number in range(3))
    for talk in (closed, reset, stopped):
        talk.open()
    assert closed.close()
    assert queue.put(Closed(reset.conversation, 1, Sender.CLIENT, reset=True))
    assert queue.put(Lost(stopped.conversation, 1, Sender.CLIENT, 0, 0, "not wanted any more"))
    assert not any(talk.say(1) for talk in (closed, reset, stopped))
    assert queue.conversations == 3 and queue.drops.conversations == 0


def test_a_conversation_that_is_over_is_given_up_like_others() -> None:
    queue = Queue(1 * MIB)
    over, going = Talk(queue, 1), Talk(queue, 2)
    assert over.open() and over.say(900 * KIB) and over.close()
    assert going.open() and going.say(500 * KIB)
    events = queue.rest()
    assert given_up(events) == [1] and spans(events)[2] == [(0, 500 * KIB)]


def test_an_unread_queue_stays_small_however_many_come_and_go() -> None:
    queue = Queue(1 * MIB)
    for number in range(10_000):
        talk = Talk(queue, number)
        talk.open()
        talk.say(1)
        talk.say(3000)
        talk.close()
    assert queue.held <= 1 * MIB + EVENT_BYTES
    assert len(queue._order) <= 4096 + 2 * queue.held // EVENT_BYTES
    assert len(queue._backlogs) + len(queue._loaded) <= 2 * queue.held // EVENT_BYTES
    assert queue.drops.conversations > 0
    events = queue.rest()
    assert queue.held == 0 and not queue._order and not queue._loaded
    check_bytes(events)
    dropped = given_up(events)
    assert len(dropped) == len(set(dropped)) == queue.drops.conversations


def test_many_open_conversations_and_no_room_at_all() -> None:
    queue = Queue(256 * KIB)
    talks = [Talk(queue, number) for number in range(600)]
    for talk in talks:
        assert talk.open()
        queue.rest()
    for turn in range(5):
        for talk in talks:
            talk.say(1000 + turn)
    assert queue.held <= 256 * KIB + len(talks) * EVENT_BYTES, "one last word of each may be over the limit"
    events = queue.rest()
    assert len(given_up(events)) == len(set(given_up(events))) == queue.drops.conversations
    whole = set(range(600)) - set(given_up(events))
    assert all(spans(events)[number] == [(0, 5 * 1000 + 10)] for number in whole)


def test_less_is_held_where_the_thread_may_not_do_what_it_could() -> None:
    queue = Queue(4 * MIB)
    talk, other = Talk(queue, 1), Talk(queue, 2)
    assert talk.open() and other.open() and talk.say(400 * KIB)
    queue.hold_less(True)
    assert other.say(10 * KIB) and talk.say(10 * KIB)
    assert not talk.say(200 * KIB)
    queue.hold_less(False)
    assert other.say(3 * MIB)
    assert given_up(queue.rest()) == [1]


def test_suspended_and_closed_queues_take_nothing() -> None:
    queue = Queue()
    talk = Talk(queue, 1)
    talk.open()
    talk.say(10)
    assert queue.suspend() == 1
    assert queue.held == 0 and queue.take() == []
    assert not talk.say(1) and not talk.open(continued=True)
    queue.admit()
    assert talk.open(continued=True)
    queue.close()
    assert not talk.say(1) and queue.take() == []
    assert queue.drops.conversations == 1


def test_waiting_tasks_are_woken() -> None:
    queue = Queue()
    talk = Talk(queue, 1)
    queue.hurry()
    queue.wait(None, 60.0)
    began = time.monotonic()
    queue.wait(0.0, 60.0)
    assert time.monotonic() - began < 30, "it waited for a batch though there is nothing"
    talk.open()
    queue.wait(None, 0.0)
    talk.say(BATCH_BYTES)
    queue.wait(None, 60.0)
    assert len(queue.take()) == 2
