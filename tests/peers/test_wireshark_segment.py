"""Wireshark shows the segment protocol exactly as the codecs decode it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from support.captures.tshark import Layer, Said, Talk, captured, client_says, cut, layers, server_says
from support.segment.draft_blocks import SHAPES
from support.segment.messages import MESSAGES, WRITER, joined, message_of, ready_client

from penstock.capture.pcapng.events import Sender
from penstock_pravega.codec import Dialect, SegmentMessage, draft, encode, join_events, released, split_events
from penstock_pravega.codec.blocks import BlockData
from penstock_pravega.codec.layout import Direction

FEW = settings(
    max_examples=2,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
"""tshark takes a second, sees every message in each example, and would take minutes to find a smaller one."""
TWICE = ("-2", "-R", "tcp")
"""Every frame is dissected twice, as Wireshark does too."""
PASSES = ((), TWICE)
APART = ("BeginAppendBlock", "EndAppendBlock", "Partial")
"""Messages that determine how the bytes after them are decoded; they have tests of their own."""
META = re.compile(r"pravega\.(command|response_in|request_in|request$|time|event\.)|penstock|_ws|^$")


def shown(text: str) -> str:
    """As the dissector shows text."""
    return re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\x{ord(found[0]):02x}", text)


def values(message: Struct, path: str = "pravega") -> Iterator[tuple[str, str]]:
    """Yield each value of a message as the dissector shows it, with its path; empty bytes are not shown."""
    for name in message.__struct_fields__:
        yield from values_of(getattr(message, name), f"{path}.{name}")


def values_of(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, tuple):
        for item in value:
            yield from values_of(item, path)
    elif isinstance(value, Struct):
        if path != "pravega.sources":  # which are texts in another message
            yield path, ""
        yield from values(value, path)
    elif isinstance(value, bool):
        yield path, str(int(value))
    elif isinstance(value, bytes):
        if value:
            yield path, value.hex(":")
    elif isinstance(value, str):
        yield path, shown(value)
    elif isinstance(value, Enum):
        yield path, str(value.value)
    else:
        assert isinstance(value, int | UUID)
        yield path, str(value)


def expected(message: SegmentMessage) -> tuple[str, list[tuple[str, str]]]:
    return type(message).__name__, sorted(values(message))


def decoded(layer: Layer) -> tuple[str, list[tuple[str, str]]]:
    """A layer's message, without what the codecs do not show."""
    return layer.one("pravega.command"), sorted(pair for pair in layer.fields if not META.match(pair[0]))


def said(message: SegmentMessage, version: int = 16) -> list[Said]:
    sender = Sender.SERVER if message.direction is Direction.REPLY else Sender.CLIENT
    return [(sender, b"".join(encode(message, version=version)))]


@st.composite
def one_of_each(draw: st.DrawFn, dialect: Dialect) -> list[SegmentMessage]:
    classes = [cls for where, cls in MESSAGES if where is dialect and cls.direction is not Direction.INNER]
    return [draw(message_of(cls)) for cls in classes if cls.__name__ not in APART and cls is not released.Hello]


HELLO = released.Hello(16, 5)
SETUP = draft.SetupAppend(WRITER, "a/b/0.#epoch.0")


@pytest.mark.parametrize("dialect", Dialect)
@FEW
@given(data=st.data())
def test_every_message(dialect: Dialect, data: st.DataObject, tmp_path: Path) -> None:
    """Also cut anywhere, on an unassigned port, and dissected twice."""
    messages: list[SegmentMessage] = [SETUP] if dialect is Dialect.DRAFT else [HELLO]
    messages += data.draw(one_of_each(dialect))
    whole = [piece for message in messages for piece in said(message)]
    size = data.draw(st.integers(5, 40))
    capture = captured(
        tmp_path / "segment.pcapng",
        Talk("segment", whole),
        Talk("segment", cut(whole, size), port=4444),
        Talk("segment", cut(whole, 1 << 20), noted=False),
    )
    wanted = [expected(message) for message in messages]
    for arguments in PASSES:
        found = layers(capture, "pravega", arguments=arguments, legal=False)
        streams = [[decoded(layer) for layer in found if layer.talk == stream] for stream in range(3)]
        for one, other in zip(streams[0], wanted, strict=True):
            assert one == other
        assert streams[1] == wanted
        assert sorted(streams[2]) == sorted(wanted)


