"""Events of a client, alone and wired to a server, and the laws of codecs (S2 fact sheet, section 3)."""

from __future__ import annotations

import json
from functools import partial
from importlib.metadata import entry_points
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import Failure, FailureCode, LocalProtocolError, RemoteProtocolError
from penstock.model.records import Columns, Header, Record, RecordBatch, StreamPosition
from penstock.wire import conformance
from penstock.wire.codec import NEED_DATA, PAUSED, Pull, Role
from penstock_s2.codec.formats import BytesFormat
from penstock_s2.codec.sse import (
    DIALECTS,
    MAX_EVENT_BYTES,
    PLUGIN,
    BatchEvent,
    Done,
    ErrorEvent,
    Event,
    EventId,
    EventStreamClient,
    EventStreamServer,
    Ping,
    SseDialect,
)
from penstock_s2.codec.sse.dialects import S2, SEED

C = FailureCode
RECORD = b'{"seq_num":7,"timestamp":9,"body":"x"}'
BATCH = b'event: batch\nid: 7,1,9\ndata: {"records":[' + RECORD + b"]}\n\n"
ANY_DIALECT = pytest.mark.parametrize("dialect", list(DIALECTS.values()), ids=lambda dialect: dialect.name)


def plain(event: Any) -> Any:
    """An event with its records spelled out, to be compared and shown."""
    if isinstance(event, BatchEvent):
        return ("batch", list(event.batch.records()), event.batch.metered, event.batch.tail, event.id)
    return event


def hear(client: EventStreamClient, *pieces: bytes) -> list[Any]:
    """All that is heard, ending in NEED_DATA, PAUSED or the failure."""
    heard: list[Any] = []
    for piece in pieces:
        client.receive(piece)
        while True:
            try:
                event = client.next_event()
            except RemoteProtocolError as error:
                return [*heard, error.failure]
            if isinstance(event, Pull):
                break
            heard.append(plain(event))
    return [*heard, event]


def heard_batch(seq_num: int = 7) -> Any:
    return ("batch", [Record(seq_num, 9, (), b"x")], 9, None, EventId(seq_num, 1, 9))


# ---- S2's words ------------------------------------------------------------------------------------------------


def test_a_conversation() -> None:
    client = EventStreamClient()
    stream = (
        b'event: ping\ndata: {"timestamp":5,"tail":{"seq_num":7,"timestamp":0}}\n\n'
        + BATCH
        + b"data: [DONE]\n\n"
        + BATCH  # after the end nothing is heard
    )
    assert hear(client, stream) == [Ping(5, StreamPosition(7, 0)), heard_batch(), Done(), PAUSED]
    assert hear(client, BATCH, b"") == [PAUSED]
    assert client.buffered == 0


@pytest.mark.parametrize(
    ("data", "failure"),
    [
        (b'{"code":"unavailable","message":"gone"}', Failure(C.UNAVAILABLE, "gone")),
        (
            b'{"tail":{"seq_num":3,"timestamp":4}}',
            Failure(
                C.RANGE_NOT_SATISFIABLE, "nothing to read: the tail is 3@4", {"tail": {"seq_num": 3, "timestamp": 4}}
            ),
        ),
        (b"what?", Failure(C.OTHER, "error: what?")),
        (b"", Failure(C.OTHER, "error")),
    ],
)
def test_errors_end_the_stream(data: bytes, failure: Failure) -> None:
    client = EventStreamClient()
    assert hear(client, BATCH, b"event: error\ndata: " + data + b"\n\n", b"") == [
        heard_batch(),
        ErrorEvent(failure),
        PAUSED,
    ]


@pytest.mark.parametrize(
    "noise",
    [
        b": keep-alive\n\n",
        b"retry: 100\n\n",
        b"data: hello\n\n",
        b"event: news\ndata: x\n\n",
        b"event: batch\n\n",
        b'event: batch\ndata: {"records":[]}\n\n',
        b"event: done\ndata:\n\n",
        b"data:\n\n",
        b"id: rubbish\ndata: hello\n\n",
    ],
)
def test_what_is_passed_over(noise: bytes) -> None:
    assert hear(EventStreamClient(), noise + BATCH + noise) == [heard_batch(), NEED_DATA]


