"""Real clients of Pravega, and S3P, through a gateway that records: the recording holds what they said."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest
from support.captures.traffic import heard_in, recording
from support.peers import unique
from support.pravega.clients import Found, PravegaClient, need_pravega
from support.pravega.java import MAVEN_SECONDS, running_java
from support.s3p.client import S3PClient

from penstock.capture.dialogue import APPENDED, DELIVERED, Message, Problem, SeenRecord
from penstock.capture.dialogue.records import records_in
from penstock.capture.pcapng import Sender

JAVA = Path(__file__).parent / "java" / "client"
EVENTS = [b"event %d " % number + b"x" * (number * 37 % 5000) for number in range(200)] + [b"L" * 3_000_000]


class Recorded(NamedTuple):
    """Messages and problems of a recording, without the conversation with the controller."""

    messages: list[Message]
    problems: list[Problem]

    def records(self, action: str, stream: str) -> list[SeenRecord]:
        return list(records_in(self.messages, action=action, streams={stream}))

    def kinds(self, sender: Sender) -> set[str]:
        return {each.kind for each in self.messages if each.sender is sender}


def read(directory: Path, layer: str) -> Recorded:
    messages, problems = heard_in(directory, layer)
    assert {each.layer for each in messages} == {layer}
    return Recorded(messages, problems)


def placed(records: list[SeenRecord]) -> list[tuple[int | None, bytes]]:
    return [(record.offset, record.body) for record in records]


def test_the_python_client_of_pravega(tmp_path: Path) -> None:
    """One append at a time, so that every acknowledgement says where its events stand."""
    need_pravega()
    scope = unique("Scope")
    segment = f"{scope}/one/0.#epoch.0"
    with recording(tmp_path) as gateway, PravegaClient(gateway.controller_port) as client:
        client.call("manage", "create_scope", scope)
        client.call("manage", "create_stream", scope, "one", 1)
        client.call("write", scope, "one", [(body.decode("latin-1"), None) for body in EVENTS])
        client.call("group", "g", scope, "one")
        client.call("reader", "r", "g")
        found = Found(client.call("read", ["r"], len(EVENTS), 20))
    recorded = read(tmp_path, "segment")
    assert not recorded.problems
    assert [body for _, body in found["r"]] == EVENTS
    appended, delivered = recorded.records(APPENDED, segment), recorded.records(DELIVERED, segment)
    assert all(record.acknowledged for record in appended)
    assert placed(appended) == found["r"]
    assert set(placed(delivered)) == set(found["r"]), "it may ask twice, and is given the same"


@pytest.mark.long
@pytest.mark.timeout(MAVEN_SECONDS + 60)
def test_the_java_client_of_pravega(tmp_path: Path) -> None:
    """Pipelined appends in blocks, whose last event may be cut; two segments, and reads that cut events."""
    scope = unique("Java")
    with (
        recording(tmp_path / "recorded") as gateway,
        running_java(JAVA, "Peer", tmp_path / "java", f"tcp://127.0.0.1:{gateway.controller_port}") as java,
    ):

        def ask(*question: object) -> list[str]:
            verdict, *words = java.ask(*question)
            assert verdict == "ok", words
            return words

        ask("scope", scope)
        ask("stream", scope, "s", 2)
        ask("write", scope, "s", "e", 2000, 11, 3000)
        ask("group", scope, "g", "s")
        words = [word.rsplit(":", 1) for word in ask("read", scope, "s", "g", "r", 2000, 20_000)]
    recorded = read(tmp_path / "recorded", "segment")
    assert not recorded.problems
    assert {"AppendBlock", "AppendBlockEnd", "ConditionalAppend"} <= recorded.kinds(Sender.CLIENT)
    group = [record for record in records_in(recorded.messages, action=APPENDED) if "/_RGg/" in record.stream]
    assert group and all(record.acknowledged is (record.offset is not None) for record in group)
    assert all(record.acknowledged or "ConditionalCheckFailed" in record.failure for record in group)
    read_by_java: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
    for pointer, text in words:
        segment, _, place = pointer.rpartition(":")
        read_by_java[segment].append((int(place.partition("-")[0]), text.encode()))
    assert len(read_by_java) == 2
    for segment, events in read_by_java.items():
        appended, delivered = recorded.records(APPENDED, segment), recorded.records(DELIVERED, segment)
        assert all(record.acknowledged for record in appended)
        assert [record.body for record in appended] == [body for _, body in events]
        assert {place for place in placed(appended) if place[0] is not None} <= set(events)
        assert set(placed(delivered)) == set(events)


def test_s3p(tmp_path: Path) -> None:
    bodies = EVENTS[:100]
    with recording(tmp_path) as gateway, S3PClient(("127.0.0.1", gateway.s3p_port)) as client:
        client.create("orders")
        ids = [client.append("orders", *bodies[:60]), client.append("orders", *bodies[60:])]
        found = client.read_all("orders")
    recorded = read(tmp_path, "s3p")
    assert not recorded.problems
    appended, delivered = recorded.records(APPENDED, "orders"), recorded.records(DELIVERED, "orders")
    assert [record.body for record in appended] == bodies
    assert [appended[59].record_id, appended[99].record_id] == [each.decode() for each in ids]
    assert [(record.record_id, record.body) for record in delivered] == [(each.decode(), body) for each, body in found]
    assert [record.record_id for record in appended] == [record.record_id for record in delivered]
