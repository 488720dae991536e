"""Events written and read again are the same events, wherever the file is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.captures import conversation, read, story, written
from support.examples import examples

from penstock.capture.pcapng import (
    CaptureEvent,
    CaptureReader,
    CaptureWriter,
    Chunk,
    Closed,
    Conversation,
    Lost,
    Noted,
    Opened,
    Sender,
    Side,
    SocketAddress,
)

FAR = st.one_of(st.just(0), st.integers(0, 10), st.integers(2**32 - 200_000, 2**32 + 10), st.integers(0, 2**60))
HOSTS = st.sampled_from(["127.0.0.1", "10.1.2.3", "::1", "fe80::1%eth0", "2001:db8::17", "memory"])
TEXT = st.text(st.characters(), max_size=20)
GAP = st.one_of(st.integers(1, 100_000), st.integers(2**31 - 2, 2**33))


@st.composite
def conversations(draw: st.DrawFn, number: int) -> Conversation:
    host = draw(HOSTS)
    return Conversation(
        number,
        SocketAddress(host, draw(st.integers(1024, 1027)) * 10 + number),
        SocketAddress(draw(st.sampled_from([host, "127.0.0.9"])), 80),
        draw(st.sampled_from(Side)),
        draw(TEXT),
        draw(st.sampled_from(["", "s2", "s3p", "odd one"])),
        draw(st.booleans()),
        draw(st.sampled_from(["", "run", "r u n"])),
        draw(st.sampled_from(["", "/v1/stream/", "/~a b/"])),
    )


@st.composite
def scripts(draw: st.DrawFn) -> list[CaptureEvent]:
    """Several conversations at once, each whole in itself, as taps and the redactor tell them."""
    lines = []
    for number in range(draw(st.integers(1, 3))):
        one = draw(conversations(number))
        places = {Sender.CLIENT: draw(FAR), Sender.SERVER: draw(FAR)}
        events: list[CaptureEvent] = [Opened(one, draw(st.integers(0, 2**63)), *places.values(), draw(st.booleans()))]
        for _ in range(draw(st.integers(0, 6))):
            sender = draw(st.sampled_from(Sender))
            what = draw(st.sampled_from(["chunk", "chunk", "chunk", "lost", "noted"]))
            time_ns = draw(st.integers(0, 2**63))
            if what == "chunk":
                data = draw(st.one_of(st.binary(max_size=30), st.integers(0, 200_000).map(bytes)))
                events.append(Chunk(one, time_ns, sender, places[sender], data))
                places[sender] += len(data)
            elif what == "lost":
                length = draw(GAP)
                events.append(Lost(one, time_ns, sender, places[sender], length, draw(TEXT)))
                places[sender] += length
            else:
                events.append(Noted(one, time_ns, draw(st.sampled_from(["route", "stream"])), draw(TEXT)))
        ends = draw(st.sampled_from([[], [False], [False, False], [True], [False, True]]))
        sides = draw(st.permutations(list(Sender)))
        events += [Closed(one, 5, side, reset) for side, reset in zip(sides, ends, strict=False)]
        lines.append(events)
    told: list[CaptureEvent] = []
    while lines := [line for line in lines if line]:
        told.append(draw(st.sampled_from(lines)).pop(0))
    return told


def carried(lines: list[object]) -> int:
    """Return how many of the lines are certainly in the file: losses that no packet follows may not be."""
    return max((place + 1 for place, line in enumerate(lines) if line[0] != "lost"), default=0)


@given(scripts(), st.lists(st.integers(0, 5000), max_size=4))
def test_what_is_read_is_what_was_written(events: list[CaptureEvent], cuts: list[int]) -> None:
    found = read(written(events), cuts)
    told, again = story(events), story(found)
    for name, lines in told.items():
        certain = carried(lines)
        assert again[name][:certain] == lines[:certain]
        assert all(line in lines[certain:] for line in again[name][certain:])
    known = {event.conversation.number: event.conversation for event in events}
    for event in found:
        assert repr(event.conversation) == repr(known[event.conversation.number])


@given(scripts())
def test_times_are_those_of_the_events(events: list[CaptureEvent]) -> None:
    def times(told: list[CaptureEvent]) -> dict[object, int]:
        chunks = [event for event in told if isinstance(event, Chunk) and event.data]
        return {(each.conversation.number, each.sender, each.offset): each.time_ns for each in chunks}

    assert times(events).items() <= times(read(written(events))).items()


@given(scripts())
def test_notes_come_in_order_before_what_followed_them(events: list[CaptureEvent]) -> None:
    def order(told: list[CaptureEvent], number: int) -> list[object]:
        kept = [each for each in told if each.conversation.number == number]
        lines: list[object] = []
        for each in kept:
            if isinstance(each, Noted):
                lines.append((each.key, each.value))
            elif isinstance(each, Closed) or (isinstance(each, Chunk) and each.data):
                lines.append((each.sender, getattr(each, "offset", None)))
        return lines

    found = read(written(events))
    for number in {event.conversation.number for event in events}:
        told, again = order(events, number), iter(order(found, number))
        while told and isinstance(told[-1][0], str):  # nothing came that could carry it
            told.pop()
        assert all(line in again for line in told)


@given(scripts(), st.data())
def test_a_recording_in_several_files(events: list[CaptureEvent], data: st.DataObject) -> None:
    """Each writer goes on where the one before it ended; read one after the other, nothing is missing."""
    writer, found = None, []
    places = sorted({0, len(events), *data.draw(st.lists(st.integers(0, len(events)), max_size=3))})
    for begin, end in pairwise(places):
        writer = CaptureWriter("x", after=writer)
        found += read(written(events[begin:end], writer))
    told = story([event for event in events if not isinstance(event, (Opened, Lost))])
    again = story([event for event in found if not isinstance(event, (Opened, Lost))])
    assert {name: lines for name, lines in told.items() if lines} == {n: lines for n, lines in again.items() if lines}


def small_file() -> tuple[bytes, list[int]]:
    """A file, and where its blocks end."""
    one, two = conversation(1), conversation(2, "::1")
    writer = CaptureWriter("x")
    events = [
        Opened(one, 1),
        Chunk(one, 2, Sender.CLIENT, 0, b"question"),
        Opened(two, 3, 70, 2**40),
        Noted(one, 4, "route", "orders"),
        Chunk(one, 5, Sender.SERVER, 0, b"answer"),
        Chunk(two, 6, Sender.SERVER, 2**40, b"more"),
        Lost(two, 7, Sender.SERVER, 2**40 + 4, 2**34, "no room"),
        Chunk(two, 8, Sender.SERVER, 2**40 + 4 + 2**34, b"later"),
        Closed(one, 9, Sender.CLIENT),
        Closed(two, 10, Sender.SERVER, reset=True),
    ]
    file = written(events, writer)
    ends, place = [0], 0
    while place < len(file):
        place += int.from_bytes(file[place + 4 : place + 8], "little")
        ends.append(place)
    return file, ends


def test_a_file_that_ends_anywhere() -> None:
    """All that is whole is read, and the damage is said with the byte where the half block begins."""
    file, ends = small_file()
    whole = read(file)
    for end in range(len(file)):
        reader = CaptureReader()
        found = read(file[:end], reader=reader)
        assert list(map(repr, found)) == list(map(repr, whole[: len(found)]))
        last = max(each for each in ends if each <= end)
        if end in ends[1:]:
            assert reader.damage is None
        elif end < 4:
            assert reader.damage is not None and "this is not a capture" in reader.damage
        else:
            assert reader.damage == f"the file ends in the middle of a block (byte {last})"


def test_a_file_cut_anywhere_in_two() -> None:
    file, _ = small_file()
    whole = list(map(repr, read(file)))
    for cut in range(len(file)):
        assert list(map(repr, read(file, [cut]))) == whole
    assert list(map(repr, read(file, range(len(file))))) == whole


@examples(least=100, most=400)
@given(st.data())
def test_garbage_is_never_an_error(data: st.DataObject) -> None:
    """Bytes altered, taken out and put in: events or damage, and whatever is said of a side is in order."""
    file = bytearray(small_file()[0])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(file) - 1))
        file[place : place + data.draw(st.sampled_from([0, 1, 1, 1, 4]))] = data.draw(st.binary(max_size=4))
    reached: dict[tuple[Conversation, Sender], int] = {}
    for event in read(bytes(file)):
        if isinstance(event, Opened):
            reached[event.conversation, Sender.CLIENT] = event.client_offset
            reached[event.conversation, Sender.SERVER] = event.server_offset
        elif isinstance(event, (Chunk, Lost)):
            length = len(event.data) if isinstance(event, Chunk) else event.length
            assert event.offset == reached[event.conversation, event.sender]
            reached[event.conversation, event.sender] += length


@given(st.binary(max_size=200), st.sampled_from([b"", b"\x0a\x0d\x0d\x0a", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1"]))
def test_any_bytes_are_read(rest: bytes, beginning: bytes) -> None:
    read(beginning + rest)


@pytest.mark.parametrize("size", [1, 1000, 65_495, 65_496, 1_000_000])
def test_chunks_of_any_size(size: int) -> None:
    one = conversation()
    data = memoryview(bytes(range(256)) * (size // 256 + 1))[:size]
    found = read(written([Opened(one, 0), Chunk(one, 1, Sender.CLIENT, 0, data)]))
    assert story(found) == {(1, "run-1"): [("opened", 0, 0, False), (Sender.CLIENT, 0, bytes(data))]}