def test_retry_is_remembered() -> None:
    client = EventStreamClient()
    hear(client, b"retry: 100\n\ndata: [DONE]\n\n")
    assert client.retry_ms == 100


def test_a_batch_of_nothing_but_the_tail_is_a_ping() -> None:
    stream = b'event: batch\ndata: {"records":[],"tail":{"seq_num":1,"timestamp":2}}\n\n'
    assert hear(EventStreamClient(), stream) == [Ping(None, StreamPosition(1, 2)), NEED_DATA]


def test_a_batch_without_an_id_of_its_own() -> None:
    second = b'event: batch\ndata: {"records":[{"seq_num":8,"timestamp":9,"body":"x"}]}\n\n'
    heard = hear(EventStreamClient(), BATCH + second)
    assert heard[1] == ("batch", [Record(8, 9, (), b"x")], 9, None, None)


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        (b"event: batch\nid: 7,1,9\ndata: {}\n\n", C.BAD_JSON),
        (b"event: batch\nid: 7,1,9\ndata: x\n\n", C.BAD_JSON),
        (b'event: batch\nid: 7,1,9\ndata: {"records":[\xff]}\n\n', C.BAD_JSON),
        (BATCH.replace(b"7,1,9", b"7:1:9"), C.BAD_HEADER),
        (BATCH.replace(b"7,1,9", b"8,1,9"), C.INVALID),
        (b'event: batch\ndata: {"records":[' + RECORD + b"," + RECORD + b"]}\n\n", C.INVALID),
        (b"event: ping\ndata: {}\n\n", C.BAD_JSON),
        (b'event: ping\ndata: {"timestamp":-1,"tail":{"seq_num":1,"timestamp":1}}\n\n', C.BAD_JSON),
        (b"", C.UNAVAILABLE),
        (b"data: [DONE]\n", C.UNAVAILABLE),
        (b"data: [DONE]", C.UNAVAILABLE),
        (b"data: [done]\n\n", C.UNAVAILABLE),
    ],
)
def test_a_server_that_breaks_the_protocol(stream: bytes, code: FailureCode) -> None:
    client = EventStreamClient()
    heard = hear(client, BATCH + stream, b"")
    assert heard[:-1] == [heard_batch()]
    assert heard[-1].code is code
    with pytest.raises(RemoteProtocolError):
        client.next_event()
    client.receive(BATCH)
    assert client.buffered == 0


def test_readers_cannot_send() -> None:
    with pytest.raises(LocalProtocolError, match="cannot send Done"):
        EventStreamClient().send(Done())


# ---- the seeds' words ------------------------------------------------------------------------------------------

SEED_PAGE = b"""id: 100:1:256
event: batch
data: {"records":[{"seq_num":100,"timestamp":1709481234567,"headers":[],"body":"Event data"}],"tail":{"seq_num":101,"timestamp":1709481234567}}

id: 101:2:512
event: batch
data: {"records":[{"seq_num":101,"timestamp":1709481234890,"headers":[],"body":"Another event"}],"tail":{"seq_num":102,"timestamp":1709481234890}}

id: 101:2:512
event: ping
data:

event: done
data:

"""  # noqa: E501


def test_the_seeds_page() -> None:
    assert hear(EventStreamClient(SEED, BytesFormat.RAW), SEED_PAGE) == [
        ("batch", [Record(100, 1709481234567, (), b"Event data")], 18, (101, 1709481234567), EventId(100, 1, 256)),
        ("batch", [Record(101, 1709481234890, (), b"Another event")], 21, (102, 1709481234890), EventId(101, 2, 512)),
        Ping(None, None),
        Done(),
        PAUSED,
    ]


# ---- wired to a server -----------------------------------------------------------------------------------------

