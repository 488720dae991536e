"""The duties that are measured, each with its candidates; all of them go through `alternate`, round by round."""

from __future__ import annotations

import http.client
import json
import socket
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import wire
from disk import fdatasync_milliseconds
from segments import DRAFT, RELEASED, block_count
from servers import Client, Gateway, Redis, Relay, Server, Source, Unavailable

__all__ = [
    "ACK",
    "APPEND",
    "DELIVERY",
    "READ",
    "S2S",
    "SEGMENT_APPEND",
    "SEGMENT_READ",
    "Bench",
    "Row",
    "Scale",
    "batch_count",
    "largest_batch",
    "tail_of",
]

APPEND, READ, ACK, DELIVERY = "append", "read", "ack", "delivery"
SEGMENT_APPEND, SEGMENT_READ = "segment append", "segment read"
S2S = "S2S h1"

ALWAYS, EVERYSEC, HAPROXY, DISK = "redis always", "redis everysec", "haproxy relay", "one fdatasync"
DEPTH = 8
"""Batches in flight per connection, for every candidate alike."""
READ_DEPTH = 4
"""READ and XRANGE requests in flight per connection, where records are asked for page by page."""

Sample = Mapping[str, Any]


@dataclass(frozen=True)
class Scale:
    """The amount of work of one run."""

    sizes: tuple[int, ...]
    connections: tuple[int, ...]
    rounds: int
    seconds: float
    read_bytes: int
    streams: tuple[int, ...]
    followers: tuple[int, ...]


FULL = Scale(
    (100, 1024, 16 * 1024),
    (1, 8),
    3,
    seconds=0.8,
    read_bytes=32 << 20,
    streams=(100, 1000, 10_000),
    followers=(1, 10, 100, 1000),
)
QUICK = Scale((1024,), (1, 8), 3, seconds=0.25, read_bytes=16 << 20, streams=(100, 1000), followers=(1, 100))


