"""Duties of a gateway with two workers beside one of a single process: the same work, in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from duties import DEPTH, S2S, Row, batch_count, largest_batch, tail_of
from servers import Gateway, processor_seconds
from tables import TableBench

__all__ = ["ALONE", "TWO", "WORKERS_APPEND", "WORKERS_LARGEST", "WORKERS_READ", "WorkersBench"]

WORKERS_APPEND, WORKERS_LARGEST, WORKERS_READ = "workers append", "workers largest", "workers read"
ALONE, TWO = "1 process", "2 workers"
CONNECTIONS = 16
"""The system chooses a worker for each connection: of so many each gets enough to be busy."""
MANY_CONNECTIONS = 64
"""Of appends 16 connections of `DEPTH` batches each leave cores idle while the disk has what they may send."""
ROUNDS = 7
"""At the least: each gives a ratio, and what is told is their median and range."""


class TwoWorkers(Gateway):
    """`penstock serve` with two workers; its processor time is that of all three processes."""

    _CONFIG = "workers = 2\n\n" + Gateway._CONFIG

    def cpu(self) -> float:
        """See `Server.cpu`."""
        return sum(map(processor_seconds, family(self.process.pid)))


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            found += family(int(child))
    return found


class WorkersBench(TableBench):
    """See `Bench`."""

    def workers(self, size: int) -> Iterator[Row]:
        """Durable appends, then catch-up reads, by S2S; of two gateways that were started for this."""
        directory = self._directory / "workers"
        directory.mkdir()
        with ExitStack() as stack:
            gateways = {
                ALONE: stack.enter_context(Gateway(directory / "alone", self._command)),
                TWO: stack.enter_context(TwoWorkers(directory / "two", self._command)),
            }
            for connections in (CONNECTIONS, MANY_CONNECTIONS):
                yield from self._worker_appends(gateways, WORKERS_APPEND, size, batch_count(size), connections)
            yield from self._worker_appends(gateways, WORKERS_LARGEST, size, largest_batch(size), CONNECTIONS)
            yield from self._worker_reads(gateways, size)

    def _worker_appends(
        self, gateways: Mapping[str, Gateway], duty: str, size: int, count: int, connections: int
    ) -> Iterator[Row]:
        def measure(gateway: Gateway) -> dict[str, float]:
            before = gateway.cpu()
            answer = self._client.do(
                "append",
                protocol=S2S,
                port=gateway.s2_port,
                streams=self._streams(connections),
                size=size,
                count=count,
                depth=DEPTH,
                seconds=self._scale.seconds,
            )
            cpu = gateway.cpu() - before
            for stream, records in answer["acked"].items():
                if tail_of(gateway.s2_port, stream) != records:
                    raise RuntimeError(f"{records} records of {stream} are missing")
            return self._rates(answer, size, cpu)

        yield from self._both(duty, size, connections, gateways, measure)

    def _worker_reads(self, gateways: Mapping[str, Gateway], size: int) -> Iterator[Row]:
        streams = self._streams(CONNECTIONS)
        scripts = {}
        ours = self.gateway
        for name, self.gateway in gateways.items():
            records = self._fill(S2S, size, streams)
            self.gateway.restart()
            scripts[name] = [f"{name} {stream}" for stream in streams]
            for key, stream in zip(scripts[name], streams, strict=True):
                plan = {"key": key, "protocol": S2S, "stream": stream, "records": records}
                self._client.do("prepare", port=self.gateway.s2_port, **plan)
        self.gateway = ours
        names = {gateway: name for name, gateway in gateways.items()}

        def measure(gateway: Gateway) -> dict[str, float]:
            return self._read_round(gateway, gateway.s2_port, scripts[names[gateway]], size)

        yield from self._both(WORKERS_READ, size, CONNECTIONS, gateways, measure)

    def _both(
        self,
        duty: str,
        size: int,
        connections: int,
        gateways: Mapping[str, Gateway],
        measure: Callable[[Gateway], dict[str, float]],
    ) -> Iterator[Row]:
        candidates = {name: lambda one=gateway: measure(one) for name, gateway in gateways.items()}
        yield from self._rows(duty, size, connections, candidates, rounds=max(ROUNDS, self._scale.rounds))
