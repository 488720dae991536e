"""Micro-batches of streams in memory, asked for as Spark asks: from a checkpoint on, nothing lost, nothing twice."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from support.spark.fake_streams import FakeClient, FakeServer

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock_spark.schemas import RECORDS, spark_schema
from penstock_spark.source.loss import DataLost
from penstock_spark.source.options import source_options
from penstock_spark.source.streaming import StreamReader, WrongCheckpoint, read_offset

Found = list[tuple[str, bytes]]


class Query:
    """Spark's calls of a reader. `offset` is the checkpoint, which outlives `restart`."""

    def __init__(self, server: FakeServer, **given: str) -> None:
        self.server = server
        self.given = {"stream_pattern": "b/*", **given}
        self.offset = ""
        self.batches: list[Found] = []
        self.restart()

    def restart(self, *, available_now: bool = False, **given: str) -> Query:
        self.given.update(given)
        options = source_options({"endpoint": "http://h", **self.given})
        self.reader = StreamReader(options, spark_schema(RECORDS), self.server.connect)
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        if not self.offset:
            self.offset = json.dumps(self.reader.initialOffset())
        return self

    def step(self, *, everything: bool = False) -> bool:
        """One micro-batch, planned twice as where the first attempt at it was killed; False where there is none."""
        limit = ReadAllAvailable() if everything else self.reader.getDefaultReadLimit()
        end = json.dumps(self.reader.latestOffset(json.loads(self.offset), limit))
        if end == self.offset:
            return False
        first, second = (self._read(end), self._read(end))
        assert first == second
        self.batches.append(first)
        self.reader.commit(json.loads(end))
        self.offset = end
        return True

    def _read(self, end: str) -> Found:
        planned = self.reader.partitions(json.loads(self.offset), json.loads(end))
        worker = pickle.loads(pickle.dumps(_without_server(self.reader)))
        worker._connect = self.server.connect
        rows = [row for one in planned for batch in worker.read(one) for row in batch.to_pylist()]
        return [(row["stream"], row["body"]) for row in rows]

    def drain(self) -> Found:
        """Micro-batches until there is none: the records of all."""
        before = len(self.batches)
        while self.step():
            pass
        return [one for batch in self.batches[before:] for one in batch]


def _without_server(reader: StreamReader) -> StreamReader:
    copied = StreamReader.__new__(StreamReader)
    copied.__dict__.update(reader.__getstate__(), _connect=None)
    return copied


def filled(count: int = 10) -> FakeServer:
    server = FakeServer()
    append(server, "b/s", count)
    return server


def append(server: FakeServer, stream: str, count: int) -> Found:
    at = len(server.streams[stream].bodies) if stream in server.streams else 0
    bodies = [b"%s %d" % (stream.encode(), index) for index in range(at, at + count)]
    server.append(stream, bodies)
    return [(stream, body) for body in bodies]


def positions(offset: dict[str, Any]) -> dict[str, int]:
    """The checkpoint, without identities."""
    return {stream: checkpoint.position for stream, checkpoint in read_offset(offset).items()}


def test_what_is_there_and_what_comes() -> None:
    server = FakeServer()
    first = append(server, "b/s", 10)
    query = Query(server)
    assert query.drain() == first
    assert not query.step()
    second = append(server, "b/s", 5)
    assert query.restart().drain() == second
    assert positions(json.loads(query.offset)) == {"b/s": 15}
    query.reader.stop()
    assert server.open == 1  # the reader before the restart was never stopped


def test_where_a_query_begins() -> None:
    server = filled()
    assert Query(server, start="latest").drain() == []
    assert len(Query(server, start="seq_num:3").drain()) == 7
    with pytest.raises(DataLost, match=r"b/s ends at .*, before option start"):
        Query(server, start="seq_num:11")
    server.trim("b/s", 5)
    assert len(Query(server).drain()) == 5
    with pytest.raises(DataLost, match="was trimmed"):
        Query(server, start="seq_num:3")
    assert len(Query(server, start="seq_num:3", fail_on_data_loss="false").drain()) == 5
    assert len(Query(server, start="timestamp:1008").drain()) == 2


def test_new_streams_are_read_from_their_first_record() -> None:
    server = filled()
    query = Query(server, start="latest")
    assert query.drain() == []
    append(server, "c/not", 3)
    expected = append(server, "b/new", 3)
    assert query.drain() == expected
    expected = append(server, "b/new", 2) + append(server, "b/s", 2) + append(server, "b/trimmed", 4)[2:]
    server.trim("b/trimmed", 2)
    assert sorted(query.restart().drain()) == sorted(expected)