def batch_count(size: int) -> int:
    """Records per batch: 100, or as many as stay well below S2's mebibyte."""
    return min(100, (512 << 10) // size)


def largest_batch(size: int) -> int:
    """The most records that one append of S2S may have: 1,000, or 1 MiB as S2 counts it."""
    return min(1000, (1 << 20) // (8 + size))


@dataclass
class Row:
    """One line of the results: the medians over the rounds, by name of the figure."""

    duty: str
    size: int
    connections: int
    candidate: str
    figures: dict[str, float]
    rounds: list[dict[str, float]] = field(repr=False)


def alternate(
    candidates: Mapping[str, Callable[[], dict[str, float]]], rounds: int
) -> dict[str, list[dict[str, float]]]:
    """Runs all candidates per round, each other round backwards, so that drift of the machine hits all alike."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in candidates}
    names = list(candidates)
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            found[name].append(candidates[name]())
    return found


class Bench:
    """The servers and the client for one size of record; rows of results on demand."""

    def __init__(
        self, scale: Scale, directory: Path, client: Client, say: Callable[[str], None], gateway: tuple[str, ...]
    ) -> None:
        """`gateway`: the command that runs the gateway, without its `serve`."""
        self._command = gateway
        self._scale = scale
        self._directory = directory
        self._client = client
        self._say = say
        self._stack = ExitStack()
        self._turn = 0

    def __enter__(self) -> Bench:
        self.gateway = self._stack.enter_context(Gateway(self._directory / "gateway", self._command))
        self.redis: dict[str, Redis] = {}
        try:
            for name, fsync in ((ALWAYS, "always"), (EVERYSEC, "everysec")):
                self.redis[name] = self._stack.enter_context(Redis(self._directory / f"redis-{fsync}", fsync))
        except Unavailable as missing:
            self._say(str(missing))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # ---- common ----

    def _streams(self, count: int) -> list[str]:
        self._turn += 1
        return [f"s{self._turn}-{index}" for index in range(count)]

    def _server(self, candidate: str) -> tuple[Server, int, str]:
        """The server of a candidate, its port, and the client's name for what is spoken."""
        if candidate in self.redis:
            return self.redis[candidate], self.redis[candidate].port, "redis"
        ports = {"S3P": self.gateway.s3p_port, RELEASED: self.gateway.segment_port, DRAFT: self.gateway.segment_port}
        return self.gateway, ports.get(candidate, self.gateway.s2_port), candidate

    def _rows(
        self,
        duty: str,
        size: int,
        connections: int,
        candidates: Mapping[str, Callable[[], dict[str, float]]],
        rounds: int | None = None,
    ) -> Iterator[Row]:
        for name, found in alternate(candidates, rounds or self._scale.rounds).items():
            figures = {key: statistics.median(sample[key] for sample in found) for key in found[0]}
            yield Row(duty, size, connections, name, figures, found)

    @staticmethod
    def _rates(answer: Sample, size: int, cpu: float) -> dict[str, float]:
        records = answer["records"]
        return {
            "records_s": records / answer["seconds"],
            "mb_s": records * size / answer["seconds"] / 1e6,
            "cpu_us": cpu / records * 1e6,
        }

    # ---- appends ----

    def _append(self, candidate: str, size: int, connections: int, count: int, depth: int) -> tuple[Sample, float]:
        """One run on fresh streams, and the server's processor seconds; what was acknowledged must be there."""
        server, port, protocol = self._server(candidate)
        streams = self._streams(connections)
        before = server.cpu()
        answer = self._client.do(
            "append",
            protocol=protocol,
            port=port,
            streams=streams,
            size=size,
            count=count,
            depth=depth,
            seconds=self._scale.seconds,
        )
        cpu = server.cpu() - before
        self._check(candidate, answer["acked"])
        return answer, cpu

    def _check(self, candidate: str, acked: Mapping[str, int]) -> None:
        for stream, records in acked.items():
            if candidate in self.redis:
                found = int(ask_redis(self.redis[candidate].port, b"XLEN", stream.encode()).lstrip(b":"))
            else:
                found = tail_of(self.gateway.s2_port, stream)
            if found != records:
                raise RuntimeError(f"{candidate}: {records} records were acknowledged, {found} were found")
        if candidate in self.redis:
            ask_redis(self.redis[candidate].port, b"FLUSHALL", b"ASYNC")

    def appends(self, size: int, connections: int) -> Iterator[Row]:
        """Durable appends in batches, as fast as they go."""

        def measure(candidate: str) -> dict[str, float]:
            answer, cpu = self._append(candidate, size, connections, batch_count(size), DEPTH)
            return self._rates(answer, size, cpu)

        names = ("S2S h1", "S2S h2", "S3P", *self.redis)
        yield from self._rows(APPEND, size, connections, {name: lambda n=name: measure(n) for name in names})

    def acks(self, size: int, connections: int) -> Iterator[Row]:
        """The time from sending one record to its acknowledgement, one record in flight per connection."""

        def measure(candidate: str) -> dict[str, float]:
            answer, _ = self._append(candidate, size, connections, 1, 1)
            return {key: answer[key] for key in ("p50_ms", "p99_ms", "samples")}

        def disk() -> dict[str, float]:
            p50, p99, samples = fdatasync_milliseconds(self._directory, self._scale.seconds)
            return {"p50_ms": p50, "p99_ms": p99, "samples": samples}

        names = ("S2S h1", "S2S h2", "S3P", *self.redis)
        candidates = {name: lambda n=name: measure(n) for name in names}
        yield from self._rows(ACK, size, connections, {**candidates, DISK: disk})

    def segment_appends(self, size: int, connections: int) -> Iterator[Row]:
        """Durable appends of blocks of 1 MiB, beside the largest batches that S2S may have."""
        counts = {S2S: largest_batch(size), RELEASED: block_count(size), DRAFT: block_count(size)}

        def measure(candidate: str) -> dict[str, float]:
            answer, cpu = self._append(candidate, size, connections, counts[candidate], DEPTH)
            return self._rates(answer, size, cpu)

        candidates = {name: lambda n=name: measure(n) for name in counts}
        yield from self._rows(SEGMENT_APPEND, size, connections, candidates)

    # ---- reads ----

    def _fill(self, candidate: str, size: int, streams: list[str], count: int | None = None) -> int:
        """Appends what is to be read from each stream, in batches of `count`; how many records each has now.

        As much for eight streams as for one: a reader that begins again after an eighth would pay for eight times as
        many requests.
        """
        count = count or batch_count(size)
        # Small records are as dear as larger ones, so that there are not more than a hundred thousand of them.
        total = min(self._scale.read_bytes // size, 100_000)
        batches = max(1, total // count)
        _, port, protocol = self._server(candidate)
        self._client.do(
            "append",
            protocol=protocol,
            port=port,
            streams=streams,
            size=size,
            count=count,
            depth=DEPTH,
            seconds=60,
            batches=batches,
        )
        return batches * count

    def _scripts(self, candidate: str, streams: list[str], records: int) -> list[str]:
        _, port, protocol = self._server(candidate)
        keys = [f"{candidate} {stream}" for stream in streams]
        for key, stream in zip(keys, streams, strict=True):
            self._client.do("prepare", key=key, protocol=protocol, port=port, stream=stream, records=records)
        return keys

    def _read_round(self, server: Server, port: int, scripts: list[str], size: int) -> dict[str, float]:
        before = server.cpu()
        answer = self._client.do("read", scripts=scripts, port=port, depth=READ_DEPTH, seconds=self._scale.seconds)
        figures = self._rates(answer, size, server.cpu() - before)
        return {**figures, "wire_mb_s": answer["bytes"] / answer["seconds"] / 1e6}

    def segment_reads(self, size: int, connections: int) -> Iterator[Row]:
        """Catch-up reads of 1 MiB each, from the first byte to the last: of what the same protocol wrote, or the other.

        All streams have the same records.
        """
        own, other = self._streams(connections), self._streams(connections)
        records = self._fill(RELEASED, size, own, block_count(size))
        largest = largest_batch(size)
        by_s2s = self._fill(S2S, size, other, largest)
        self.gateway.restart()
        plans = {
            S2S: self._scripts(S2S, other, by_s2s),
            RELEASED: self._scripts(RELEASED, own, records),
            DRAFT: self._scripts(DRAFT, own, records),
            f"{S2S}, segment client's": self._scripts(S2S, own, records),
            f"{RELEASED}, S2S client's": self._scripts(RELEASED, other, by_s2s),
        }

        def measure(candidate: str) -> dict[str, float]:
            server, port, _ = self._server(candidate.partition(",")[0])
            return self._read_round(server, port, plans[candidate], size)

        candidates = {name: lambda n=name: measure(n) for name in plans}
        yield from self._rows(SEGMENT_READ, size, connections, candidates)

    def reads(self, size: int, connections: int) -> Iterator[Row]:
        """Catch-up reads of streams that are there, from the first record to the last, over and over.

        The gateway is started anew in between, so that it reads its store and not what it remembers of the appends.
        """
        streams = self._streams(connections)
        records = self._fill("S2S h1", size, streams)
        self.gateway.restart()
        plans = {name: self._scripts(name, streams, records) for name in ("S2S h1", "S2S h2", "SSE", "SSE h2", "S3P")}
        servers = {name: self._server(name)[:2] for name in plans}
        if EVERYSEC in self.redis:
            self._fill(EVERYSEC, size, streams)
            plans["redis"] = self._scripts(EVERYSEC, streams, records)
            servers["redis"] = self._server(EVERYSEC)[:2]

        def measure(candidate: str) -> dict[str, float]:
            return self._read_round(*servers[candidate], plans[candidate], size)

        with ExitStack() as stack:
            directory = self._directory / f"relay-{connections}"
            payload = directory.with_suffix(".bytes")
            key = f"relay {streams[0]}"
            self._client.do(
                "capture", key=key, port=self.gateway.s2_port, stream=streams[0], records=records, path=str(payload)
            )
            source = stack.enter_context(Source(payload))
            try:
                relay = stack.enter_context(Relay(directory, source.port))
            except Unavailable as missing:
                self._say(str(missing))
            else:
                plans[HAPROXY] = [key] * connections
                servers[HAPROXY] = (relay, relay.port)
            yield from self._rows(READ, size, connections, {name: lambda n=name: measure(n) for name in plans})
        if EVERYSEC in self.redis:
            ask_redis(self.redis[EVERYSEC].port, b"FLUSHALL", b"ASYNC")

    # ---- from append to delivery ----

    def deliveries(self, size: int, connections: int) -> Iterator[Row]:
        """From the moment a record is sent to the moment a follower has it; 250 records a second in all.

        The gateway's writer is S2S over HTTP/1.1 for its HTTP followers and S3P for the S3P follower.
        """

        def measure(candidate: str) -> dict[str, float]:
            _server, port, protocol = self._server(candidate)
            answer = self._client.do(
                "deliver",
                protocol=protocol,
                writer={"SSE": "S2S h1"}.get(protocol, protocol),
                port=port,
                streams=self._streams(connections),
                size=size,
                interval=0.004 * connections,
                seconds=self._scale.seconds + 0.2,
            )
            if candidate in self.redis:
                ask_redis(port, b"FLUSHALL", b"ASYNC")
            return {key: answer[key] for key in ("p50_ms", "p99_ms", "samples")}

        names = ["S2S h1", "S2S h2", "SSE", "S3P", *(name for name in (ALWAYS,) if name in self.redis)]
        yield from self._rows(DELIVERY, size, connections, {name: lambda n=name: measure(n) for name in names})


def ask_redis(port: int, *arguments: bytes) -> bytes:
    """One command with a one-line answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(wire.resp(*arguments))
        answer = connection.recv(4096)
    if answer.startswith(b"-"):
        raise RuntimeError(f"{arguments!r}: {answer!r}")
    return answer.strip()


def tail_of(port: int, stream: str) -> int:
    """Return the number of records that a stream has had, as the gateway tells it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", f"/v1/streams/{stream}/records/tail", headers={"s2-basin": wire.BASIN})
        answer = connection.getresponse()
        found: int = json.loads(answer.read())["tail"]["seq_num"]
        return found
    finally:
        connection.close()