def content(layer: Layer) -> list[bytes]:
    """The events that stand in a message."""
    return [bytes.fromhex(value.replace(":", "")) for value in layer.all("pravega.event.data")]


def talk_of(messages: Sequence[SegmentMessage]) -> Talk:
    """Return a conversation in the released dialect, behind the greeting."""
    greeting = client_says(joined(HELLO)) + server_says(joined(HELLO))
    return Talk("segment", greeting + [piece for message in messages for piece in said(message)])


def test_events(tmp_path: Path) -> None:
    """Those of an append stand in the message that completes it, also one that PartialEvent splits; bytes that are no
    events have none."""
    bodies = [b"one", b"", b"three" * 100]
    whole, split = join_events(bodies), join_events([b"split event"])
    partial = joined(released.PartialEvent(split[:11]))
    end = released.AppendBlockEnd
    messages = [
        released.SetupAppend(1, WRITER, "s"),
        released.AppendBlock(WRITER, whole + partial),
        end(WRITER, len(whole), split[11:], 4, 4, 1),
        released.AppendBlock(WRITER, b"just bytes"),
        end(WRITER, 10, b"", 1, 5, 1),
        released.ConditionalAppend(WRITER, 6, 2, b"conditional", 3),
        released.SegmentRead("s", 0, True, False, whole, 1),
    ]
    found = layers(captured(tmp_path / "events.pcapng", talk_of(messages)), "pravega")
    names = ["Hello", "Hello", *(type(message).__name__ for message in messages)]
    assert [layer.one("pravega.command") for layer in found] == names
    full, none = [b"one", b"three" * 100], list[bytes]()
    assert [content(layer) for layer in found] == [
        none,
        none,
        none,
        none,
        [*full, b"split event"],
        none,
        none,
        [b"conditional"],
        full,
    ]


def test_which_reply_answers_which_request(tmp_path: Path) -> None:
    append = released.AppendBlockEnd
    messages = [
        released.SetupAppend(1, WRITER, "s"),
        append(WRITER, 0, b"", 1, 1, 1),
        append(WRITER, 0, b"", 1, 2, 1),
        released.AppendSetup(1, "s", WRITER, 0),
        released.ReadSegment("s", 0, 10, "", 2),
        released.DataAppended(WRITER, 2, 0, 1, 30),
        released.SegmentRead("s", 0, True, False, b"", 2),
        released.SegmentSealed(99, "s"),
    ]
    capture = captured(tmp_path / "pairs.pcapng", talk_of(messages))
    found = layers(capture, "pravega", arguments=TWICE)[1:]
    frame = {index: str(layer.frame) for index, layer in enumerate(found)}
    answers = [layer.all("pravega.response_in") for layer in found]
    assert answers == [[], [frame[4]], [], [frame[6]], [], [frame[7]], [], [], []]
    requests = [layer.all("pravega.request_in") for layer in found]
    assert requests == [[], [], [], [], [frame[1]], [], [frame[3]], [frame[5]], []]
    assert found[4].one("pravega.time") == "0.003000000"


def test_events_of_a_draft_block(tmp_path: Path) -> None:
    """Also of one that is split."""
    for name in ("skip-copied", "split into three"):
        client, _ = ready_client()
        sent, received = SHAPES[name]
        block = b"".join(piece for message in sent for piece in client.send(message))
        pieces = client_says(joined(draft.SetupAppend(WRITER, "seg")), block)
        found = layers(captured(tmp_path / "block.pcapng", Talk("segment", cut(pieces, 3))), "pravega")
        stored = b"".join(item.data for item in received if isinstance(item, BlockData))
        assert [body for layer in found for body in content(layer)] == split_events(stored), name


def test_a_capture_that_begins_in_the_middle(tmp_path: Path) -> None:
    """The end of a message is skipped; the next one is decoded, though nothing names the protocol or the dialect."""
    request = released.ReadSegment("s", 7, 10, "token", 9)
    end = client_says(joined(released.AppendBlockEnd(WRITER, 0, b"body" * 20, 1, 1, 1))[70:])
    talk = Talk("", [*end, *said(request)], begins=False, noted=False)
    (layer,) = layers(captured(tmp_path / "middle.pcapng", talk), "pravega")
    assert decoded(layer) == expected(request)
