"""The Python client of Durable Streams through a gateway that records: the recording holds every record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.captures.commands import lines
from support.captures.small_recording import small_recording
from support.captures.traffic import heard_in, recording
from support.peers import unique
from support.process import running_gateway

from penstock.capture.dialogue import APPENDED, DELIVERED
from penstock.capture.dialogue.records import records_in

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("versions", [{}, {"http1": False, "http2": True}], ids=["HTTP/1.1", "HTTP/2"])
def test_every_record_of_the_python_client(tmp_path: Path, versions: dict[str, bool]) -> None:
    durable = pytest.importorskip("durable_streams", reason="`pip install durable-streams`")
    httpx = pytest.importorskip("httpx")
    orders, blob = unique("orders"), unique("blob")
    messages: list[Any] = [{"n": 1}, [2, 3], "four", 5]
    pieces = [b"\0first", b"second\xff", b"third"]
    with recording(tmp_path) as gateway, httpx.Client(**versions, timeout=20) as http:
        base = gateway.durable_url
        json_stream = durable.DurableStream.create(base + orders, content_type="application/json", client=http)
        bytes_stream = durable.DurableStream.create(base + blob, content_type="application/octet-stream", client=http)
        for message in messages:
            json_stream.append(message)
        for piece in pieces:
            bytes_stream.append(piece)
        for live in (False, "long-poll", "sse"):
            with durable.stream(base + orders, offset="-1", live=live, client=http) as response:
                found = response.iter_json()
                assert [next(found) for _ in messages] == messages
        with durable.stream(base + blob, offset="-1", live=False, client=http) as response:
            assert response.read_bytes() == b"".join(pieces)
        with pytest.raises(durable.StreamNotFoundError):
            durable.DurableStream.connect(base + "none", client=http)
    told, problems = heard_in(tmp_path, "durable")
    assert not problems
    assert {"create", "created", "append", "appended", "batch"} <= {one.kind for one in told}
    appended, delivered = ([*records_in(told, action=action)] for action in (APPENDED, DELIVERED))
    assert all(record.acknowledged for record in appended)
    assert [(record.seq_num, json.loads(record.body)) for record in appended if record.stream == orders] == list(
        enumerate(messages)
    )
    assert [(record.seq_num, record.body) for record in appended if record.stream == blob] == list(enumerate(pieces))
    assert [(record.seq_num, json.loads(record.body)) for record in delivered if record.stream == orders] == 3 * list(
        enumerate(messages)
    )
    assert [record.body for record in delivered if record.stream == blob] == [b"".join(pieces)]


@pytest.mark.parametrize("protocol", ["durable", "s2"])
def test_a_recording_is_played_to_another_server_and_compared_with_it(tmp_path: Path, protocol: str) -> None:
    recording = small_recording(tmp_path, lambda clients: clients.durable(3))
    with running_gateway() as gateway:
        server = f"{protocol}://127.0.0.1:{getattr(gateway, f'{protocol}_port')}"
        played = "\n".join(lines("replay", recording, "--to", server, "--fast"))
        assert "9 records appended, 8 delivered, 0 answers different" in played, played
        assert lines("diff", recording, f"s2://127.0.0.1:{gateway.s2_port}")[-1] == "equal: 2 streams"
