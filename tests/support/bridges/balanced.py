"""Gateways without a disk before a server that has their state, and haproxy before them, as config/ has it; and load
for all of them."""

from __future__ import annotations

import csv
import gc
import http.client
import re
import socket
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.bridges.load import FOLLOWERS, WRITERS, Load, Lost, Stopping
from support.bridges.plain_fronts import FRONTS
from support.captures.traffic import until
from support.peers import need, unique
from support.ports import free_ports
from support.process import GatewayProcess, running_gateway
from support.real_backs import Address

__all__ = [
    "GATEWAYS",
    "Balanced",
    "balanced",
    "before_kafka",
    "before_pravega",
    "check",
    "loaded",
    "seen_through",
]

CONFIGURATION: Final = Path(__file__).parents[3] / "config"
GATEWAYS: Final = 3
_LISTENERS: Final = ("s2", "s3p", "segment", "controller", "durable", "kafka")


@dataclass
class Balanced:
    """The gateways, and the ports of the balancer, called as those of a gateway: fronts of tests take it for one."""

    gateways: list[GatewayProcess]
    s2_port: int
    s3p_port: int
    segment_port: int
    controller_port: int
    durable_port: int
    kafka_port: int

    @property
    def durable_url(self) -> str:
        """The URL of Durable Streams, to which a stream's name is added."""
        return f"http://127.0.0.1:{self.durable_port}/v1/stream/"


def before_kafka(brokers: Sequence[Address]) -> str:
    """The configuration before Kafka that is shipped, as a template of `GatewayProcess`, before these brokers."""
    text = (CONFIGURATION / "gateways-kafka.toml").read_text()
    first, *more = (f'"{host}:{port}"' for host, port in brokers)
    text = re.sub(r"^address = .*$", f"address = {first}", text, flags=re.M)
    text = re.sub(r"^more_addresses = .*$", f"more_addresses = [{', '.join(more)}]", text, flags=re.M)
    return _template(text)


def before_pravega(controller: Address) -> str:
    """The same before Pravega, and this controller."""
    text = (CONFIGURATION / "gateways-pravega.toml").read_text()
    host, port = controller
    return _template(re.sub(r"^controller = .*$", f'controller = "{host}:{port}"', text, flags=re.M))


def _template(text: str) -> str:
    for kind in (*_LISTENERS, "management"):
        head = f"[listeners.{kind}]" if kind != "management" else "[management]"
        text = re.sub(rf'({re.escape(head)}\nbind = )"[^"]*"', rf'\1"127.0.0.1:{{{kind}_port}}"', text)
    return text + '\n[log]\nlevel = "info"\nformat = "json"\n\n[drain]\naccept_seconds = 0\ndeadline_seconds = 5\n'


@contextmanager
def balanced(template: str) -> Iterator[Balanced]:
    """Run them until the block ends. Skips the test where haproxy is missing."""
    program = need("haproxy")
    kinds = [kind for kind in _LISTENERS if f"[listeners.{kind}]" in template]
    ports = dict(zip(kinds, free_ports(len(kinds)), strict=True))
    template = re.sub(r"^advertise = [^ ]*", f'advertise = "127.0.0.1:{ports["segment"]}"', template, flags=re.M)
    with ExitStack() as stack, tempfile.TemporaryDirectory() as directory:
        gateways = [stack.enter_context(running_gateway(template)) for _ in range(GATEWAYS)]
        path, console = Path(directory, "haproxy.cfg"), Path(directory, "console")
        path.write_text(f"global\n    stats socket {console}\n{_balancer(gateways, ports)}")
        process = subprocess.Popen([program, "-db", "-f", path], stdin=subprocess.DEVNULL)
        try:
            until(lambda: _has_checked(console), 30)
            yield Balanced(gateways, **{f"{kind}_port": ports.get(kind, 0) for kind in _LISTENERS})
        finally:
            process.terminate()
            process.wait(30)