def test_empty_streams_make_no_batches() -> None:
    server = filled()
    query = Query(server)
    query.drain()
    append(server, "b/empty", 0)
    assert not query.step()


def test_batches_are_as_large_as_is_admitted() -> None:
    server = filled(20)
    append(server, "b/t", 5)
    query = Query(server, max_records_per_batch="6")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(6)
    query.step()
    assert query.batches[-1] == [(name, b"%s %d" % (name.encode(), at)) for name in ("b/s", "b/t") for at in range(3)]
    assert len(query.drain()) == 19
    assert max(map(len, query.batches)) == 6
    append(server, "b/s", 50)
    assert query.step(everything=True)
    assert len(query.batches[-1]) == 50


@pytest.mark.parametrize("limit", [None, "4"])
def test_available_now_reads_what_was_there_when_it_began(limit: str | None) -> None:
    server = filled()
    query = Query(server, **({} if limit is None else {"max_records_per_batch": limit}))
    query.step()
    append(server, "b/new", 6)
    query.restart(available_now=True)
    later = append(server, "b/s", 9) + append(server, "b/new", 3) + append(server, "b/newer", 2)
    query.drain()
    read = [one for batch in query.batches for one in batch]
    assert sorted(read) == sorted(
        [*(("b/s", b"b/s %d" % i) for i in range(10)), *(("b/new", b"b/new %d" % i) for i in range(6))]
    )
    assert sorted(query.restart(available_now=True).drain()) == sorted(later)


@pytest.mark.parametrize("limit", [None, "2"])
def test_available_now_of_a_stream_that_was_trimmed_since_the_query_began(limit: str | None) -> None:
    server = filled()
    query = Query(server, **({} if limit is None else {"max_records_per_batch": limit}))
    query.drain()
    server.trim("b/s", 5)
    expected = append(server, "b/s", 3)
    assert query.restart(available_now=True).drain() == expected
    expected = append(server, "b/s", 2)
    assert query.restart(available_now=True).drain() == expected


def test_available_now_in_a_query_that_begins_behind_what_was_there() -> None:
    """The offset to begin at is looked up after the one to end at."""
    server = filled()
    options = source_options({"endpoint": "http://h", "stream_pattern": "b/*", "start": "latest"})
    reader = StreamReader(options, spark_schema(RECORDS), server.connect)
    reader.prepareForTriggerAvailableNow()
    append(server, "b/s", 5)
    append(server, "b/t", 5)
    start = reader.initialOffset()
    assert positions(start) == {"b/s": 15, "b/t": 5}
    assert reader.latestOffset(start, ReadAllAvailable()) == start


# ---- what is gone ----------------------------------------------------------------------------------------------------


def test_a_stream_that_was_deleted(caplog: pytest.LogCaptureFixture) -> None:
    server = filled()
    query = Query(server)
    query.drain()
    del server.streams["b/s"]
    with pytest.raises(DataLost, match="b/s was deleted, with its records from 10"):
        query.step()
    query.restart(fail_on_data_loss="false")
    assert query.drain() == []
    assert "b/s was deleted" in caplog.text
    expected = append(server, "b/s", 3)
    assert query.drain() == expected


def test_a_stream_that_was_deleted_and_made_again() -> None:
    server = filled()
    query = Query(server)
    query.drain()
    del server.streams["b/s"]
    expected = append(server, "b/s", 3)
    with pytest.raises(DataLost, match=r"b/s ends at 3.*deleted and created again"):
        query.step()
    assert query.restart(fail_on_data_loss="false").drain() == expected


def test_a_stream_that_was_made_again_and_has_more_records(caplog: pytest.LogCaptureFixture) -> None:
    server = filled(100)
    query = Query(server)
    query.drain()
    del server.streams["b/s"]
    bodies = [b"another %d" % index for index in range(150)]
    server.append("b/s", bodies)
    with pytest.raises(DataLost, match=r"b/s has another record before 100 .*deleted and created again"):
        query.step()
    assert query.restart(fail_on_data_loss="false").drain() == [("b/s", body) for body in bodies]
    assert "created again" in caplog.text


