"""Filter expressions, and what they choose."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock.capture.dialogue import Message, Problem, SeenRecord
from penstock.capture.pcapng import Conversation, Sender
from penstock.capture.pcapng.events import SocketAddress
from penstock.recorder.captures.choosing import CaptureFilter, parse_filter, parse_terms

ENDS = SocketAddress("127.0.0.1", 1), SocketAddress("127.0.0.1", 2)
CONVERSATION = Conversation(7, *ENDS, protocol="s3p")


def message(**given: Any) -> Message:
    about = {"layer": "s3p", "kind": "APPEND", "stream": "orders", "exchange": 3, "fields": {"records": "2 of them"}}
    return Message(CONVERSATION, Sender.CLIENT, 1, 2, 0, 10, **{**about, **given})


PROBLEM = Problem(CONVERSATION, Sender.CLIENT, 1, 0, "expected a line", exchange=3)
RECORD = SeenRecord("appended", "orders", b"a body", ((b"trace", b"zz"),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", CaptureFilter()),
        ("kind=Append* kind=Read", CaptureFilter(kinds=("Append*", "Read"))),
        ("connection=7 exchange=3", CaptureFilter(connections=(7,), exchanges=(3,))),
        ("stream='a name' protocol=s3p", CaptureFilter(streams=("a name",), protocols=("s3p",))),
        ('word "two words" text=x=1', CaptureFilter(texts=("word", "two words", "x=1"))),
    ],
)
def test_expressions(text: str, wanted: CaptureFilter) -> None:
    assert parse_filter(text) == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour=red", "'colour=red': expected NAME=VALUE with one of connection, protocol, stream, kind"),
        ("kind=", "'kind=': expected NAME=VALUE"),
        ("connection=-1", "connection=-1: expected a whole number"),
        ("protocol=none", "protocol=none: expected one of controller"),
        ("'open", "No closing quotation"),
    ],
)
def test_wrong_expressions(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_filter(text)


def test_words_need_a_name_unless_there_is_one_for_them() -> None:
    with pytest.raises(ValueError, match="'word': expected NAME=VALUE with one of stream"):
        parse_terms("word", ("stream",))


@pytest.mark.parametrize(
    ("text", "item", "wanted"),
    [
        ("kind=APP*", message(), True),
        ("kind=READ", message(), False),
        ("exchange=3", message(), True),
        ("exchange=4", message(), False),
        ("exchange=4", PROBLEM, False),
        ("of them", message(), True),
        ("them body zz", message(carried=[RECORD]), True),
        ("them body nowhere", message(records=[RECORD]), False),
        ("line expected", PROBLEM, True),
        ("line stream=orders", PROBLEM, False),
        ("kind=problem", PROBLEM, True),
    ],
)
def test_choices(text: str, item: Message | Problem, wanted: bool) -> None:
    assert parse_filter(text).accepts(item) is wanted


def test_filters_add_up_as_options_do() -> None:
    both = CaptureFilter(kinds=("APPEND",), texts=("a",)).plus(parse_filter("kind=READ b"))
    assert both == CaptureFilter(kinds=("APPEND", "READ"), texts=("a", "b"))
