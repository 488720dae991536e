"""Real clients, recorded once by the gateway: curl, the S2 SDK for Python (0.13) and the S2 command line (0.43)."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path

from support.dialogues import hear, parts
from support.recording import read_file

from penstock_codecs.capture import CaptureEvent, Conversation
from penstock_codecs.dialogue import APPENDED, DELIVERED, Message, Problem, SeenRecord
from penstock_codecs.dialogue.http import HttpDialogue

RECORDING = Path(__file__).parent / "recordings" / "s2_clients.pcapng.zst"
CURL = [(b"first", ()), (b"second", ((b"a", b"b"),))]
SESSION = [
    record
    for number in range(6)
    for record in ((b"%d " % number + b"z" * (number * 300), ()), (b"", ((b"k", b"%d" % number),)))
]
SDK = [*SESSION, (b"unary " * 300, ())]
CLI = [(b"%d" % number, ()) for number in range(1, 21)]


@cache
def heard() -> tuple[list[Message], list[Problem], list[SeenRecord]]:
    conversations: dict[Conversation, list[CaptureEvent]] = defaultdict(list)
    for event in read_file(RECORDING):
        conversations[event.conversation].append(event)
    return parts(each for of, some in conversations.items() for each in hear(HttpDialogue(of), some))


def told(stream: str, action: str) -> list[tuple[bytes, tuple[object, ...]]]:
    return [(each.body, each.headers) for each in records(stream, action)]


def records(stream: str, action: str) -> list[SeenRecord]:
    return [each for each in heard()[2] if (each.stream, each.action) == (f"penstock/{stream}", action)]


def test_nothing_is_wrong() -> None:
    assert heard()[1] == []


def test_what_was_appended() -> None:
    refused = [(b"refused", ())]
    assert told("curl", APPENDED) == CURL * 2
    assert told("sdk", APPENDED) == [*SDK, *refused, *SDK, *refused]
    assert told("cli", APPENDED) == CLI
    for stream, count in (("curl", 4), ("sdk", 26), ("cli", 20)):
        acknowledged = [each for each in records(stream, APPENDED) if each.acknowledged]
        assert [each.seq_num for each in acknowledged] == list(range(count))
        assert all(each.timestamp for each in acknowledged)
    failures = {each.failure.partition(":")[0] for each in records("sdk", APPENDED) if not each.acknowledged}
    assert failures == {"seq_num_mismatch"}


def test_what_was_delivered() -> None:
    assert told("curl", DELIVERED) == CURL * 3 + CURL * 5
    assert told("sdk", DELIVERED) == [*SESSION, *SDK] * 2
    assert told("cli", DELIVERED) == CLI
    positions = {(each.seq_num, each.timestamp) for each in records("sdk", APPENDED) if each.acknowledged}
    assert {(each.seq_num, each.timestamp) for each in records("sdk", DELIVERED)} <= positions


def test_both_versions_and_all_layers_are_there() -> None:
    messages = heard()[0]
    assert {each.fields["version"] for each in messages if each.kind == "GET"} == {"1.1", "2"}
    assert {each.layer for each in messages} == {"http", "s2s", "sse"}
    compressed = {each.kind for each in messages if each.fields.get("compression") == "zstd"}
    assert compressed == {"AppendInput", "ReadBatch"}
    last = {(each.conversation, each.exchange): each.state for each in messages if each.exchange is not None}
    assert set(last.values()) == {"done", "reset"}
