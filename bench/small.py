"""Duties of many small things: streams, requests, followers, connections that wait, and the start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from duties import ALWAYS, S2S, Row
from followers import SHARED_BY
from kafka_client import KAFKA
from segments import RELEASED
from servers import Gateway, Redis, Server, Unavailable, Uvicorn, WideGateway, open_files, resident_bytes
from tables import TableBench

__all__ = ["FAN_OUT", "HELD", "IDLE", "PROCESS", "REQUESTS", "SHARED", "SPREAD", "START", "SmallBench", "stored"]

SPREAD, REQUESTS, FAN_OUT, IDLE, START = "spread append", "requests", "fan-out", "idle", "start"
PROCESS = "Penstock"
SPREAD_CONNECTIONS = 16
"""Each has its share of the streams: S2S may have a thousand on one."""
SPREAD_DEPTH = 32
"""Appends in flight on each connection, for every candidate alike."""
HEARTBEATS_SECONDS = 16.0
"""Every idle follower gets a heartbeat or more in this time (S2 fact sheet, 2.6: after 5 to 15 s)."""
REST_SECONDS = 2.0
"""A server is at rest if it uses less than REST_SHARE of a core for so long."""
REST_SHARE = 0.05
LONGEST_WAIT_SECONDS = 120.0
"""Until a server has accepted all connections and is at rest."""
HELD = 1000
"""Followers, or connections, that wait."""
SHARED = "S2S h2, shared"
IDLE_FOLLOWERS = ("SSE", "S2S h1", "S2S h2", SHARED)
IDLE_CONNECTIONS = {
    "HTTP": "s2_port",
    "Durable Streams": "durable_port",
    "Kafka": "kafka_port",
    "S3P": "s3p_port",
    "segment": "segment_port",
}
"""Protocols of connections that wait for a request, with the port of each."""
SCRIPTS_OF = {"Kafka": KAFKA, "segment": RELEASED}
"""The client's names for how a protocol reads a record, where they differ."""


def stored(kind: str) -> str:
    """Return the name of an append, or a read, at uvicorn with an application that stores."""
    return f"uvicorn h11, {kind}, SQLite"


