"""Recordings that begin in the middle of connections over HTTP: the gateway's knowledge of them is recorded too."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import trio
from support.captures.dialogues import hear, parts
from support.captures.recorder import Process, use
from support.listening import Heard
from support.s2.whole_api import whole_talk

from penstock.capture.dialogue import Message, Problem
from penstock.capture.dialogue.http.dialogue import HttpDialogue
from penstock.capture.pcapng import CaptureEvent, Joined, Opened, Sender
from penstock.capture.redaction.redactor import Redactor
from penstock.capture.redaction.rules import RedactionRules
from penstock.net.http.exchange import Request
from penstock.observe.taps.connections import Connections
from penstock.wire.http import RequestHead

MOMENTS = 4000
RULES = RedactionRules(record_headers=(b"name",), patterns=(rb"stamp[a-z]+",))


async def recorded(alpn: str) -> tuple[Heard, list[Heard]]:
    """All that a client of the whole S2 API says over one connection, and the same from many moments on."""
    connections = Connections()
    whole, later = Heard(), list[Heard]()

    def served(far: trio.abc.HalfCloseableStream) -> trio.abc.Stream:
        stream = connections.accepted(far, 1, "listeners.s2", "s2")
        stream.tap.attach(whole)
        return stream

    async def begin_again_and_again() -> None:
        known: set[tuple[int, int]] = set()
        for moment in range(MOMENTS):
            if moment < MOMENTS // 2:
                await trio.lowlevel.checkpoint()
            else:  # the clock jumps where nothing happens
                await trio.sleep(0.01)
            for tap in connections:
                if any(tap.offsets) and tap.offsets not in known:
                    known.add(tap.offsets)
                    later.append(Heard())
                    tap.attach(later[-1])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(begin_again_and_again)
        await whole_talk(alpn, "s2", served)
        nursery.cancel_scope.cancel()
    return whole, later


def told(events: Iterable[CaptureEvent]) -> tuple[list[Message], list[Problem]]:
    every = list(events)
    messages, problems, _ = parts(hear(HttpDialogue(every[0].conversation), every))
    return messages, problems


def places(messages: Iterable[Message], least: dict[Sender, int]) -> set[tuple[Sender, int, str]]:
    return {(each.sender, each.offset, each.kind) for each in messages if each.offset >= least[each.sender]}


@pytest.mark.parametrize("redacts", [False, True])
@pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
async def test_what_is_said_behind_any_moment_is_understood(alpn: str, redacts: bool, autojump_clock: object) -> None:
    whole, later = await recorded(alpn)
    every, problems = told(whole.events)
    assert not problems and len(later) > 30
    joined = 0
    for heard in later:
        events = list(heard.events)
        opened = events[0]
        assert isinstance(opened, Opened)
        if not any(isinstance(event, Joined) for event in events):
            continue  # amid a head
        joined += 1
        if redacts:
            redactor = Redactor(RULES)
            events = [out for event in events for out in redactor.redact(event)]
            assert not redactor.failures and any(isinstance(event, Joined) for event in events)
        messages, problems = told(events)
        assert not problems, (opened, problems)
        least = {Sender.CLIENT: opened.client_offset, Sender.SERVER: opened.server_offset}
        found, wanted = places(messages, least), places(every, least)
        more = {each for each in found - wanted if each[2] != "END"}  # of a body whose beginning was not heard
        assert not more, (opened, more)
        first = min((each.offset for each in every if _begins(each, least)), default=None)
        if first is not None:  # all exchanges that begin behind it are there, whole
            asked = {each for each in wanted if each[0] is Sender.CLIENT and each[1] >= first}
            assert asked <= found, (opened, asked - found)
    assert joined > len(later) * 0.9


def _begins(message: Message, least: dict[Sender, int]) -> bool:
    return isinstance(message.event, RequestHead) and message.offset >= least[Sender.CLIENT]


@pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
async def test_a_connection_that_was_held_back_for_too_long(alpn: str, autojump_clock: object) -> None:
    """Its beginning is gone when it is wanted: it is recorded from the request on that shows what it is about."""
    process = Process(most_of_one=2048)
    heard = process.record()

    def on_request(request: Request) -> None:
        if request.path.endswith("/tail"):
            (tap,) = process.connections
            use(tap, "orders")

    await whole_talk(alpn, "s2", lambda far: process.connections.accepted(far, 1, "listeners.s2", "s2"), on_request)
    opened = heard.events[0]
    assert isinstance(opened, Opened) and opened.client_offset
    assert any(isinstance(event, Joined) for event in heard.events) == (alpn == "h2")
    messages, problems = told(heard.events)
    assert not [each for each in problems if each.fatal]
    assert [each for each in messages if each.kind == "AppendAck"], "what follows is understood"
    assert not process.holding.bytes
