"""Duties of a gateway that records all its traffic, beside one that does not: the same work, in turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

from duties import DEPTH, S2S, Row, batch_count, tail_of
from relays import RelayBench
from servers import Gateway

__all__ = ["RECORDED", "RECORD_APPEND", "RECORD_READ", "RecordBench"]

RECORD_APPEND, RECORD_READ = "record append", "record read"
RECORDED = ", recorded"
"""The end of a candidate's name."""
PROTOCOLS = (S2S, "S2S h2", "S3P")
ROUNDS = 7
"""At the least: each gives a ratio, and what is told is their median and range."""


class Recorded(Gateway):
    """`penstock serve` that records everything, as it does by default: secrets blanked, the newest files kept."""

    _CONFIG = Gateway._CONFIG + '\n[recorder]\ndirectory = "{captures}"\nkeep_files = 3\n'

    @property
    def dropped(self) -> int:
        """Return the number of conversations that it gave up since it was started."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]
        known = ("recording_drops_conversations", "recording_suspended")
        return sum(line["conversations"] for line in lines if line["event"] in known)


class RecordBench(RelayBench):
    """See `Bench`."""

    def recorded(self, size: int, connections: int) -> Iterator[Row]:
        """Durable appends, then catch-up reads; of two gateways that were started for this."""
        directory = self._directory / f"recorded-{connections}"
        directory.mkdir()
        with ExitStack() as stack:
            plain = stack.enter_context(Gateway(directory / "plain", self._command))
            captures = directory / "captures"
            recorded = stack.enter_context(Recorded(directory / "recorded", self._command, captures=captures))
            pair = {"": plain, RECORDED: recorded}
            yield from self._record_appends(pair, size, connections)
            yield from self._record_reads(pair, size, connections)

    def _record_appends(self, pair: Mapping[str, Gateway], size: int, connections: int) -> Iterator[Row]:
        def measure(gateway: Gateway, protocol: str) -> Callable[[], dict[str, float]]:
            def run() -> dict[str, float]:
                before = gateway.cpu()
                answer = self._client.do(
                    "append",
                    protocol=protocol,
                    port=port_of(gateway, protocol),
                    streams=self._streams(connections),
                    size=size,
                    count=batch_count(size),
                    depth=DEPTH,
                    seconds=self._scale.seconds,
                )
                cpu = gateway.cpu() - before
                for stream, records in answer["acked"].items():
                    if tail_of(gateway.s2_port, stream) != records:
                        raise RuntimeError(f"{protocol}: {records} records of {stream} are missing")
                return {**self._rates(answer, size, cpu), "dropped": dropped_by(gateway)}

            return run

        yield from self._pairs(RECORD_APPEND, size, connections, pair, measure)

    def _record_reads(self, pair: Mapping[str, Gateway], size: int, connections: int) -> Iterator[Row]:
        streams = self._streams(connections)
        plans = {}
        for name, gateway in pair.items():
            records = self._fill_at(gateway, size, streams)
            gateway.restart()
            for protocol in PROTOCOLS:
                keys = plans[gateway, protocol] = [f"{protocol}{name} {stream}" for stream in streams]
                port = port_of(gateway, protocol)
                for key, stream in zip(keys, streams, strict=True):
                    plan = {"key": key, "protocol": protocol, "port": port, "stream": stream, "records": records}
                    self._client.do("prepare", **plan)

        def measure(gateway: Gateway, protocol: str) -> Callable[[], dict[str, float]]:
            def run() -> dict[str, float]:
                figures = self._read_round(gateway, port_of(gateway, protocol), plans[gateway, protocol], size)
                return {**figures, "dropped": dropped_by(gateway)}

            return run

        yield from self._pairs(RECORD_READ, size, connections, pair, measure)

    def _fill_at(self, gateway: Gateway, size: int, streams: list[str]) -> int:
        ours, self.gateway = self.gateway, gateway
        try:
            return self._fill(S2S, size, streams)
        finally:
            self.gateway = ours

    def _pairs(
        self,
        duty: str,
        size: int,
        connections: int,
        pair: Mapping[str, Gateway],
        measure: Callable[[Gateway, str], Callable[[], dict[str, float]]],
    ) -> Iterator[Row]:
        candidates = {
            f"{protocol}{name}": measure(gateway, protocol) for protocol in PROTOCOLS for name, gateway in pair.items()
        }
        yield from self._rows(duty, size, connections, candidates, rounds=max(ROUNDS, self._scale.rounds))


def port_of(gateway: Gateway, protocol: str) -> int:
    """Return the port where the gateway speaks a protocol."""
    return gateway.s3p_port if protocol == "S3P" else gateway.s2_port


def dropped_by(gateway: Gateway) -> float:
    """Conversations that a recording gave up."""
    return float(gateway.dropped) if isinstance(gateway, Recorded) else 0.0
