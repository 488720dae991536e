"""Gateways whose state is in a topic of Apache Kafka, behind one balancer: three of them, beside one alone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from brokers import ApacheKafka, BrokerBench
from duties import DEPTH, S2S, Row, batch_count, tail_of
from servers import Gateway, Server, Unavailable, free_port, wait_for

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


class Balancer(Server):
    """haproxy, which gives connections to these ports in turn."""

    _CONFIG = """\
global
    nbthread 1
    maxconn 1000
defaults
    mode tcp
    balance roundrobin
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen balancer
    bind 127.0.0.1:{port}
{servers}
"""

    def __init__(self, directory: Path, ports: Sequence[int]) -> None:
        program = shutil.which("haproxy")
        if program is None:
            raise Unavailable("haproxy is not installed (apt-get install haproxy): its rows are left out")
        directory.mkdir()
        self.port = free_port()
        config = directory / "haproxy.cfg"
        servers = "\n".join(f"    server gateway-{port} 127.0.0.1:{port}" for port in ports)
        config.write_text(self._CONFIG.format(port=self.port, servers=servers))
        self.process = subprocess.Popen([program, "-q", "-db", "-f", str(config)], stdin=subprocess.DEVNULL)
        wait_for(self.port, self.process)


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

    def _balanced(self, stack: ExitStack, name: str, broker: int) -> tuple[Balancer, list[StatelessGateway]]:
        servers = [
            stack.enter_context(
                StatelessGateway(self._directory / f"{name}-{index}".replace(" ", "-"), self._command, broker=broker)
            )
            for index in range(_COUNTS[name])
        ]
        ports = [server.s2_port for server in servers]
        return stack.enter_context(Balancer(self._directory / f"balancer-{len(ports)}", ports)), servers

    def _appended(self, port: int, streams: list[str], size: int, **bounds: float) -> dict[str, object]:
        work = {"size": size, "count": batch_count(size), "depth": DEPTH}
        return self._client.do("append", protocol=S2S, port=port, streams=streams, **work, **bounds)
