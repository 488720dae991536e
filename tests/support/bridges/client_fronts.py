"""The fronts of `support.bridges.fronts` whose clients are those that users have: of Kafka (confluent-kafka) and of
Durable Streams (durable-streams)."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from support.bridges.fronts import LOOPBACK, NO_SUCH_THING, Front, NotCarried, Record, Seen, Take
from support.bridges.plain_fronts import FRONTS
from support.process import GatewayProcess

__all__ = ["ALL_FRONTS", "DurableFront", "KafkaFront"]

_SECONDS = 30.0
_MOST_BYTES = 2_000_000


class KafkaFront(Front):
    """Kafka by librdkafka: positions are offsets. Names of headers are text."""

    name = "Kafka"
    numbered = True
    text_names = True

    def __init__(self, gateway: GatewayProcess, stream: str) -> None:
        super().__init__(gateway, stream)
        self._kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed (group peers)")
        self._server = {"bootstrap.servers": f"{LOOPBACK}:{gateway.kafka_port}", "log_level": 0}
        self._consumer = self._kafka.Consumer(
            {
                **self._server,
                "group.id": "none",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "check.crcs": True,
                "fetch.wait.max.ms": 20,
            }
        )
        self._producer: Any = None

    def _partition(self, *offset: int) -> Any:
        return self._kafka.TopicPartition(self.stream, 0, *offset)

    def _administer(self, what: str, *args: Any) -> None:
        admin = pytest.importorskip("confluent_kafka.admin").AdminClient(self._server)
        for future in getattr(admin, what)(*args).values():
            future.result(_SECONDS)

    def create(self) -> None:
        new = pytest.importorskip("confluent_kafka.admin").NewTopic(self.stream, 1, 1)
        self._administer("create_topics", [new])

    def append(self, records: Sequence[Record]) -> None:
        if self._producer is None:
            options = {"linger.ms": 5, "message.max.bytes": _MOST_BYTES, "enable.idempotence": True}
            self._producer = self._kafka.Producer({**self._server, **options})
        before, offsets = self.tail(), []

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            offsets.append(message.offset())

        for record in records:
            headers = [(name.decode(), value) for name, value in record.headers]
            self._producer.produce(self.stream, record.body, headers=headers, on_delivery=delivered)
        assert self._producer.flush(_SECONDS) == 0
        assert offsets == list(range(before, before + len(records)))

    def start(self) -> int:
        return int(self._consumer.get_watermark_offsets(self._partition(), _SECONDS)[0])

    def tail(self) -> int:
        return int(self._consumer.get_watermark_offsets(self._partition(), _SECONDS)[1])

    def read(self, at: int) -> list[Seen]:
        self._consumer.assign([self._partition(at)])
        return list(self._records())

    def _records(self) -> Iterator[Seen]:
        """Yield the records up to the end of the topic."""
        deadline = time.monotonic() + _SECONDS
        while True:
            message = self._consumer.poll(1)
            assert time.monotonic() < deadline, "the end was not reached"
            if message is None:
                continue
            if message.error() is not None:
                assert message.error().code() == self._kafka.KafkaError._PARTITION_EOF, message.error()
                return
            assert message.key() is None
            headers = tuple((name.encode(), value) for name, value in message.headers() or ())
            yield Seen(message.offset(), Record(message.value(), headers), message.timestamp()[1])

    @contextmanager
    def follow(self, at: int) -> Iterator[Take]:
        assert self.read(at) == []

        def take(count: int) -> list[Seen]:
            found: list[Seen] = []
            deadline = time.monotonic() + _SECONDS
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} records"
                found += self._records()
            return found

        yield take

    def trim(self, at: int) -> None:
        self._administer("delete_records", [self._partition(at)])

    def close(self) -> None:
        self._consumer.close()


class DurableFront(Front):
    """Durable Streams by its Python client, in a stream of JSON, which has one record for each message.

    Positions are offsets, which count records. Bodies are strings in JSON.
    """

    name = "Durable Streams"
    plain = True
    numbered = True
    largest = (1 << 20) - 10
    """Bytes of a body: an append takes 8 less than 1 MiB, of which an array has two."""

    def __init__(self, gateway: GatewayProcess, stream: str) -> None:
        super().__init__(gateway, stream)
        self._client = pytest.importorskip("durable_streams", reason="durable-streams is not installed (group peers)")
        self._httpx = pytest.importorskip("httpx")
        self._url = gateway.durable_url + stream

    def formed(self, record: Record) -> Record:
        text = base64.b64encode(record.body)[: max(len(record.body) - 2, 1)]
        return Record(b'"%s"' % text)

    def _http(self) -> Any:
        """Return an HTTP client for one call. The library's own reads all certificates that the machine trusts, which
        takes 0.1 s of processor time.
        """
        return self._httpx.Client(verify=False, timeout=_SECONDS)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        with self._http() as http, self._client.DurableStream.connect(self._url, client=http) as stream:
            yield stream

    @contextmanager
    def _answer(self, offset: str, live: str | bool) -> Iterator[Any]:
        with self._http() as http, self._client.stream(self._url, offset=offset, live=live, client=http) as answer:
            yield answer

    def create(self) -> None:
        with self._http() as http:
            self._client.DurableStream.create(self._url, content_type="application/json", client=http).close()

    def append(self, records: Sequence[Record]) -> None:
        with self._connected() as stream:
            for record in records:
                before = self.tail()
                done = stream.append(json.loads(record.body))
                assert done.next_offset == offset_of(before + 1)

    def start(self) -> int:
        return 0

    def tail(self) -> int:
        with self._connected() as stream:
            return int(stream.head().offset.partition("_")[0])

    def read(self, at: int) -> list[Seen]:
        return numbered(at, [message for page in self._pages(offset_of(at)) for message in json.loads(page)])

    def content(self) -> bytes:
        """Return all bytes of a stream that is not of JSON."""
        return b"".join(self._pages("-1"))

    def _pages(self, offset: str) -> Iterator[bytes]:
        """Yield the answers of the server up to the end of the stream: the client asks for one at a time."""
        up_to_date = False
        while not up_to_date:
            with self._answer(offset, live=False) as answer:
                yield answer.read_bytes()
                offset, up_to_date = answer.offset, answer.up_to_date

    @contextmanager
    def follow(self, at: int) -> Iterator[Take]:
        with self._answer(offset_of(at), live="sse") as answer:
            items = answer.iter_json()
            yield lambda count: numbered(at, [next(items) for _ in range(count)])

    def trim(self, at: int) -> None:
        raise NotCarried(NO_SUCH_THING)


def offset_of(number: int) -> str:
    """Return the offset of a record."""
    return f"{number:016d}_{0:016d}"


def numbered(at: int, messages: list[Any]) -> list[Seen]:
    """Return the messages from record `at` on."""
    return [Seen(at + index, Record(json.dumps(one).encode())) for index, one in enumerate(messages)]


ALL_FRONTS: dict[str, type[Front]] = {**FRONTS, KafkaFront.name: KafkaFront, DurableFront.name: DurableFront}
"""Those of the matrix, by name."""