class SmallBench(TableBench):
    """See `Bench`."""

    def spread_appends(self, size: int, streams: int) -> Iterator[Row]:
        """Durable appends of single records to many streams in turn, which the store commits together."""
        names = ["S2S h2", "S3P", *(name for name in (ALWAYS,) if name in self.redis)]
        targets = {name: self._streams(streams) for name in names}

        def run(candidate: str, by: str, seconds: float, **more: int) -> dict[str, float]:
            server, port, protocol = self._server(by)
            job = {"protocol": protocol, "port": port, "pid": server.process.pid, "seconds": seconds}
            job |= {"streams": targets[candidate], "size": size}
            return self._client.do("append_spread", **job, connections=SPREAD_CONNECTIONS, depth=SPREAD_DEPTH, **more)

        def measure(candidate: str) -> dict[str, float]:
            answer = run(candidate, candidate, max(self._scale.seconds, streams / 5000))
            return self._rates(answer, size, answer["cpu"])

        for name in names:  # so that no stream is created in the time that counts; S3P never creates any by an append
            run(name, ALWAYS if name == ALWAYS else names[0], 60, batches=-(-streams // SPREAD_CONNECTIONS))
        yield from self._rows(SPREAD, size, streams, {name: lambda n=name: measure(n) for name in names})

    def requests(self, size: int, connections: int) -> Iterator[Row]:
        """One append, or one read, with one record to a request over HTTP/1.1: one in flight on each connection."""
        with ExitStack() as stack:
            asked: dict[str, tuple[Server, int, str]] = {
                kind: (self.gateway, self.gateway.s2_port, kind) for kind in ("append", "read")
            }
            peers: dict[tuple[str, Path | None], dict[str, str]] = {
                ("h11", self._directory / f"storing-{connections}"): {
                    stored(kind): kind for kind in ("append", "read")
                },
                **{(parser, None): {f"uvicorn {parser}": "append"} for parser in ("h11", "httptools")},
            }
            filled = self._streams(connections)
            self._fill(S2S, size, filled)
            for (parser, directory), rows in peers.items():
                try:
                    server = stack.enter_context(Uvicorn(parser, directory))
                except Unavailable as missing:
                    self._say(str(missing))
                    continue
                asked |= {name: (server, server.port, kind) for name, kind in rows.items()}
                if directory is not None:
                    self._client.do("ask", request="append", port=server.port, streams=filled, size=size, seconds=0)

            def measure(candidate: str) -> dict[str, float]:
                server, port, kind = asked[candidate]
                streams = filled if kind == "read" else self._streams(connections)
                before = server.cpu()
                answer = self._client.do(
                    "ask", request=kind, port=port, streams=streams, size=size, seconds=self._scale.seconds
                )
                figures = self._rates(answer, size, server.cpu() - before)
                if candidate == "append":
                    self._check(candidate, answer["acked"])
                return figures

            yield from self._rows(REQUESTS, size, connections, {name: lambda n=name: measure(n) for name in asked})

    def fan_outs(self, size: int, followers: int) -> Iterator[Row]:
        """One stream with many followers, 5,000 deliveries a second in all."""

        def measure(candidate: str) -> dict[str, float]:
            server, port, protocol = self._server(candidate)
            before = server.cpu()
            answer = self._client.do(
                "deliver",
                protocol=protocol,
                writer={"SSE": S2S}.get(protocol, protocol),
                port=port,
                streams=self._streams(1),
                size=size,
                followers=followers,
                interval=max(0.004, followers / 5000),
                seconds=2 * self._scale.seconds + followers / 1000,
            )
            cpu = server.cpu() - before
            figures = {key: answer[key] for key in ("p50_ms", "p99_ms", "samples")}
            return {"cpu_us": cpu / answer["records"] * 1e6, **figures}

        names = ["SSE", "S2S h1", *(name for name in (ALWAYS,) if name in self.redis)]
        yield from self._rows(FAN_OUT, size, followers, {name: lambda n=name: measure(n) for name in names})

    def idle(self, size: int) -> Iterator[Row]:
        """Memory and processor time of followers at the tail, and of connections before a request and after one."""
        with WideGateway(self._directory / "idle", self._command) as gateway:
            candidates = {name: lambda n=name: self._follow(gateway, n, size) for name in IDLE_FOLLOWERS}
            for name in IDLE_CONNECTIONS:
                candidates[name] = lambda n=name: self._connect(gateway, n, size)
                candidates[f"{name}, asked once"] = lambda n=name: self._connect(gateway, n, size, asks=True)
            yield from self._rows(IDLE, size, HELD, candidates, rounds=1)

    def _follow(self, gateway: WideGateway, name: str, size: int) -> dict[str, float]:
        stream = self._one_record(gateway, size)
        held = {"protocol": name, "stream": stream, "port": gateway.s2_port}
        return self._hold(gateway, HEARTBEATS_SECONDS, SHARED_BY if name == SHARED else 1, **held)

    def _connect(self, gateway: WideGateway, name: str, size: int, *, asks: bool = False) -> dict[str, float]:
        stream, port = self._one_record(gateway, size), getattr(gateway, IDLE_CONNECTIONS[name])
        if not asks:
            return self._hold(gateway, REST_SECONDS, port=port)
        asked = {"key": f"{name} {stream}", "port": port}
        protocol = SCRIPTS_OF.get(name, name)
        self._client.do("prepare", protocol=protocol, stream=stream, records=1, **asked)
        return self._hold(gateway, REST_SECONDS, **asked)

    def _one_record(self, gateway: WideGateway, size: int) -> str:
        """Start the gateway anew, and return a stream with one record: what followers had still to read would not be
        waiting."""
        gateway.restart()
        [stream] = self._streams(1)
        one = {"streams": [stream], "size": size, "count": 1, "batches": 1, "depth": 1, "seconds": 60}
        self._client.do("append", protocol=S2S, port=gateway.s2_port, **one)
        return stream

    def _hold(self, gateway: WideGateway, seconds: float, on_each: int = 1, **held: object) -> dict[str, float]:
        """Memory of each, and processor time of all in so many seconds. `on_each`: how many share a connection."""
        pid = gateway.process.pid
        self._rest(gateway, 0)  # the writer's connection is closed
        begin = open_files(pid)
        self._client.do("hold", count=100, **held)  # so that what is made once is there
        self._rest(gateway, begin + 100 // on_each)
        before = resident_bytes(pid)
        self._client.do("hold", count=HELD, **held)
        self._rest(gateway, begin + (100 + HELD) // on_each)
        kib = (resident_bytes(pid) - before) / HELD / 1024
        used = gateway.cpu()
        time.sleep(seconds)
        share = (gateway.cpu() - used) / seconds * 100
        self._client.do("drop")
        return {"kib": kib, "core_percent": share}

    def _rest(self, gateway: WideGateway, files: int) -> None:
        """Wait until the gateway has this number of open files, and is at rest."""
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        used, at_rest = gateway.cpu(), False
        while not at_rest or open_files(gateway.process.pid) < files:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{open_files(gateway.process.pid)} files are open, not {files}, or it is busy")
            time.sleep(REST_SECONDS)
            before, used = used, gateway.cpu()
            at_rest = used - before < REST_SHARE * REST_SECONDS

    def starts(self, directory: Path) -> Iterator[Row]:
        """From the start of the process to the moment when it listens."""

        def start(server: Callable[[Path], Gateway | Redis]) -> dict[str, float]:
            begin = time.perf_counter()
            with server(directory / f"start-{time.monotonic_ns()}") as started:
                return {"seconds": time.perf_counter() - begin, "cpu_s": started.cpu()}

        candidates = {PROCESS: lambda: start(lambda place: Gateway(place, self._command))}
        if ALWAYS in self.redis:
            candidates[ALWAYS] = lambda: start(lambda place: Redis(place, "always"))
        yield from self._rows(START, 0, 0, candidates, rounds=max(5, self._scale.rounds))
