"""Gateways whose state is in a topic of Apache Kafka or a stream of Pravega, behind one balancer: three of them, beside
one alone."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from brokers import ApacheKafka, BrokerBench
from duties import DEPTH, S2S, Row, batch_count, tail_of
from servers import Gateway, Relay, Unavailable
from support.real_backs import PravegaStandalone
from support.real_peers import pravega_library

__all__ = ["BEFORE_PRAVEGA", "GATEWAYS", "ONE", "THREE", "GatewaysBench"]

GATEWAYS, BEFORE_PRAVEGA = "gateways append", "gateways append, Pravega"
ONE, THREE = "one gateway", "three gateways"
_COUNTS = {ONE: 1, THREE: 3}
_CONNECTIONS = 9
"""Clients, each with a stream of its own: three for each of three gateways."""
_WARM_UP = 3
"""Rounds that do not count, since the server's JVM compiles as it runs."""


class StatelessGateway(Gateway):
    """`penstock serve` before a server that has its records and its state. `back`: the keys of that.

    It waits longer than by default: a JVM that has just started may take 5 s for its first streams.
    """

    _CONFIG = """\
[listeners.s2]
bind = "127.0.0.1:0"
default_basin = "{basin}"

[backs.server]
{back}
basin = "{basin}"
create_streams = true
request_seconds = 30

[[routes]]
name = "everything"
basin = "{basin}"
back = "server"

[management]
enabled = false

[log]
format = "json"
"""
    _LISTENERS = 1


class GatewaysBench(BrokerBench):
    """See `Bench`."""

    def gateways(self, size: int) -> Iterator[Row]:
        """Appends through the balancer, to one gateway and to three: all before the same server."""
        yield from self._before(GATEWAYS, self._kafka, size)
        yield from self._before(BEFORE_PRAVEGA, self._pravega, size)

    def _kafka(self, stack: ExitStack) -> str:
        broker = stack.enter_context(ApacheKafka(self._directory / "gateways-kafka", flushed=False))
        return f'kind = "kafka"\naddress = "127.0.0.1:{broker.port}"\nstate_topic = "penstock-state"'

    def _pravega(self, stack: ExitStack) -> str:
        if shutil.which("java") is None or not pravega_library().exists():
            raise Unavailable("Java or Pravega is not installed (make peers): its rows are left out")
        server = stack.enter_context(PravegaStandalone())
        assert server.controller is not None
        host, port = server.controller
        return f'kind = "segment"\ncontroller = "{host}:{port}"\nstate_stream = "penstock-state/gateways"'

    def _before(self, duty: str, open_server: Callable[[ExitStack], str], size: int) -> Iterator[Row]:
        with ExitStack() as stack:
            try:
                back = open_server(stack)
                found = {name: self._balanced(stack, name, back) for name in _COUNTS}
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
            yield from self._rows(duty, size, _CONNECTIONS, candidates)

    def _balanced(self, stack: ExitStack, name: str, back: str) -> tuple[Relay, list[StatelessGateway]]:
        directory = Path(tempfile.mkdtemp(prefix="gateways-", dir=self._directory))
        servers = [
            stack.enter_context(StatelessGateway(directory / str(index), self._command, back=back))
            for index in range(_COUNTS[name])
        ]
        ports = [server.s2_port for server in servers]
        return stack.enter_context(Relay(directory / "balancer", *ports)), servers

    def _appended(self, port: int, streams: list[str], size: int, **bounds: float) -> dict[str, object]:
        work = {"size": size, "count": batch_count(size), "depth": DEPTH}
        return self._client.do("append", protocol=S2S, port=port, streams=streams, **work, **bounds)