positions = st.builds(StreamPosition, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
headers = st.lists(st.builds(Header, st.binary(max_size=4), st.binary(max_size=4)), max_size=2).map(tuple)
record_lists = st.lists(st.tuples(st.binary(max_size=20), headers, st.integers(0, 5)), min_size=1, max_size=4)
words = st.lists(
    st.tuples(record_lists, st.none() | positions)
    | st.builds(Ping, st.integers(0, 2**64 - 1), positions)
    | st.sampled_from([Done(), ErrorEvent(Failure(C.STORAGE, "disk"))]),
    max_size=6,
)


def spoken(said: list[Any], dialect: SseDialect) -> tuple[bytes, list[Any]]:
    """Return a server's bytes for these words, and the events that a client should get."""
    server, out, expected = EventStreamServer(dialect, BytesFormat.BASE64), [], []
    seq_num, timestamp, count, metered = 0, 1000, 0, 0
    for word in said:
        event: Event
        if isinstance(word, tuple):
            records, tail = word
            stamps = [timestamp := timestamp + step for _, _, step in records]
            columns = Columns(
                list(range(seq_num, seq_num + len(records))),
                stamps,
                [body for body, _, _ in records],
                {index: some for index, (_, some, _) in enumerate(records) if some},
            )
            batch = RecordBatch(columns, tail=tail)
            seq_num, count, metered = seq_num + len(records), count + len(records), metered + batch.metered
            event = BatchEvent(batch, EventId(seq_num - 1, count, metered))
            expected.append(plain(event))
        else:
            event = word
            expected.append(Ping(None, None) if isinstance(word, Ping) and not dialect.ping_data else word)
        out += server.send(event)
        if isinstance(word, Done | ErrorEvent):
            return b"".join(out), [*expected, PAUSED]
    return b"".join(out), [*expected, NEED_DATA]


@given(words, st.sampled_from(list(DIALECTS.values())), st.lists(st.integers(0, 5000), max_size=4))
def test_a_client_hears_what_a_server_says(said: list[Any], dialect: SseDialect, cuts: list[int]) -> None:
    stream, expected = spoken(said, dialect)
    assert (
        hear(EventStreamClient(dialect, BytesFormat.BASE64), *conformance.pieces_of(stream, cuts) or [b":"]) == expected
    )


@pytest.mark.parametrize("newline", [b"\r", b"\r\n"])
@ANY_DIALECT
def test_any_line_end_will_do(dialect: SseDialect, newline: bytes) -> None:
    stream = PLUGIN.sample(Role.CLIENT, dialect.name)
    expected = hear(EventStreamClient(dialect), stream)
    assert hear(EventStreamClient(dialect), b"\xef\xbb\xbf" + stream.replace(b"\n", newline)) == expected
    assert len(expected) == 5


def test_the_largest_batch_in_its_worst_spelling_fits() -> None:
    body = b"\0" * ((1 << 20) - 8)
    server, client = EventStreamServer(), EventStreamClient()
    stream = b"".join(server.send(BatchEvent(RecordBatch(Columns([0], [0], [body])))))
    assert hear(client, stream)[0][1][0].body == body
    some = {i: (Header(b"\1", b""),) * 346 for i in range(1000)}
    worst = RecordBatch(Columns(list(range(1000)), [2**64 - 1] * 1000, [b""] * 1000, some))
    assert worst.metered <= 1 << 20
    stream = b"".join(EventStreamServer().send(BatchEvent(worst)))
    assert len(stream) < MAX_EVENT_BYTES
    assert hear(EventStreamClient(), stream)[0][2] == worst.metered


# ---- the laws --------------------------------------------------------------------------------------------------


class Shown(EventStreamClient):
    """Delivers events whose repr shows the records, so that the laws compare contents too."""

    def next_event(self) -> Any:
        event = super().next_event()
        return event if isinstance(event, Pull) else plain(event)


dialects = st.sampled_from(list(DIALECTS.values()))
fragments = st.sampled_from(
    [
        BATCH,
        BATCH[:-1],
        b"event: batch\n",
        b"id: 7,1,9\n",
        b'data: {"records":[' + RECORD + b"]}\n",
        b"data: [DONE]\n\n",
        b"event: done\ndata:\n\n",
        b"event: error\n",
        b"event: ping\n",
        b"data",
        b":",
        b"\n",
        b"\r",
        b"\xef\xbb\xbf",
        b"\0",
        b"x" * 50,
    ]
)
streams = st.lists(fragments | st.binary(max_size=8), max_size=12).map(b"".join)


def make(dialect: SseDialect) -> conformance.Make:
    return partial(Shown, dialect, max_event_bytes=256)


@ANY_DIALECT
def test_law_1_every_cut(dialect: SseDialect) -> None:
    sample = PLUGIN.sample(Role.CLIENT, dialect.name)
    conformance.cut_anywhere(partial(Shown, dialect), sample, range(len(sample)))
    for cut in range(len(sample)):
        conformance.cut_anywhere(partial(Shown, dialect), sample, [cut])


@given(dialects, streams, st.lists(st.integers(0, 1000), max_size=6))
def test_law_1_any_stream(dialect: SseDialect, stream: bytes, cuts: list[int]) -> None:
    conformance.cut_anywhere(make(dialect), stream, cuts)


@given(dialects, streams)
def test_law_2_garbage(dialect: SseDialect, stream: bytes) -> None:
    conformance.no_surprise(make(dialect), stream)


@given(dialects, st.data())
def test_law_2_near_misses(dialect: SseDialect, data: st.DataObject) -> None:
    sample = bytearray(PLUGIN.sample(Role.CLIENT, dialect.name))
    at = data.draw(st.integers(0, len(sample) - 1))
    sample[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    events, ending = conformance.no_surprise(partial(Shown, dialect), bytes(sample))
    assert ending.startswith("error") or ending == str(PAUSED)
    assert len(events) <= 4


@given(dialects, st.lists(fragments, max_size=8).map(b"".join), st.integers(1, 64))
def test_law_3_bounded(dialect: SseDialect, stream: bytes, piece: int) -> None:
    conformance.bounded(make(dialect), stream * 8, 256, piece)


@pytest.mark.parametrize(
    "endless", [b"x", b"data: x\n", b"data\n", b"id: x", b": x\n", b"event: x", b"\n", b"\r", b"retry: 1"]
)
def test_law_3_endless_streams(endless: bytes) -> None:
    conformance.bounded(partial(EventStreamClient, max_event_bytes=4096), endless * 20_000, 4096)


@given(dialects, streams, st.integers(0, 200))
def test_law_4_prefix(dialect: SseDialect, stream: bytes, length: int) -> None:
    conformance.prefix(make(dialect), stream, length)


@ANY_DIALECT
def test_law_4_every_truncation(dialect: SseDialect) -> None:
    sample = PLUGIN.sample(Role.CLIENT, dialect.name)
    for length in range(len(sample)):
        conformance.prefix(partial(Shown, dialect), sample, length)


def test_the_plugin_is_registered() -> None:
    (entry,) = [entry for entry in entry_points(group="penstock.codecs") if entry.name == "sse"]
    assert entry.load() is PLUGIN
    for dialect in PLUGIN.dialects:
        assert PLUGIN.sample(Role.SERVER, dialect) == b""
        codec = PLUGIN.make(Role.SERVER, dialect)
        assert codec.next_event() is NEED_DATA
        conformance.no_surprise(partial(PLUGIN.make, Role.SERVER, dialect), b"anything")


def test_data_is_json_for_any_parser() -> None:
    """Another reader of the stream than ours: lines and the standard library."""
    batch = RecordBatch(Columns([0], [1], [b"a\r\nb\xff"]), tail=StreamPosition(1, 1))
    text = b"".join(EventStreamServer(S2).send(BatchEvent(batch))).decode()
    name, event_id, data, *rest = text.split("\n")
    assert (name, event_id, rest) == ("event: batch", "id: 0,1,13", ["", ""])
    assert json.loads(data.removeprefix("data: "))["records"][0]["body"] == "a\r\nb\ufffd"
