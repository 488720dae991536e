"""Wireshark reads the segment protocol with our dissector exactly as the codecs do."""

from __future__ import annotations

import random
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
from support.captures.tshark import Layer, Said, Talk, captured, client_says, cut, faults, layers, server_says
from support.segment.draft_blocks import SHAPES
from support.segment.messages import MESSAGES, WRITER, joined, message_of, ready_client

from penstock_analysis.capture.events import Sender
from penstock_codecs.segment import Dialect, SegmentMessage, draft, encode, join_events, released, split_events
from penstock_codecs.segment.layout import Direction

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
APART = ("BeginAppendBlock", "Partial")
"""Messages that determine how the bytes after them are decoded; they have tests of their own."""
META = re.compile(r"pravega\.(header|command|dialect|count|response_in|request_in|time|event\.|padding|surplus)|_ws|^$")


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
        lacks_version = getattr(value, "key", None) == b""
        yield from (pair for pair in values(value, path) if not (lacks_version and pair[0].endswith(".version")))
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
        found = layers(capture, "pravega", arguments=arguments)
        streams = [[decoded(layer) for layer in found if layer.talk == stream] for stream in range(3)]
        for one, other in zip(streams[0], wanted, strict=True):
            assert one == other
        assert streams[1] == wanted
        assert sorted(streams[2]) == sorted(wanted)
        assert {layer.one("pravega.dialect") for layer in found} == {dialect.value}


def content(layer: Layer) -> list[bytes]:
    """The events that stand in a message."""
    return [bytes.fromhex(value.replace(":", "")) for value in layer.all("pravega.event.data")]


def talk_of(messages: Sequence[SegmentMessage]) -> Talk:
    return Talk("segment", [piece for message in messages for piece in said(message)])


def test_events_in_released_appends(tmp_path: Path) -> None:
    """Whole events, Padding, an event that PartialEvent splits, events without a block, and bytes that are none."""
    setup = released.SetupAppend(1, WRITER, "s")
    bodies = [b"one", b"", b"three" * 100]
    whole = join_events(bodies)
    padding = joined(released.Padding(20))
    split = join_events([b"split event"])
    partial = joined(released.PartialEvent(split[:11]))
    end = released.AppendBlockEnd
    messages = [
        HELLO,
        setup,
        released.AppendBlock(WRITER, whole),
        end(WRITER, len(whole), b"", 3, 3, 1),
        released.AppendBlock(WRITER, whole + padding),
        end(WRITER, len(whole), b"", 3, 6, 1),
        released.AppendBlock(WRITER, whole + partial),
        end(WRITER, len(whole), split[11:], 4, 10, 1),
        end(WRITER, len(whole), whole, 3, 13, 1),
        released.AppendBlock(WRITER, b"just bytes"),
        end(WRITER, 10, b"", 1, 14, 1),
        released.AppendBlock(WRITER, partial),
        end(WRITER, 0, split[11:], 1, 15, 1),
        released.ConditionalAppend(WRITER, 1, 2, b"conditional", 3),
        released.SegmentRead("s", 0, True, False, whole + split[:9], 1),
    ]
    capture = captured(tmp_path / "appends.pcapng", talk_of(messages))
    for arguments in PASSES:
        found = layers(capture, "pravega", arguments=arguments)
        assert [layer.one("pravega.command") for layer in found] == [type(message).__name__ for message in messages]
        full, none = [b"one", b"three" * 100], list[bytes]()
        blocks = [none, none, full, none, full, none, full, [b"split event"], full]
        blocks += [none, none, none, [b"split event"], none, full]
        assert [content(layer) for layer in found] == blocks
        assert [layer.all("pravega.padding") for layer in found if layer.all("pravega.padding")] == [["28"]]
        assert found[2].all("pravega.event.length") == ["3", "0", "500"]
        assert found[6].all("pravega.event.part") == [shown_bytes(split[:11])]
        assert found[-1].all("pravega.event.part") == [shown_bytes(split[:9])]


def shown_bytes(data: bytes) -> str:
    return data.hex(":")


