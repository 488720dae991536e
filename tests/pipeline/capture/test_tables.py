"""The tables say what `penstock records` and `penstock show` say of the same recording."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from support.captures import s3p_talk, written
from support.captures.commands import lines
from support.captures.tables import Stream, bag, part_of, read, rows, schema_of

from penstock.model.envelope import wrap
from penstock_spark.capture.decoding import decode_rows
from penstock_spark.schemas import ALL_TABLES, CAPTURE_TABLES

Row = dict[str, Any]
_NS = 1000


def told(*arguments: str | Path) -> list[Row]:
    return [json.loads(line) for line in lines(*arguments)]


def spelled(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%S.%f}Z"


def content(line: Row, name: str) -> bytes:
    return line[name].encode() if name in line else base64.b64decode(line[f"{name}_base64"])


def both(name: str, request: pytest.FixtureRequest) -> Path:
    path = request.getfixturevalue(name)
    assert isinstance(path, Path)
    return path


@pytest.mark.parametrize("name", ["recording", "rotated"])
def test_records(name: str, request: pytest.FixtureRequest) -> None:
    path = both(name, request)
    expected = told("records", path)
    found = rows(part_of(path, table="records"))
    assert len(found) == len(expected) > 150
    for row, line in zip(found, expected, strict=True):
        assert row["body"] == content(line, "body")
        pairs = [(content(pair, "name"), content(pair, "value")) for pair in line.get("headers", ())]
        assert [(pair["name"], pair["value"]) for pair in row["headers"]] == pairs
        for key in ("action", "stream", "seq_num", "record_id", "offset", "failure", "run"):
            assert row[key] == line.get(key), key
        stamp = line.get("timestamp")
        assert row["timestamp"] == (None if stamp is None else datetime.fromtimestamp(stamp / 1000, UTC))
        assert row["acknowledged"] is line.get("acknowledged", True)
        assert spelled(row["sent"]) == line["time"]
        assert (row["conversation"], row["name"], row["damage"]) == (line["connection"], line["name"], None)
        if row["action"] == "appended":
            assert row["settled"] > row["sent"]
    assert any(row["failure"] for row in found) and any(row["headers"] for row in found)
    assert {row["layer"] for row in found} == {"http", "s2s", "sse", "s3p", "segment"}


_MESSAGE = ("run", "name", "sender", "layer", "kind", "exchange", "stream", "offset", "length", "state", "failure")
_PROBLEM = ("run", "name", "sender", "exchange", "offset", "rule", "clause", "fatal", "context_offset")


@pytest.mark.parametrize("name", ["recording", "rotated"])
def test_messages(name: str, request: pytest.FixtureRequest) -> None:
    path = both(name, request)
    expected = told("show", "--json", path)
    found = rows(part_of(path, table="messages"))
    assert len(found) == len(expected) > 100
    for row, line in zip(found, expected, strict=True):
        problem = line["type"] == "problem"
        assert (row["kind"] == "problem") is problem is (row["layer"] is None) is (row["rule"] is not None)
        assert spelled(row["end"]) == line["time"] and row["conversation"] == line["connection"]
        for key in _PROBLEM if problem else _MESSAGE:
            assert row[key] == line.get(key), key
        if problem:
            assert row["context"].hex() == line["context_hex"]
            continue
        assert row["records"] == line["records"] and json.loads(row["fields"]) == line["fields"]
        assert row["answers_us"] == (line["answer_ns"] / _NS if "answer_ns" in line else None)
        assert row["metered"] == line["fields"].get("metered")
    assert "problem" in {row["kind"] for row in found}
    assert "zstd" in {row["compression"] for row in found}


@pytest.mark.parametrize("name", ["recording", "rotated"])
def test_connections(name: str, request: pytest.FixtureRequest) -> None:
    path = both(name, request)
    expected = told("show", "--conversations", "--json", path)
    found = rows(part_of(path, table="connections"))
    assert len(found) == len(expected) >= 13
    same = ("run", "name", "side", "protocol", "tls", "client", "server", "client_bytes", "server_bytes", "lost_bytes")
    same += ("whole", "messages", "problems", "failures", "ended")
    for row, line in zip(found, expected, strict=True):
        for key in same:
            assert row[key] == line[key], key
        assert row["conversation"] == line["connection"]
        assert dict(row["notes"]) == {key: line[key] for key in ("route", "stream", "identity") if key in line}
        assert spelled(row["start"]) == line["time"]
        assert row["client_host"] == "127.0.0.1" and row["reset"] is False
    records = rows(part_of(path, table="records"))
    for action in ("appended", "delivered"):
        counted = sum(row["action"] == action and row["acknowledged"] for row in records)
        assert sum(row[action] for row in found) == counted > 50
    failed = [row for row in rows(part_of(path, table="messages")) if row["failed"]]
    assert len(failed) == 5, "each once"
    counted = [(row["failures"], row["problems"]) for row in found if row["failures"] or row["problems"]]
    assert sorted(counted) == [(1, 0), (1, 0), (1, 0), (1, 1)], "one refuses what broke the protocol"


def test_routes_are_told_where_they_are_certain(recording: Path) -> None:
    """Also for the request by which the gateway noted them, and over connections that took two."""
    expected = {"orders": True, "other": True, "sessions": True, "nowhere": False}
    for table in ("records", "messages"):
        for row in rows(part_of(recording, table=table)):
            stream = (row["stream"] or "").removeprefix("penstock/")
            for prefix, certain in expected.items():
                if stream.startswith(prefix) and row["kind" if table == "messages" else "action"] != "problem":
                    assert row["route"] == (("orders" if prefix == "orders" else "rest") if certain else None), row


@pytest.mark.parametrize("table", sorted(CAPTURE_TABLES))
def test_any_columns_in_any_order(recording: Path, table: str) -> None:
    """The values of a column do not depend on the other columns."""
    names = [column.name for column in CAPTURE_TABLES[table]]
    whole = rows(part_of(recording, table=table))
    for start in range(5):
        chosen = names[start::5][::-1]
        part = rows(part_of(recording, table=table), chosen)
        assert part == [{name: row[name] for name in chosen} for row in whole]


@pytest.mark.parametrize("table", sorted(CAPTURE_TABLES))
@pytest.mark.parametrize("name", ["recording", "rotated"])
def test_groups_give_the_same_rows(name: str, table: str, request: pytest.FixtureRequest) -> None:
    path = both(name, request)
    whole = read(path, table)
    for groups in (2, 5):
        assert bag(read(path, table, groups=groups)) == bag(whole)


@pytest.mark.parametrize("name", ["recording", "rotated"])
def test_all_tables_in_one_pass(name: str, request: pytest.FixtureRequest) -> None:
    """A row of `all` is a row of exactly one table, and each table's rows are those it has by itself."""
    path = both(name, request)
    found = read(path, ALL_TABLES)
    for row in found:
        assert [value is None for value in row.values()].count(False) == 1
    for table in CAPTURE_TABLES:
        assert bag(row[table] for row in found if row[table] is not None) == bag(read(path, table))


