"""One client for each protocol of a gateway, all with the same interface, which the matrix of bridges uses.

A front appends, reads from a position of its own protocol, follows the tail, trims, and appends on a condition. It
raises `NotCarried`, with the protocol's own error, if the server behind the gateway does not support an operation.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from support.process import BASIN, GatewayProcess
from support.s2.client import BASE64, Answer, S2Client, b64
from support.s2.frames import record as message_of

from penstock_proto import s2_pb2 as pb

__all__ = ["FENCE", "LOOPBACK", "NO_SUCH_THING", "TRIM", "Front", "NotCarried", "Record", "S2Front", "Seen", "Take"]

LOOPBACK = "127.0.0.1"
FENCE, TRIM = b"fence", b"trim"
NO_SUCH_THING = "-"
"""The mark of something that the front's protocol does not have."""


class Record(NamedTuple):
    """Content of one record."""

    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def is_command(self) -> bool:
        """A fence or a trim: an operation, not data, which S3P and segments leave out."""
        return len(self.headers) == 1 and not self.headers[0][0]


class Seen(NamedTuple):
    """A record that was read, and where: a position in the words of the front that read it."""

    at: Any
    record: Record
    timestamp: int | None = None


Take = Callable[[int], list[Seen]]
"""Waits for the next so many records."""


class NotCarried(Exception):
    """The server behind the gateway has no such thing, and the gateway said so."""


class Front:
    """A client of one stream of a gateway.

    `plain`: it can append only bodies of at least one byte, without headers. Its reads give whole records all the same:
    S3P and segments carry them in envelopes, and these are opened here. `numbered`: its positions are sequence numbers.
    `commands`: it appends and reads command records. `text_names`: it has only names of headers that are UTF-8.
    `largest`: the largest body that it takes, in bytes.
    """

    name: str
    plain = False
    numbered = False
    commands = False
    text_names = False
    largest = 1 << 20

    def __init__(self, gateway: GatewayProcess, stream: str) -> None:
        self.gateway = gateway
        self.stream = stream

    def formed(self, record: Record) -> Record:
        """Return a record of the size of this one, or nearly, that the protocol can express."""
        return record

    def create(self) -> None:
        """Create the stream."""
        raise NotImplementedError

    def append(self, records: Sequence[Record]) -> None:
        """Append one batch and wait for its acknowledgement."""
        raise NotImplementedError

    def start(self) -> Any:
        """Return a position at or before the first record."""
        raise NotImplementedError

    def read(self, at: Any) -> list[Seen]:
        """Return all records from a position on."""
        raise NotImplementedError

    @contextmanager
    def follow(self, at: Any) -> Iterator[Take]:
        """Follow from `at`, where there is no record yet; the first wait has begun when the context is entered."""
        raise NotImplementedError
        yield

    def tail(self) -> Any:
        """Return the lowest position that the next record can get."""
        raise NotImplementedError

    def trim(self, at: Any) -> None:
        """Trim the records before this position."""
        raise NotImplementedError

    def append_if(self, holds: bool, record: Record) -> bool:
        """Append on a condition of this protocol, which holds or does not; whether it was appended."""
        raise NotCarried(NO_SUCH_THING)

    def fence(self) -> None:
        """Shut others out: checks that who has the token can append and others cannot."""
        raise NotCarried(NO_SUCH_THING)

    def close(self) -> None:
        """Connections that it holds."""


def checked(answer: Answer, status: int = 200) -> Answer:
    """Raises NotCarried where the gateway says that this cannot be had; else it must have this status."""
    if answer.status in (422, 501):
        raise NotCarried(f"{answer.status} {answer.json(answer.status)['code']}")
    assert answer.status == status, answer
    return answer


class S2Front(Front):
    """Base of the S2 fronts: unary protobuf requests, unless a subclass overrides them."""

    numbered = True
    commands = True

    def __init__(self, gateway: GatewayProcess, stream: str) -> None:
        super().__init__(gateway, stream)
        self.client = S2Client((LOOPBACK, gateway.s2_port), BASIN)

    def create(self) -> None:
        self.client.ensure_stream(self.stream)

    def post(self, records: Sequence[Record], match: int | None = None, token: str | None = None) -> Answer:
        """Append; the answer of a unary request, whose body is in protobuf where the status is 200."""
        messages = [message_of(record.body, record.headers) for record in records]
        message = pb.AppendInput(records=messages, match_seq_num=match, fencing_token=token)
        return self.client.append_proto(self.stream, message.SerializeToString())

    def append(self, records: Sequence[Record]) -> None:
        before = self.tail()
        ack = pb.AppendAck.FromString(checked(self.post(records)).body)
        assert (ack.start.seq_num, ack.end.seq_num) == (before, before + len(records))
        assert ack.tail.seq_num >= ack.end.seq_num

    def start(self) -> int:
        return 0

    def read(self, at: int) -> list[Seen]:
        found: list[Seen] = []
        tail = self.tail()
        while at < tail:
            page = self.page(at, 0)
            assert page, f"nothing at {at}, before the tail {tail}"
            found += page
            at = page[-1].at + 1
        return found

    def page(self, at: int, wait: int) -> list[Seen]:
        """Return the records of one read."""
        batch = self.client.read_proto(self.stream, seq_num=at, clamp="true", **({"wait": wait} if wait else {}))
        return [seen_of(record) for record in batch.records]

    @contextmanager
    def follow(self, at: int) -> Iterator[Take]:
        """Long polls, the first of which has begun."""
        with ThreadPoolExecutor(1) as pool:
            first = [pool.submit(self.page, at, 20)]

            def take(count: int) -> list[Seen]:
                nonlocal at
                found: list[Seen] = []
                while len(found) < count:
                    page = first.pop().result(30) if first else self.page(at, 20)
                    assert page, "the wait ended with nothing"
                    found += page
                    at = page[-1].at + 1
                return found

            yield take

    def tail(self) -> int:
        return self.client.tail(self.stream)["seq_num"]

    def trim(self, at: int) -> None:
        checked(self.post([Record(at.to_bytes(8, "big"), ((b"", TRIM),))]))

    def append_if(self, holds: bool, record: Record) -> bool:
        tail = self.tail()
        answer = self.post([record], match=tail if holds else tail + 1)
        if answer.status == 412:
            assert answer.json(412) == {"seq_num_mismatch": tail}
            return False
        checked(answer)
        return True

    def fence(self) -> None:
        checked(self.post([Record(b"token", ((b"", FENCE),))]))
        assert self.post([Record(b"no")], token="other").json(412) == {"fencing_token_mismatch": "token"}
        checked(self.post([Record(b"yes")], token="token"))


