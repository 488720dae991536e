"""Duties of a gateway between an S2S client and an S2S server, beside haproxy in the same place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

from duties import HAPROXY, S2S, Bench, Row, largest_batch
from servers import Bridge, Relay, Server, Source, Unavailable

__all__ = ["DIRECT", "PENSTOCK", "RELAY_ACK", "RELAY_READ", "SPLICE", "RelayBench"]

RELAY_READ, RELAY_ACK = "relay read", "relay ack"
PENSTOCK, PENSTOCK_H2, DIRECT, SPLICE = "Penstock relay", "Penstock relay h2", "direct", "haproxy splice"


class RelayBench(Bench):
    """See `Bench`."""

    def _relays(self, stack: ExitStack, name: str, back: int) -> dict[str, tuple[Server, int]]:
        """Both relays in front of a port."""
        bridge = stack.enter_context(Bridge(self._directory / f"bridge-{name}", self._command, back=back))
        found: dict[str, tuple[Server, int]] = {PENSTOCK: (bridge, bridge.s2_port)}
        try:
            relay = stack.enter_context(Relay(self._directory / f"haproxy-{name}", back))
            splice = stack.enter_context(Relay(self._directory / f"splice-{name}", back, splice=True))
        except Unavailable as missing:
            self._say(str(missing))
        else:
            found |= {HAPROXY: (relay, relay.port), SPLICE: (splice, splice.port)}
        return found

    def relay_reads(self, size: int, connections: int) -> Iterator[Row]:
        """An S2S read session with batches of 1,000 records, or 1 MiB, from one and the same source of ready bytes."""
        (stream,) = self._streams(1)
        records = self._fill(S2S, size, [stream], largest_batch(size))
        payload = self._directory / f"relayed-{connections}.bytes"
        self._client.do(
            "capture", key="captured", port=self.gateway.s2_port, stream=stream, records=records, path=str(payload)
        )
        with ExitStack() as stack:
            source = stack.enter_context(Source(payload))
            relays = self._relays(stack, f"read-{connections}", source.port)
            relays[PENSTOCK_H2] = relays[PENSTOCK]
            plans = {}
            for name, (_, port) in relays.items():
                key = f"{name} {stream}"
                plan = {"key": key, "port": port, "stream": stream, "records": records}
                protocol = "S2S h2" if name == PENSTOCK_H2 else S2S
                self._client.do("prepare", protocol=protocol, **plan)
                plans[name] = [key] * connections

            def measure(name: str) -> Callable[[], dict[str, float]]:
                return lambda: self._read_round(*relays[name], plans[name], size)

            yield from self._rows(RELAY_READ, size, connections, {name: measure(name) for name in relays})

    def relay_acks(self, size: int, connections: int) -> Iterator[Row]:
        """One record in flight per connection, to the gateway's embedded store: without and with a relay before it."""
        with ExitStack() as stack:
            relays = self._relays(stack, f"ack-{connections}", self.gateway.s2_port)
            ports = {DIRECT: self.gateway.s2_port, **{name: port for name, (_, port) in relays.items()}}

            def measure(name: str) -> Callable[[], dict[str, float]]:
                def run() -> dict[str, float]:
                    answer = self._client.do(
                        "append",
                        protocol=S2S,
                        port=ports[name],
                        streams=self._streams(connections),
                        size=size,
                        count=1,
                        depth=1,
                        seconds=self._scale.seconds,
                    )
                    self._check(name, answer["acked"])
                    return {key: answer[key] for key in ("p50_ms", "p99_ms", "samples")}

                return run

            yield from self._rows(RELAY_ACK, size, connections, {name: measure(name) for name in ports})