def test_all_tables_over_several_batches(rotated: Path) -> None:
    batches = list(Stream(rotated, ALL_TABLES, max_files_per_batch=1).rest())
    assert len(batches) > 1
    for table in CAPTURE_TABLES:
        without = ["route"] if table == "messages" else []  # it may stand in a file that was not there yet
        one_by_one = (row for batch in batches for row in batch if row[table] is not None)
        assert bag((row[table] for row in one_by_one), without) == bag(read(rotated, table), without)


def test_batches_are_bounded(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many records a message brings, by rows and by bytes."""
    whole = rows(part_of(recording))
    monkeypatch.setattr("penstock_spark.capture.records.BATCH_ROWS", 7)
    assert rows(part_of(recording)) == whole
    monkeypatch.setattr("penstock_spark.capture.records.BATCH_BYTES", 500)
    assert rows(part_of(recording)) == whole
    monkeypatch.setattr("penstock_spark.capture.messages.BATCH_ROWS", 7)
    assert bag(rows(part_of(recording, table="messages"))) == bag(read(recording, "messages"))


def test_envelopes(tmp_path: Path) -> None:
    """An enveloped record is returned as it was sent, or unwrapped if that is asked for."""
    body = wrap([(b"kind", b"a")], b"inside")
    command = b"*4\r\n$6\r\nAPPEND\r\n$6\r\norders\r\n*0\r\n*2\r\n$%d\r\n%b\r\n$5\r\nplain\r\n" % (len(body), body)
    opened, _, chunk, *_ = s3p_talk(1)
    path = tmp_path / "one.pcapng"
    path.write_bytes(written([opened, replace(chunk, data=command)]))
    names = ["body", "headers", "acknowledged"]
    assert read(path, "records", names) == [
        {"body": body, "headers": [], "acknowledged": False},
        {"body": b"plain", "headers": [], "acknowledged": False},
    ]
    assert read(path, "records", names, envelopes=True) == [
        {"body": b"inside", "headers": [{"name": b"kind", "value": b"a"}], "acknowledged": False},
        {"body": b"plain", "headers": [], "acknowledged": False},
    ]


def only(found: Sequence[Row], **values: object) -> list[Row]:
    return [row for row in found if all(row[name] == value for name, value in values.items())]


@pytest.mark.parametrize("table", sorted(CAPTURE_TABLES))
def test_columns_are_called_as_they_were_asked_for(table: str, recording: Path) -> None:
    ours = schema_of(table)
    asked = pa.schema([field.with_name(field.name.upper()) for field in ours])
    part = part_of(recording, table=table)
    found = pa.Table.from_batches(decode_rows(part, asked), asked)
    assert found.rename_columns(ours.names).equals(pa.Table.from_batches(decode_rows(part, ours), ours))
    assert found.num_rows
