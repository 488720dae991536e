"""S3P servers that say what cannot be true, or give less than they are asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.scripted_servers import s3p_server

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.model import RecordId
from penstock_codecs.s3p import ErrorReply, ReadRecords, Records
from penstock_spark.clients import Endpoint, ReadPosition, StreamClient, patience
from penstock_spark.clients.s3p.client import S3PStreamClient
from penstock_spark.clients.s3p.walk import following

STORED = [(RecordId(5, n), b"x" * 10) for n in range(50)]


def client_of(port: int) -> StreamClient:
    """One that gives up at once."""
    return S3PStreamClient(Endpoint("s3p", "127.0.0.1", port, recover_seconds=0.0))


def store(most: int, *, refuse_above: int = 1000) -> Callable[[Any], Any]:
    """With STORED, of which it gives at most so many at once, and refuses to be asked for more than `refuse_above`."""

    def answer(command: ReadRecords) -> Any:
        if (command.count or 0) > refuse_above:
            return ErrorReply("ERR_LIMITS", "COUNT is too large")
        found = [pair for pair in STORED if pair[0] >= command.min_id]
        return Records.of(found[: min(most, command.count or most)])

    return answer


@pytest.mark.parametrize("most", [1, 2, 3, 1000])
@pytest.mark.parametrize("refuse_above", [1, 2, 7, 1000])
def test_servers_may_give_less_and_take_less(most: int, refuse_above: int) -> None:
    with s3p_server(store(most, refuse_above=refuse_above)) as server:
        client = client_of(server.port)
        tail = client.tail("s")
        assert tail == ReadPosition(50, "5-50")
        assert sum(len(rows.columns.bodies) for rows in client.read("s", ReadPosition(0, "5-0"), tail)) == 50
        client.close()


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", FailureCode.UNAVAILABLE, "expected a reply"),
        (b"*3\r\n", FailureCode.UNAVAILABLE, "pairs of identifier and record"),
        (b"*2\r\n$1\r\nx\r\n$1\r\ny\r\n", FailureCode.UNAVAILABLE, "not an identifier"),
        (b"$3\r\n1-1\r\n", FailureCode.UNAVAILABLE, "AppendedId came where Records was expected"),
        (b"+OK\r\n", FailureCode.UNAVAILABLE, "Ok came where Records was expected"),
        (None, FailureCode.UNAVAILABLE, "1 replies outstanding"),
        (b"*9999\r\n", FailureCode.UNAVAILABLE, "pairs of identifier and record"),
        (b"*9998\r\n", FailureCode.LIMIT_EXCEEDED, "4999 records exceed the limit"),
        (b"*2\r\n$3\r\n5-0\r\n$99999999\r\n", FailureCode.LIMIT_EXCEEDED, "exceeds the limit of 1048576 bytes"),
        (ErrorReply("ERR_UNKNOWN_STREAM", "none"), FailureCode.STREAM_NOT_FOUND, "none"),
        (ErrorReply("ERR_NOT_REPRESENTABLE", "it has headers"), FailureCode.NOT_REPRESENTABLE, "it has headers"),
        (ErrorReply("ERR_BAD_FORMAT", "what?"), FailureCode.OTHER, "what?"),
        (ErrorReply("ERR_ODD", "what?"), FailureCode.OTHER, "ERR_ODD what?"),
        (Records.of([(RecordId(0, 1), b"x")]), FailureCode.UNAVAILABLE, "asked for records from 0-2 on it gives 0-1"),
    ],
)
def test_what_servers_say(answer: Any, code: FailureCode, text: str) -> None:
    with s3p_server(lambda _: answer) as server:
        client = client_of(server.port)
        with pytest.raises(OperationFailed, match=text) as raised:
            client.advance("s", ReadPosition(3, "0-3"), 7)
        assert raised.value.failure.code is code
        assert f"s3p://127.0.0.1:{server.port}" in raised.value.failure.message
        client.close()


def test_a_server_whose_records_do_not_get_on_is_not_asked_for_ever() -> None:
    with s3p_server(lambda _: Records.of([(RecordId(5, 0), b"x")])) as server:
        client = client_of(server.port)
        for ask in (client.last_timestamp, client.tail, lambda name: client.at_timestamp(name, 9)):
            with pytest.raises(OperationFailed, match="on it gives 5-0"):
                ask("s")
        client.close()


def test_a_server_that_stops_amid_its_answer_is_not_waited_for_for_ever() -> None:
    with s3p_server(lambda _: b"*2\r\n$3\r\n5-") as server:
        client = S3PStreamClient(Endpoint("s3p", "127.0.0.1", server.port, request_seconds=0.1, recover_seconds=0.0))
        with pytest.raises(OperationFailed, match=r"nothing came in 0\.1 s"):
            client.first("s")
        client.close()


@given(st.data())
@examples(most=40)
def test_whatever_is_trimmed_meanwhile_a_range_is_whole_or_an_error(data: st.DataObject) -> None:
    """Trims come between any two commands, connections are cut at any; bodies say the numbers."""
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=8))
    ids = [RecordId(ms, seq) for ms, size in enumerate(sizes) for seq in range(size)]
    stored = [(each, b"%d" % number) for number, each in enumerate(ids)]
    most = data.draw(st.integers(1, 5))
    happen = st.one_of(st.just(0), st.integers(0, len(ids)), st.just("cut"))
    events = iter(data.draw(st.lists(happen, max_size=12)))
    kept = 0

    def answer(command: ReadRecords) -> Any:
        nonlocal kept
        event = next(events, 0)
        if event == "cut":
            return None
        kept = max(kept, event)
        found = [pair for pair in stored[kept:] if pair[0] >= command.min_id]
        return Records.of(found[: min(most, command.count or most)])

    first, last = sorted(data.draw(st.tuples(st.integers(0, len(ids)), st.integers(0, len(ids)))))
    marks = [
        *(ReadPosition(number, str(each)) for number, each in enumerate(ids)),
        ReadPosition(len(ids), str(following(ids[-1]))),
    ]
    behind = ReadPosition(last, str(following(ids[last - 1]))) if last else marks[0]
    end = data.draw(st.sampled_from([marks[last], behind]))
    with s3p_server(answer) as server, pytest.MonkeyPatch.context() as patch:
        # The server is there at once.
        patch.setattr(patience, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: None))
        client = S3PStreamClient(Endpoint("s3p", "127.0.0.1", server.port, recover_seconds=20.0))
        found: list[bytes] = []
        try:
            for rows in client.read("s", marks[first], end):
                found += rows.columns.bodies
        except OperationFailed as error:
            assert error.failure.code is FailureCode.RANGE_NOT_SATISFIABLE
            assert kept > first
            there = error.failure.details["first"]
            assert isinstance(there, ReadPosition) and there.seq_num <= max(kept, first)
        else:
            assert found == [b"%d" % number for number in range(first, last)]
        finally:
            client.close()
