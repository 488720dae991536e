"""Durable Streams in the tables of a recording."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.captures.small_recording import small_recording
from support.captures.tables import read

pytestmark = pytest.mark.slow


def test_records_and_messages(tmp_path: Path) -> None:
    path = small_recording(tmp_path, lambda clients: clients.durable(2))
    columns = ["protocol", "layer", "action", "stream", "seq_num", "body", "acknowledged"]
    found = [tuple(row[name] for name in columns) for row in read(path, "records", columns)]
    messages = [b"0", *[part for turn in range(2) for part in (b'"n"', b'{"turn": %d}' % turn)]]
    seen = [("orders-durable", number, body, True) for number, body in enumerate(messages)]
    octets = [("bytes", 0, b"first", True), ("bytes", 1, b"\xff", True)]
    assert found == [
        *[("durable", "durable", "appended", *one) for one in seen],
        *[("durable", "durable", "delivered", *one) for one in seen],
        *[("durable", "durable", "appended", *one) for one in octets],
        ("durable", "durable", "delivered", "bytes", None, b"first\xff", True),
    ]
    rows = read(path, "messages", ["layer", "kind", "stream", "failure", "clause"])
    assert {row["kind"] for row in rows if row["layer"] == "durable"} == {
        *("create", "created", "append", "appended", "batch", "error")
    }
    assert [row["clause"] for row in rows if row["kind"] == "problem"] == ["Durable Streams Protocol 1.0, section 7.1"]
    (failure,) = [row["failure"] for row in rows if row["layer"] == "durable" and row["stream"] == "absent"]
    assert failure == "stream_not_found: stream penstock/absent does not exist"
