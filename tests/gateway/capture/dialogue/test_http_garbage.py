"""No bytes make a dialogue over HTTP raise an error or hold much memory; it reports what is wrong."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.captures.dialogues import CLIENT, SERVER, Said, conversation, cut_up, events, hear
from support.examples import examples
from support.http.messages import LAST, OPEN, SESSION, chunk
from support.s2.whole_api import talk

from penstock.capture.dialogue import Message, Problem
from penstock.capture.dialogue.http.dialogue import HttpDialogue
from penstock.capture.pcapng import Chunk, Lost, Opened, Sender
from penstock.wire.http import PREFACE

SENDERS = st.sampled_from([CLIENT, SERVER])
STARTS = [b"", PREFACE, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", SESSION, OPEN]


def check(told: list[Message | Problem], said: Said) -> None:
    """Check that every reported place lies within the conversation."""
    sides = {sender: sum(len(data) for who, data in said if who is sender) for sender in Sender}
    for each in told:
        assert 0 <= each.offset <= sides[each.sender]
        if isinstance(each, Message):
            list(each.records)
            assert each.offset + each.length <= sides[each.sender]
            assert each.start_ns <= each.end_ns
        else:
            assert each.rule
            assert len(each.context) <= 256


@given(st.sampled_from(STARTS), st.lists(st.tuples(SENDERS, st.binary(max_size=80)), max_size=10), st.booleans())
def test_garbage_is_told(start: bytes, said: list[tuple[Sender, bytes]], middle: bool) -> None:
    of = conversation("")
    spoken = [(CLIENT, start), *said]
    if middle:
        hear(HttpDialogue(of), events(of, spoken, offsets=(3, 5)))
    else:
        check(hear(HttpDialogue(of), events(of, spoken)), spoken)


@pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
@examples(most=60)
@given(st.integers(0, 2**32))
def test_talk_with_wrong_bytes_is_told(alpn: str, seed: int) -> None:
    chance = random.Random(seed)
    said = talk(alpn).said
    spoken = [(sender, bytearray(data)) for sender, data in said[: chance.randrange(len(said))]]
    for _ in range(chance.randrange(1, 6)):
        if not spoken:
            break
        _, data = chance.choice(spoken)
        at = chance.randrange(len(data))
        data[at : at + chance.choice([0, 1, 1, 1, 5])] = chance.choice([b"", b"\0", b"\xff", b"\r\n", b"0", b"{"])
    of = conversation("s2")
    garbled = [(sender, bytes(data)) for sender, data in spoken]
    check(hear(HttpDialogue(of), events(of, garbled)), garbled)


@pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
@examples(most=30)
@given(st.integers(0, 2**32))
def test_talk_with_gaps_is_told(alpn: str, seed: int) -> None:
    chance = random.Random(seed)
    of = conversation("s2")
    dialogue = HttpDialogue(of)
    at = dict.fromkeys(Sender, 0)
    told = list(dialogue.receive(Opened(of, 0)))
    for sender, data in cut_up(talk(alpn).said, 1500):
        if chance.random() < 0.05:
            gap = Lost(of, 1, sender, at[sender], len(data) if chance.random() < 0.5 else 0, "full")
            told += dialogue.receive(gap)
            if not gap.length:
                continue
        else:
            told += dialogue.receive(Chunk(of, 1, sender, at[sender], data))
        at[sender] += len(data)
    told += dialogue.end()
    assert all(not each.fatal for each in told if isinstance(each, Problem))


def test_undecoded_bodies_are_not_kept() -> None:
    of = conversation("s2")
    dialogue = HttpDialogue(of)
    head = b"POST /upload HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    list(dialogue.receive(Opened(of, 0)))
    list(dialogue.receive(Chunk(of, 1, CLIENT, 0, head)))
    piece, at = chunk(bytes(1 << 16)), len(head)
    tracemalloc.start()
    for number in range(300):
        assert not list(dialogue.receive(Chunk(of, number, CLIENT, at, piece)))
        at += len(piece)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 100_000
    (told,) = dialogue.receive(Chunk(of, 1, CLIENT, at, LAST))
    assert isinstance(told, Message)
    assert told.fields["bytes"] == 300 << 16


def test_a_frame_in_pieces_of_one_byte_costs_little_more_than_its_bytes() -> None:
    of = conversation("s2")
    dialogue = HttpDialogue(of)
    list(dialogue.receive(Opened(of, 0)))
    list(dialogue.receive(Chunk(of, 1, CLIENT, 0, SESSION)))
    at, pieces = len(SESSION), [b"\x10", b"\0", b"\0", b"\0"] + [b"\x0a"] * 8_000
    tracemalloc.start()
    for piece in pieces:
        data = chunk(piece)
        assert not list(dialogue.receive(Chunk(of, 1, CLIENT, at, data)))
        at += len(data)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2_000_000