def test_which_reply_answers_which_request(tmp_path: Path) -> None:
    append = released.AppendBlockEnd
    messages = [
        HELLO,
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
    found = layers(capture, "pravega", arguments=TWICE)
    frame = {index: str(layer.frame) for index, layer in enumerate(found)}
    answers = [layer.all("pravega.response_in") for layer in found]
    assert answers == [[], [frame[4]], [frame[6]], [frame[6]], [], [frame[7]], [], [], []]
    requests = [layer.all("pravega.request_in") for layer in found]
    assert requests == [[], [], [], [], [frame[1]], [], [frame[3]], [frame[5]], []]
    assert found[4].one("pravega.time") == "0.003000000"


@pytest.mark.parametrize(("high", "version"), [(16, 16), (15, 15)])
def test_the_layout_is_that_of_the_wire_version(high: int, version: int, tmp_path: Path) -> None:
    message = released.InvalidEventNumber(WRITER, -1, "trace", 5)
    pieces = [*said(released.Hello(high, 5)), *server_says(joined(HELLO)), *said(message, version)]
    (_, _, layer) = layers(captured(tmp_path / "versions.pcapng", Talk("segment", pieces)), "pravega")
    assert (layer.one("pravega.event_number"), layer.one("pravega.server_stack_trace")) == ("5", "trace")
    assert layer.all("pravega.request_id") == (["-1"] if version == 16 else [])


def stored(name: str) -> bytes:
    """Return the content of a shape's block, according to the codec."""
    return b"".join(item.data for item in SHAPES[name][1] if hasattr(item, "data") and hasattr(item, "offset"))


def test_every_shape_of_a_draft_block(tmp_path: Path) -> None:
    """Events, padding, Partials: whole, and cut into three bytes each; the stored bytes are those of the codec."""
    talks = []
    for shape, _ in SHAPES.values():
        client, _ = ready_client()
        block = b"".join(piece for message in shape for piece in client.send(message))
        pieces = client_says(joined(draft.SetupAppend(WRITER, "seg")), block)
        talks += [Talk("segment", pieces), Talk("segment", cut(pieces, 3))]
    capture = captured(tmp_path / "blocks.pcapng", *talks)
    for arguments in PASSES:
        found = layers(capture, "pravega", arguments=arguments)
        for index, name in enumerate(SHAPES):
            events = [body for body in split_events(stored(name)) if body]
            for stream in (2 * index, 2 * index + 1):
                mine = [layer for layer in found if layer.talk == stream]
                assert sorted(body for layer in mine for body in draft_events(layer)) == sorted(events), name
                assert not [layer for layer in mine if layer.all("pravega.misplaced")], name


def draft_events(layer: Layer) -> list[bytes]:
    """Payloads of a block's events, and of those that Partials make up."""
    if layer.all("pravega.command") == ["Partial", "Event"]:
        data = [value for name, value in layer.fields if name == "pravega.data"][1:]
        return [bytes.fromhex(value.replace(":", "")) for value in data]
    return content(layer)


def test_messages_in_partials(tmp_path: Path) -> None:
    message = draft.ReadSegment("seg", 5, 1000)
    parts = draft.partials(message, [3, 10, 15])
    pieces = client_says(joined(draft.SetupAppend(WRITER, "seg")), *(joined(part) for part in parts))
    found = layers(captured(tmp_path / "partials.pcapng", Talk("segment", pieces)), "pravega")
    assert [layer.all("pravega.part") for layer in found] == [[], ["0"], ["1"], ["1"], ["2"], []]
    assert found[-2].all("pravega.command") == ["Partial", "ReadSegment"], "the one stands in the other"
    assert (found[-1].one("pravega.segment"), found[-1].one("pravega.offset")) == ("seg", "5")


def test_a_capture_that_begins_in_the_middle(tmp_path: Path) -> None:
    """Without Hello it is the layout that tells the dialects apart; a preference can say it too."""
    request = released.ReadSegment("s", 7, 10, "token", 9)
    end = client_says(joined(released.AppendBlockEnd(WRITER, 0, b"body" * 20, 1, 1, 1))[70:])
    capture = captured(tmp_path / "recorded.pcapng", Talk("segment", [*end, *said(request)], begins=False, port=4444))
    cut_off, layer = layers(capture, "pravega")
    assert cut_off.all("pravega.cut") and decoded(layer) == expected(request)
    capture = captured(tmp_path / "middle.pcapng", Talk("segment", said(request), noted=False))
    trimmed = tmp_path / "trimmed.pcapng"
    blocks = capture.read_bytes()
    trimmed.write_bytes(without_handshake(blocks))
    (layer,) = layers(trimmed, "pravega")
    assert decoded(layer) == expected(request) and layer.one("pravega.dialect") == "released"
    (layer,) = layers(trimmed, "pravega", arguments=["-o", "pravega.dialect:Draft"])
    assert layer.one("pravega.dialect") == "draft" and len(layer.all("pravega.surplus")) == 1


def without_handshake(file: bytes) -> bytes:
    """A capture without its first three packets (blocks of type 6)."""
    at, packets, kept = 0, 0, b""
    while at < len(file):
        kind, length = (int.from_bytes(file[at + 4 * i : at + 4 * i + 4], "little") for i in range(2))
        packets += kind == 6
        if kind != 6 or packets > 3:
            kept += file[at : at + length]
        at += length
    return kept


def garbage(seed: int) -> Talk:
    """Bytes that begin well, or not at all, and messages that are none."""
    dice = random.Random(seed)
    types = [cls.type_id for _, cls in MESSAGES]

    def junk() -> bytes:
        head = dice.choice(types).to_bytes(4, "big", signed=True) + dice.choice([0, 8, 30, 60]).to_bytes(4, "big")
        return dice.choice([b"", head, head]) + dice.randbytes(dice.choice([0, 8, 30, 60]))

    begin = [joined(HELLO), joined(SETUP), joined(SETUP, draft.BeginAppendBlock(WRITER, 0, 500)), b"\0"]
    pieces = client_says(dice.choice(begin), *(junk() for _ in range(8)))
    return Talk("segment", pieces + server_says(joined(HELLO), *(junk() for _ in range(8))))


def test_garbage(tmp_path: Path) -> None:
    """No bytes cause an error of Lua."""
    capture = captured(tmp_path / "garbage.pcapng", *map(garbage, range(60)))
    assert faults(capture, "pravega.undecoded") > 50
