"""`make hostile`: what hostile clients do to the others' latency.

    python bench/hostile.py [--seconds 6] [--only NAME ...] [--protocol s2|s3p|segment]

For each attack of the tests (`tests/support/attacks.py`), and for 10,000 idle connections, a well-behaved client
appends and reads, one after the other, first beside nobody and then beside the attack; printed is the ratio of the
99th percentiles (times in ms). Gateway, attacker and client are processes of their own. The attacker is niced, and
sends as much as it then can: on two cores it would else take the processor time of those that it is measured beside,
which says nothing about the gateway. What it sends costs the gateway all the same. Ends with 1 where a ratio is over
2.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.attacks import ATTACKS, FROM, Attack, Attacker, source_of
from support.process import BASIN, CONFIG, GatewayProcess
from support.s2_http import S2Client
from support.s3p import S3PClient
from support.segment_client import ReleasedSocket

MANY = {"10,000 idle connections": replace(ATTACKS["idle"], connections=10_000, pause=1.0)}
NOBODY = {"nobody": replace(ATTACKS["idle"], connections=0, pause=1.0)}
"""What the machine's own noise is: others may be at work on it."""
ALL: dict[str, Attack] = {**NOBODY, **ATTACKS, **MANY}
MOST = 2.0
"""The ratio that is to be kept."""
WARM_SECONDS = 1.0
PAUSE = 0.002
"""Between the operations of the client, which is not there to saturate anything."""
BODY = b"x" * 1000


def s2_steps(gateway: GatewayProcess) -> Callable[[], object]:
    """One append and one read over HTTP/1.1, each on a connection of its own, as curl does it."""
    client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
    text = BODY.decode()

    def step() -> None:
        at = client.append("victim", text)["start"]["seq_num"]
        assert client.bodies("victim", seq_num=at) == [text]

    return step


def s3p_steps(gateway: GatewayProcess) -> Callable[[], object]:
    """One APPEND and one READ."""
    client = S3PClient(("127.0.0.1", gateway.s3p_port))
    client.create("victim-s3p")

    def step() -> None:
        last = client.append("victim-s3p", BODY)
        assert client.read("victim-s3p", MIN_ID=last)[0][1] == BODY

    return step


def segment_steps(gateway: GatewayProcess) -> Callable[[], object]:
    """One append and one read of a segment."""
    client = ReleasedSocket(("127.0.0.1", gateway.segment_port))
    segment = client.create("scope/victim/0.#epoch.0")
    writer, sent = client.writer(segment), [0, 0]

    def step() -> None:
        sent[0] += 1
        client.append(writer, [BODY], sent[0])
        assert client.read(segment, sent[1], 2000).data.endswith(BODY)
        sent[1] += 8 + len(BODY)

    return step


VICTIMS = {"s2": s2_steps, "s3p": s3p_steps, "segment": segment_steps}


def measured(step: Callable[[], object], seconds: float) -> list[float]:
    """How long each step took, in ms, for so many seconds."""
    took, until = [], time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        step()
        took.append(1000 * (time.perf_counter() - began))
        time.sleep(PAUSE)
    return took


def p99(took: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(took, n=100)[98]


def attack(name: str, port: int) -> subprocess.Popen[bytes]:
    """Start the attacker, in a process of its own."""
    return subprocess.Popen([sys.executable, __file__, "--attack", name, "--port", str(port)], stdin=subprocess.PIPE)


def be_attacker(name: str, port: int) -> None:
    """Attack until standard input ends."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.nice(19)
    source = source_of(name) if name in ATTACKS else FROM
    with Attacker(ALL[name], ("127.0.0.1", port), source) as attacker:
        sys.stdin.buffer.read()
    if attacker.opened < ALL[name].connections:
        print(f"  {name}: {attacker.opened} connections only", file=sys.stderr)


def run(names: list[str], protocols: list[str], seconds: float) -> int:
    """All measurements, each printed as it is there; how many are over the ratio."""
    over = 0
    with GatewayProcess(CONFIG) as gateway:
        client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
        for _ in range(24):
            client.append("much", os.urandom(480_000).hex())
        steps = {protocol: VICTIMS[protocol](gateway) for protocol in protocols}
        for step in steps.values():
            measured(step, WARM_SECONDS)
        heads = ("quiet p50", "p99", "beside p50", "p99", "ratio", "RSS MiB")
        print(f"{'attack':26}{'client':9}" + "".join(f"{head:>11}" for head in heads))
        for name in names:
            for protocol, step in steps.items():
                quiet = measured(step, seconds)
                with attack(name, getattr(gateway, f"{ALL[name].port}_port")) as attacker:
                    measured(step, WARM_SECONDS if name not in MANY else 6 * WARM_SECONDS)
                    beside = measured(step, seconds)
                    memory = gateway.resident_bytes() / 2**20
                    assert attacker.stdin is not None
                    attacker.stdin.close()
                    attacker.wait()
                ratio = p99(beside) / p99(quiet)
                over += ratio > MOST
                numbers = (statistics.median(quiet), p99(quiet), statistics.median(beside), p99(beside), ratio, memory)
                shown = "".join(f"{number:>11.2f}" for number in numbers)
                print(f"{name:26}{protocol:9}{shown}{'   over' if ratio > MOST else ''}", flush=True)
                time.sleep(0.5 if name not in MANY else 5.0)
    return over


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    parser.add_argument("--only", nargs="*", default=list(ALL), help=f"of {json.dumps(list(ALL))}")
    parser.add_argument("--protocol", nargs="*", default=list(VICTIMS), choices=list(VICTIMS))
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.attack:
        be_attacker(asked.attack, asked.port)
        return
    over = run(asked.only, asked.protocol, asked.seconds)
    print(f"{over} over {MOST:g}")
    sys.exit(over > 0)


if __name__ == "__main__":
    main()
