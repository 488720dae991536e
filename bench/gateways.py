"""Gateways whose state is in a topic of Apache Kafka, behind one balancer: three of them, beside one alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from brokers import ApacheKafka, BrokerBench
from duties import DEPTH, S2S, Row, batch_count, tail_of
from servers import Gateway, Relay, Unavailable

__all__ = ["GATEWAYS", "ONE", "THREE", "GatewaysBench"]

GATEWAYS = "gateways append"
ONE, THREE = "one gateway", "three gateways"
_COUNTS = {ONE: 1, THREE: 3}
_CONNECTIONS = 9
"""Clients, each with a stream of its own: three for each of three gateways."""
_WARM_UP = 3
"""Rounds that do not count, since the broker's JVM compiles as it runs."""


class StatelessGateway(Gateway):
    """`penstock serve` before the broker at `broker`, which has its records and its state."""

    _CONFIG = """\
[listeners.s2]
bind = "127.0.0.1:0"
default_basin = "{basin}"

[backs.cluster]
kind = "kafka"
address = "127.0.0.1:{broker}"
basin = "{basin}"
create_streams = true
state_topic = "penstock-state"

[[routes]]
name = "everything"
basin = "{basin}"
back = "cluster"

[management]
enabled = false

[log]
format = "json"
"""
    _LISTENERS = 1


class GatewaysBench(BrokerBench):
    """See `Bench`."""

    def gateways(self, size: int) -> Iterator[Row]:
        """Appends through the balancer, to one gateway and to three: all before the same broker."""
        with ExitStack() as stack:
            try:
                broker = stack.enter_context(ApacheKafka(self._directory / "gateways-kafka", flushed=False))
                found = {name: self._balanced(stack, name, broker.port) for name in _COUNTS}
            except Unavailable as missing:
                self._say(str(missing))
                return

            def measure(name: str) -> dict[str, float]:
                balancer, servers = found[name]
                streams = self._streams(_CONNECTIONS)
                self._appended(balancer.port, streams, size, seconds=60, batches=1)  # creates them
                before = {stream: tail_of(balancer.port, stream) for stream in streams}
                cpu = sum(server.cpu() for server in servers)
                answer = self._appended(balancer.port, streams, size, seconds=self._scale.seconds)
                cpu = sum(server.cpu() for server in servers) - cpu
                for stream, records in answer["acked"].items():
                    for server in servers:  # one truth
                        if (now := tail_of(server.s2_port, stream) - before[stream]) != records:
                            raise RuntimeError(f"{name}: {records} records were acknowledged, {now} were found")
                return self._rates(answer, size, cpu)

            candidates = {name: lambda n=name: measure(n) for name in found}
            for _ in range(_WARM_UP):
                for run in candidates.values():
                    run()
            yield from self._rows(GATEWAYS, size, _CONNECTIONS, candidates)

    def _balanced(self, stack: ExitStack, name: str, broker: int) -> tuple[Relay, list[StatelessGateway]]:
        servers = [
            stack.enter_context(
                StatelessGateway(self._directory / f"{name}-{index}".replace(" ", "-"), self._command, broker=broker)
            )
            for index in range(_COUNTS[name])
        ]
        ports = [server.s2_port for server in servers]
        return stack.enter_context(Relay(self._directory / f"balancer-{len(ports)}", *ports)), servers

    def _appended(self, port: int, streams: list[str], size: int, **bounds: float) -> dict[str, object]:
        work = {"size": size, "count": batch_count(size), "depth": DEPTH}
        return self._client.do("append", protocol=S2S, port=port, streams=streams, **work, **bounds)