def test_a_stream_that_is_missing_when_its_last_record_is_looked_up_is_not_read_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gateway may learn by that request that the stream is another one than it knew."""
    server = filled(100)
    query = Query(server)
    query.drain()
    del server.streams["b/s"]
    server.append("b/s", [b"another %d" % index for index in range(150)])
    real, missing = FakeClient.identity, iter([True])

    def identity(self: FakeClient, stream: str, position: int) -> str:
        if next(missing, False):
            raise fail(FailureCode.STREAM_NOT_FOUND, f"{stream} is not there")
        return real(self, stream, position)

    monkeypatch.setattr(FakeClient, "identity", identity)
    assert not query.step()
    with pytest.raises(DataLost, match=r"b/s has another record before 100 .*deleted and created again"):
        query.step()


def test_a_stream_that_was_made_again_and_trimmed_to_where_the_old_one_was_read() -> None:
    server = filled(100)
    query = Query(server)
    query.drain()
    del server.streams["b/s"]
    server.append("b/s", [b"another %d" % index for index in range(150)])
    server.trim("b/s", 100)  # the records read of the old one are trimmed and cannot be compared any more
    assert query.drain() == [("b/s", b"another %d" % index) for index in range(100, 150)]


def test_a_checkpoint_without_identities_is_read_on() -> None:
    server = filled()
    query = Query(server)
    query.drain()
    query.offset = json.dumps(positions(json.loads(query.offset)))
    expected = append(server, "b/s", 3)
    assert query.restart().drain() == expected
    assert json.loads(query.offset) == {"b/s": [13, FakeClient(server).identity("b/s", 13)]}


def test_a_named_stream_that_was_deleted() -> None:
    server = filled()
    given = {"stream_pattern": "c/*", "stream": "b/s"}
    query = Query(server, **given)
    query.drain()
    del server.streams["b/s"]
    with pytest.raises(DataLost, match="b/s was deleted"):
        query.step()
    query.restart(fail_on_data_loss="false").drain()
    assert json.loads(query.offset) == {}
    with pytest.raises(OperationFailed, match="b/s is not there"):
        Query(server, **given)


def test_records_that_were_trimmed_before_they_were_read() -> None:
    server = filled()
    query = Query(server)
    query.drain()
    append(server, "b/s", 10)
    server.trim("b/s", 15)
    with pytest.raises(DataLost, match="b/s was trimmed: records from 10"):
        query.step()
    found = query.restart(fail_on_data_loss="false").drain()
    assert found == [("b/s", b"b/s %d" % index) for index in range(15, 20)]


def test_streams_that_are_not_asked_for_any_more() -> None:
    server = filled()
    append(server, "b/t", 3)
    query = Query(server)
    query.drain()
    append(server, "b/s", 2)
    del server.streams["b/t"]
    assert len(query.restart(stream_pattern="b/s*").drain()) == 2
    assert positions(json.loads(query.offset)) == {"b/s": 12}


OF_OTHER_PROTOCOLS = ([5, "40"], [5, "40", "9:" + "a" * 24], [5, "0_40,3"])
"""Entries of checkpoints that earlier versions wrote for segments and Durable Streams."""


@pytest.mark.parametrize(
    "offset",
    [
        *({"b/s": entry} for entry in (*OF_OTHER_PROTOCOLS, "5", -1, None, 5.0, True, [-1, "a" * 24], [5.0, "a" * 24])),
        [["b/s", 5]],
        5,
    ],
)
def test_a_checkpoint_that_is_not_ours(offset: Any) -> None:
    query = Query(filled())
    query.offset = json.dumps(offset)
    with pytest.raises(WrongCheckpoint, match=r"b/s|has 5, not positions"):
        query.step()


def test_how_far_the_streams_are() -> None:
    server = filled()
    query = Query(server, max_records_per_batch="3")
    assert query.reader.reportLatestOffset() is None
    query.step()
    assert query.reader.reportLatestOffset() == {"b/s": 10}


events = st.lists(
    st.tuples(st.sampled_from(["append", "step", "restart", "now"]), st.sampled_from("stuv"), st.integers(0, 9)),
    max_size=20,
)


@given(happened=events, limit=st.none() | st.integers(1, 12))
def test_whatever_happens_each_record_is_read_once_and_in_order(
    happened: list[tuple[str, str, int]], limit: int | None
) -> None:
    server = FakeServer()
    query = Query(server, **({} if limit is None else {"max_records_per_batch": str(limit)}))
    for what, name, count in happened:
        match what:
            case "append":
                append(server, f"b/{name}", count)
            case "step":
                query.step()
            case _:
                query.restart(available_now=what == "now")
    query.restart().drain()
    read: dict[str, list[bytes]] = {}
    for stream, body in (one for batch in query.batches for one in batch):
        read.setdefault(stream, []).append(body)
    assert read == {name: found.bodies for name, found in server.streams.items() if found.bodies}
    assert all(len(batch) <= (limit or len(batch)) for batch in query.batches)
