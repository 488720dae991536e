"""Three gateways without a disk before a cluster of Kafka, and haproxy before them, as config/ has it."""

from __future__ import annotations

import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.peers import need
from support.ports import free_ports
from support.process import GatewayProcess, running_gateway
from support.real_backs import Address

__all__ = ["GATEWAYS", "Balanced", "balanced"]

CONFIGURATION: Final = Path(__file__).parents[3] / "config"
GATEWAYS: Final = 3
_LISTENERS: Final = ("s2", "s3p", "segment", "durable", "kafka")


@dataclass
class Balanced:
    """The gateways, and the ports of the balancer, called as those of a gateway: fronts of tests take it for one."""

    gateways: list[GatewayProcess]
    s2_port: int
    s3p_port: int
    segment_port: int
    durable_port: int
    kafka_port: int

    @property
    def durable_url(self) -> str:
        """The URL of Durable Streams, to which a stream's name is added."""
        return f"http://127.0.0.1:{self.durable_port}/v1/stream/"


def gateway_configuration(brokers: Sequence[Address]) -> str:
    """The shipped configuration as a template of `GatewayProcess`, before these brokers."""
    text = (CONFIGURATION / "gateways-kafka.toml").read_text()
    first, *more = (f'"{host}:{port}"' for host, port in brokers)
    text = re.sub(r"^address = .*$", f"address = {first}", text, flags=re.M)
    text = re.sub(r"^more_addresses = .*$", f"more_addresses = [{', '.join(more)}]", text, flags=re.M)
    for kind in (*_LISTENERS, "management"):
        head = f"[listeners.{kind}]" if kind != "management" else "[management]"
        text = re.sub(rf'({re.escape(head)}\nbind = )"[^"]*"', rf'\1"127.0.0.1:{{{kind}_port}}"', text)
    return text + '\n[log]\nlevel = "info"\nformat = "json"\n\n[drain]\naccept_seconds = 0\ndeadline_seconds = 5\n'


@contextmanager
def balanced(brokers: Sequence[Address]) -> Iterator[Balanced]:
    """Run them until the block ends. Skips the test where haproxy is missing."""
    program, template = need("haproxy"), gateway_configuration(brokers)
    with ExitStack() as stack, tempfile.TemporaryDirectory() as directory:
        gateways = [stack.enter_context(running_gateway(template)) for _ in range(GATEWAYS)]
        ports = dict(zip(_LISTENERS, free_ports(len(_LISTENERS)), strict=True))
        path = Path(directory, "haproxy.cfg")
        path.write_text(_balancer(gateways, ports))
        process = subprocess.Popen([program, "-db", "-f", path], stdin=subprocess.DEVNULL)
        try:
            for port in ports.values():
                _until_open(port)
            yield Balanced(gateways, **{f"{kind}_port": port for kind, port in ports.items()})
        finally:
            process.terminate()
            process.wait(30)


def _balancer(gateways: Sequence[GatewayProcess], ports: dict[str, int]) -> str:
    """The shipped configuration of haproxy with other ports."""
    lines, kind = [], ""
    for line in (CONFIGURATION / "haproxy" / "kafka.cfg").read_text().splitlines():
        word, *rest = line.split() or [""]
        if word == "listen":
            kind = rest[0]
        elif word == "bind":
            line = f"    bind 127.0.0.1:{ports[kind]}"
        elif word == "server":
            gateway = gateways[("one", "two", "three").index(rest[0])]
            line = f"    server {rest[0]} 127.0.0.1:{getattr(gateway, f'{kind}_port')} port {gateway.management_port}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _until_open(port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            assert time.monotonic() < deadline, "the balancer does not start"
            time.sleep(0.05)
        else:
            return
