"""A gateway's knowledge of a connection recorded from its middle, written to comments of packets and read back."""

from __future__ import annotations

import random
import zlib
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.captures import conversation, read, written

from penstock.capture.pcapng import CaptureEvent, CaptureWriter, Chunk, Closed, Joined, Noted, Opened, Sender
from penstock.capture.pcapng.joining import JoinedParts, joined_values


def joined(client: bytes, server: bytes, version: str = "2") -> Joined:
    return Joined(conversation(), 1, version, 700, 900, client, server)


def story(event: Joined) -> list[CaptureEvent]:
    of = event.conversation
    opened = Opened(of, 1, event.client_offset, event.server_offset)
    said = [Chunk(of, 2, Sender.CLIENT, event.client_offset, b"ask"), Chunk(of, 3, Sender.SERVER, 900, b"answer")]
    return [opened, event, *said, Closed(of, 4, Sender.CLIENT), Closed(of, 4, Sender.SERVER)]


OF = conversation()


def told(events: list[CaptureEvent]) -> list[CaptureEvent]:
    return [replace(event, conversation=OF, time_ns=0) for event in events if isinstance(event, Joined | Noted)]


@given(st.binary(max_size=300), st.binary(max_size=300), st.sampled_from(["1.1", "2"]), st.lists(st.integers(0, 3000)))
def test_it_comes_back_before_what_is_said(client: bytes, server: bytes, version: str, cuts: list[int]) -> None:
    event = joined(client, server, version)
    events = read(written(story(event)), cuts)
    kinds = [type(each) for each in events]
    assert kinds.index(Joined) < kinds.index(Chunk)
    (found,) = [each for each in events if isinstance(each, Joined)]
    assert replace(found, conversation=event.conversation, time_ns=1) == event


def test_large_ones_take_several_comments() -> None:
    noise = random.Random(7).randbytes(100_000)
    event = joined(noise[:60_000], noise[60_000:])
    assert len(joined_values(event)) > 10
    assert told(read(written(story(event)))) == told([event])


def test_one_that_readers_would_not_take_is_not_written() -> None:
    event = joined(random.Random(7).randbytes(300_000), b"")
    assert joined_values(event) == [] and told(read(written(story(event)))) == []


def test_the_next_file_does_not_say_it_again() -> None:
    """Other bytes follow there."""
    first = CaptureWriter("test")
    events = story(joined(b"client", b"server"))
    written(events[:3], first)
    assert told(read(written(events[3:], CaptureWriter("test", after=first)))) == []


@pytest.mark.parametrize(
    "value", ["", "1/1", "1/1:####", "2/2:aaaa", "x/y:", "1/99:aaaa", "1/1:eJwDAAAAAAE=", "1/1:" + "A" * 40]
)
def test_what_is_no_part_is_ignored(value: str) -> None:
    with pytest.raises(ValueError):
        JoinedParts().add(value, conversation(), 0)
    events = story(joined(b"", b""))
    events[1] = Noted(events[0].conversation, 1, "joined", value)
    assert told(read(written(events))) == []


def test_a_bomb_is_not_unpacked() -> None:
    whole = joined_values(joined(bytes(200_000), b""))
    assert JoinedParts().add(whole[0], conversation(), 0) is not None
    bomb = b64encode(zlib.compress(bytes(50_000_000))).decode()
    parts = [bomb[at : at + 7000] for at in range(0, len(bomb), 7000)]
    held = JoinedParts()
    with pytest.raises(ValueError):
        for number, part in enumerate(parts, 1):
            held.add(f"{number}/{len(parts)}:{part}", conversation(), 0)
