"""Real clients, recorded once by the gateway: curl, the S2 SDK for Python (0.13), the S2 command line (0.43), and
Pravega's client for Python (0.3.8) with the controller."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path

from support.captures.dialogues import CLIENT, hear, parts
from support.captures.recording import read_file

from penstock.capture.dialogue import APPENDED, DELIVERED, Message, Problem, SeenRecord
from penstock.capture.dialogue.http.dialogue import HttpDialogue
from penstock.capture.pcapng import CaptureEvent, Conversation

RECORDINGS = Path(__file__).parent / "recordings"
CURL = [(b"first", ()), (b"second", ((b"a", b"b"),))]
SESSION = [
    record
    for number in range(6)
    for record in ((b"%d " % number + b"z" * (number * 300), ()), (b"", ((b"k", b"%d" % number),)))
]
SDK = [*SESSION, (b"unary " * 300, ())]
CLI = [(b"%d" % number, ()) for number in range(1, 21)]


@cache
def heard(recording: str = "s2_clients", protocol: str = "s2") -> tuple[list[Message], list[Problem], list[SeenRecord]]:
    conversations: dict[Conversation, list[CaptureEvent]] = defaultdict(list)
    for event in read_file(RECORDINGS / f"{recording}.pcapng.zst"):
        if event.conversation.protocol == protocol:
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


def test_fields_are_json() -> None:
    for message in [*heard()[0], *heard("controller", "controller")[0]]:
        assert json.loads(json.dumps(message.fields)) == message.fields


def test_a_client_of_the_controller() -> None:
    messages, problems, records = heard("controller", "controller")
    assert not problems
    assert not records
    calls = [each for each in messages if each.layer == "grpc"]
    asked = [each.kind for each in calls if each.sender is CLIENT]
    assert asked == [
        *("createScope", "createStream", "getCurrentSegments", "getURI", "getURI"),
        *("getSegments", "getURI", "getURI", "getURI", "deleteStream"),
    ]
    assert [each.exchange for each in calls] == [number for each in range(10) for number in (2 * each + 1,) * 2]
    assert {each.stream for each in calls} == {"", "Scope/one", "Scope/g_kvtable"}
    assert {each.kind for each in messages if each.exchange and each.layer == "http"} == {"POST", "200", "trailers"}
    assert (calls[-1].fields["status"], calls[-1].failure) == ("STREAM_NOT_SEALED", "STREAM_NOT_SEALED: deleteStream")
    created = next(each for each in calls if each.kind == "createStream")
    assert created.fields["scalingPolicy"] == {"minNumSegments": 2}
