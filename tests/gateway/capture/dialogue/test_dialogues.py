"""A dialogue for each conversation, for as long as it lasts."""

from __future__ import annotations

from support.captures import NOW_NS, conversation, s2_talk, s3p_talk

from penstock.capture.dialogue import Message, Problem
from penstock.capture.dialogue.dialogues import Dialogues
from penstock.capture.pcapng import Chunk, Closed, Lost, Opened, Sender


def said(dialogues: Dialogues, events: list[object]) -> list[str]:
    told = []
    for event in events:
        told += [item.kind if isinstance(item, Message) else "problem" for item in dialogues.receive(event)]
    return told


def test_messages_of_several_conversations_in_their_order() -> None:
    dialogues = Dialogues()
    events = sorted([*s3p_talk(1), *s2_talk(2)], key=lambda event: event.time_ns)
    told = said(dialogues, events)
    assert [kind for kind in told if kind != "problem"] == [
        "APPEND",
        "POST",
        "AppendInput",
        "ID",
        "200",
        "AppendAck",
        "GET",
        "ERR_BAD_FORMAT",
        "404",
        "Error",
    ]
    assert "problem" in told
    assert len(dialogues) == 0, "all have ended"


def test_what_is_not_wanted_is_not_heard() -> None:
    dialogues = Dialogues(lambda conversation: conversation.number == 2)
    assert said(dialogues, s3p_talk(1, ends=False)) == [] and len(dialogues) == 0
    assert said(dialogues, s3p_talk(2, ends=False)) == ["APPEND", "ID"] and len(dialogues) == 1


def test_ends() -> None:
    """Both sides, a reset, or a loss after which nothing comes."""
    one = conversation()
    for last in (
        [Closed(one, 1, Sender.CLIENT), Closed(one, 1, Sender.SERVER)],
        [Closed(one, 1, Sender.SERVER, reset=True)],
        [Lost(one, 1, Sender.CLIENT, 0, 0, "no room")],
    ):
        dialogues = Dialogues()
        said(dialogues, [Opened(one, 0), *last[:-1]])
        assert one in dialogues
        said(dialogues, [last[-1], *last])
        assert one not in dialogues


def test_no_more_than_so_many_at_once() -> None:
    """The one that was silent longest is given up, and what it left half said is told."""
    dialogues = Dialogues(most=2)
    half = [Chunk(conversation(number), NOW_NS, Sender.CLIENT, 0, b"GET / HT") for number in range(4)]
    first, second = half[0], half[1]
    said(dialogues, [first, second, Chunk(first.conversation, NOW_NS, Sender.CLIENT, 8, b"T")])
    problems = [item for item in dialogues.receive(half[2]) if isinstance(item, Problem)]
    assert [problem.conversation for problem in problems] == [second.conversation]
    assert len(dialogues) == 2 and first.conversation in dialogues


def test_the_capture_ends() -> None:
    dialogues = Dialogues()
    said(dialogues, [Chunk(conversation(), NOW_NS, Sender.CLIENT, 0, b"GET / HT")])
    assert [type(item) for item in dialogues.end()] == [Problem] and len(dialogues) == 0