def _balancer(gateways: Sequence[GatewayProcess], ports: dict[str, int]) -> str:
    """The shipped configuration of haproxy with other ports, without the protocols that have none."""
    lines: list[str] = []
    kind = ""
    for line in (CONFIGURATION / "haproxy" / "kafka.cfg").read_text().splitlines():
        word, *rest = line.split() or [""]
        if word == "listen":
            kind = rest[0]
        if kind and kind not in ports:
            continue
        if word == "bind":
            line = f"    bind 127.0.0.1:{ports[kind]}"
        elif word == "server":
            gateway = gateways[("one", "two", "three").index(rest[0])]
            line = f"    server {rest[0]} 127.0.0.1:{getattr(gateway, f'{kind}_port')} port {gateway.management_port}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _has_checked(console: Path) -> bool:
    """Return whether haproxy has asked every gateway whether it is ready."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(console))
        except OSError:  # it does not run yet
            return False
        client.sendall(b"show stat\n")
        with client.makefile(encoding="ascii") as answer:
            rows = list(csv.DictReader(answer))
    servers = [row["check_status"] for row in rows if row["svname"] not in ("FRONTEND", "BACKEND")]
    return bool(servers) and not any(status.startswith(("*", "INI")) for status in servers)


# ---- load ------------------------------------------------------------------------------------------------------------

_COMPARED: Final = ("S2S", "SSE", "S3P", "segment released")
"""Fronts whose positions, each in its own terms, are compared between the gateways."""


def _patient(task: Callable[[Load], None]) -> Callable[[Load], None]:
    """Make a task come again when its gateway is killed, as clients do: the balancer takes it to another one."""

    def run(load: Load) -> None:
        try:
            task(load)
        except (OSError, EOFError, http.client.HTTPException) as error:
            raise Lost(type(error).__name__) from error

    return run


@contextmanager
def loaded(gateways: Balanced, without: Collection[str] = ()) -> Iterator[list[Load]]:
    """Writers of all protocols but some, each on a stream of its own, and followers of each stream."""
    loads, threads, stopping = [], [], Stopping()
    for name, write in WRITERS.items():
        if name in without:
            continue
        load = Load(gateways, name, unique(name), stopping=stopping)  # type: ignore[arg-type]
        front = FRONTS.get(name.replace("-", " "), FRONTS["protobuf"])(gateways, load.stream)  # type: ignore[arg-type]
        front.create()
        front.close()
        threads.append(load.run(_patient(write)))
        for follower, follow in FOLLOWERS.items():
            if follower in without:
                continue
            one = load.followers[follower] = Load(gateways, follower, load.stream, stopping=stopping)  # type: ignore[arg-type]
            threads.append(one.run(_patient(follow)))
        loads.append(load)
    try:
        yield loads
    finally:
        stopping.set()
        for thread in threads:
            thread.join(120)
        gc.collect()  # here, where the tests ignore what it says of sockets that killed gateways left
    assert not any(thread.is_alive() for thread in threads)


def seen_through(gateway: GatewayProcess, load: Load) -> dict[tuple[str, Any], bytes]:
    """Return the bodies that a gateway shows, by protocol and position."""
    places: dict[tuple[str, Any], bytes] = {}
    for name in _COMPARED:
        front = FRONTS[name](gateway, load.stream)
        places |= {(name, one.at): one.record.body for one in front.read(front.start())}
        front.close()
    return places


def check(load: Load, seen: Sequence[dict[tuple[str, Any], bytes]]) -> None:
    """Check that all gateways show the same records at the same positions, and all that was acknowledged once. `seen`:
    what `seen_through` has returned for each."""
    assert load.failure is None, (load.name, load.failure)
    places, *others = seen
    for name in _COMPARED:
        load.check([body for key, body in places.items() if key[0] == name], doubles=False)
    assert all(found == places for found in others), "differs"
    terms = "S3P" if load.name == "S3P" else "S2S"
    for number, place in load.acked.items():
        if place is not None:
            assert places[terms, place].startswith(f"{load.name} {number} ".encode()), (number, place)
    for name, follower in load.followers.items():
        assert follower.failure is None, (name, follower.failure)
        numbered = [(key[1], body) for key, body in places.items() if key[0] == "S2S"]
        assert follower.followed == numbered[: len(follower.followed)], name