def seen_of(record: pb.SequencedRecord) -> Seen:
    """Return a record in protobuf."""
    headers = tuple((header.name, header.value) for header in record.headers)
    return Seen(record.seq_num, Record(record.body, headers), record.timestamp)


def seen_of_json(record: dict[str, Any]) -> Seen:
    """A record in JSON, whose bytes are in base64."""

    def data(text: str) -> bytes:
        return base64.b64decode(text, validate=True)

    headers = tuple((data(name), data(value)) for name, value in record.get("headers", []))
    return Seen(record["seq_num"], Record(data(record.get("body", "")), headers), record["timestamp"])


class ProtobufFront(S2Front):
    """Unary requests in protobuf."""

    name = "protobuf"


class JsonFront(S2Front):
    """Unary requests in JSON, with bytes in base64."""

    name = "JSON"

    def post(self, records: Sequence[Record], match: int | None = None, token: str | None = None) -> Answer:
        value: dict[str, Any] = {
            "records": [
                {"body": b64(record.body), "headers": [[b64(name), b64(value)] for name, value in record.headers]}
                for record in records
            ]
        }
        value |= {"match_seq_num": match} if match is not None else {}
        value |= {"fencing_token": token} if token is not None else {}
        answer = self.client.append_json(self.stream, value, BASE64)
        if answer.status != 200:
            return answer
        ends = {name: pb.StreamPosition(**answer.json()[name]) for name in ("start", "end", "tail")}
        return answer._replace(body=pb.AppendAck(**ends).SerializeToString())

    def page(self, at: int, wait: int) -> list[Seen]:
        query = {"seq_num": at, "clamp": "true", **({"wait": wait} if wait else {})}
        records = self.client.read(self.stream, BASE64, **query).json()["records"]
        return [seen_of_json(record) for record in records]


class SseFront(S2Front):
    """Reads as server-sent events; SSE has no appends, so these are unary ones."""

    name = "SSE"

    def read(self, at: int) -> list[Seen]:
        count = self.tail() - at
        if not count:
            return []
        with self.client.events(self.stream, "h1", BASE64, seq_num=at, clamp="true", wait=0) as events:
            *batches, done = events.rest()
        assert done.data == "[DONE]"
        return [seen_of_json(each) for event in batches if event.name == "batch" for each in event.json()["records"]]

    @contextmanager
    def follow(self, at: int) -> Iterator[Take]:
        with self.client.events(self.stream, "h1", BASE64, seq_num=at) as events:
            first = events.next()
            assert first is not None
            assert first.name == "ping"

            def take(count: int) -> list[Seen]:
                found: list[Seen] = []
                while len(found) < count:
                    found += map(seen_of_json, events.batch().json()["records"])
                return found

            yield take


class S2SFront(S2Front):
    """Sessions over HTTP/2: one for all appends, one for each read."""

    name = "S2S"

    def post(self, records: Sequence[Record], match: int | None = None, token: str | None = None) -> Answer:
        messages = [message_of(record.body, record.headers) for record in records]
        message = pb.AppendInput(records=messages, match_seq_num=match, fencing_token=token)
        with self.client.append_session(self.stream, "h2") as session:
            session.send(message.SerializeToString())
            frame = session.next()
            assert frame is not None
            if not frame.terminal:
                session.stream.end()
                assert session.rest() == []
                return Answer(200, {}, frame.message)
        status, value = frame.failure
        return Answer(status, {"content-type": "application/json"}, json.dumps(value).encode())

    def read(self, at: int) -> list[Seen]:
        with self.client.read_session(self.stream, "h2", seq_num=at, clamp="true", wait=0) as session:
            batches = [pb.ReadBatch.FromString(frame.message) for frame in session.rest()]
        return [seen_of(record) for batch in batches for record in batch.records]

    @contextmanager
    def follow(self, at: int) -> Iterator[Take]:
        with self.client.read_session(self.stream, "h2", seq_num=at) as session:
            assert not session.batch().records
            yield lambda count: [seen_of(record) for record in session.records(count, 20)]
