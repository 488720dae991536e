"""`make hostile`: the latency of ordinary clients beside hostile ones.

    python bench/hostile.py [--seconds 3] [--rounds 3] [--only NAME ...] [--protocol s2|s3p|segment ...]

A well-behaved client appends and reads over each protocol in turn, in rounds: alone, beside a process that
does nothing but burn processor time, and beside the attack (`tests/support/attacks.py`, and 10,000 idle connections);
then again. Gateway, attacker and client are processes of their own, and there is one gateway for all. The burner and
the attacker are niced (19): what an attacker takes of the machine itself says nothing about the gateway, so the ratio
is that of the 99th percentiles beside the attack and beside the burner, each the median of its rounds. In each round
the attacker has another address: nothing is known of it. What it sends is printed: so many connections, and what they
send in a second if it is taken from them.

An attack holds where no protocol's ratio is over 2. One that does not seem to is given twice as many rounds more, and
judged by all of them. Ends with 1 where one does not hold. All of it takes about 20 minutes, on a machine that should
have nothing else to do.
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
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.attacks import ATTACKS, Attack, Attacker
from support.http.h2_client import H2Connection
from support.process import BASIN, CONFIG, GatewayProcess
from support.s2.client import S2Client
from support.s3p.client import S3PClient
from support.segment.client import ReleasedSocket

MANY = {"10,000 idle connections": replace(ATTACKS["idle"], connections=10_000, pause=1.0)}
LARGE = {
    "records of one large append": Attack(
        "s2",
        8,
        more=lambda turn: (
            b"GET /v1/streams/many/records?seq_num=%d&count=1 HTTP/1.1\r\nhost: localhost\r\ns2-basin: penstock\r\n\r\n"
            % (turn * 7919 % MANY_RECORDS)
        ),
    )
}
"""Readers of single records that one client has appended at once, as JSON over Durable Streams. They read at the same
moment: eight reads of a stream's only record took others 2.9 times as long where these took 3.6."""
MANY_RECORDS = 499_000
ALL: dict[str, Attack] = {**ATTACKS, **MANY, **LARGE}
ROOM = """
[limits]
max_connections_per_client = 12_000

[listeners.s2.limits]
max_connections = 12_000
"""
"""So that one client may have them."""
SHARED = "closed windows, shared"
"""Read sessions that give their streams no window, on the connection of the ordinary client itself."""
STUCK = (8, 30, 100)
STUCK_WINDOW = 65_535
"""Bytes that each of them gets: the initial window of HTTP/2."""
MOST = 2.0
"""The ratio that is to be kept."""
WARM_SECONDS = 1.0
MANY_WARM_SECONDS = 12.0
"""Until they have all begun: one client's are served at a rate."""
PAUSE = 0.002
"""Between the operations of the client, which is not there to saturate anything."""
BODY = b"x" * 1000
Times = dict[str, list[float]]


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


def shared_steps(gateway: GatewayProcess, stuck: int) -> Callable[[], object]:
    """One append and one read over HTTP/2, on a connection on which as many read sessions as `stuck` never get window
    for their streams."""
    connection = H2Connection(("127.0.0.1", gateway.s2_port), STUCK_WINDOW, connection_window=2**30)
    headers = {"s2-basin": BASIN}
    for _ in range(stuck):
        connection.open("GET", "/v1/streams/much/records?seq_num=0", {**headers, "content-type": "s2s/proto"})
    body = json.dumps({"records": [{"body": BODY.decode()}]}).encode()

    def step() -> None:
        append = connection.open(
            "POST", "/v1/streams/shared/records", {**headers, "content-type": "application/json"}, has_body=True
        )
        append.send(body)
        append.end()
        number = json.loads(b"".join(iter(append.receive, b"")))["start"]["seq_num"]
        read = connection.open("GET", f"/v1/streams/shared/records?seq_num={number}&count=1", headers)
        assert json.loads(b"".join(iter(read.receive, b"")))["records"][0]["body"] == BODY.decode()

    return step


def append_many(gateway: GatewayProcess) -> None:
    """Append as many small records at once as a body may have."""
    body = b"[" + b"0," * (MANY_RECORDS - 1) + b"0]"
    headers = {"content-type": "application/json"}
    for method, content in (("PUT", b""), ("POST", body)):
        request = urllib.request.Request(f"{gateway.durable_url}many", content, headers, method=method)
        urllib.request.urlopen(request).read()


VICTIMS = {"s2": s2_steps, "s3p": s3p_steps, "segment": segment_steps}


def measured(steps: dict[str, Callable[[], object]], seconds: float) -> Times:
    """Run each protocol's steps for `seconds`; return how long each step took, in ms."""
    took: Times = {protocol: [] for protocol in steps}
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for protocol, step in steps.items():
            began = time.perf_counter()
            step()
            took[protocol].append(1000 * (time.perf_counter() - began))
            time.sleep(PAUSE)
    return took


def p99(took: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(took, n=100)[98]


def beside(what: str, port: int, number: int) -> subprocess.Popen[bytes]:
    """Start an attacker, or what burns processor time (""), in a process of its own, which ends with its input."""
    command = [sys.executable, __file__, "--be", what, "--port", str(port), "--number", str(number)]
    return subprocess.Popen(command, stdin=subprocess.PIPE)


def end(process: subprocess.Popen[bytes]) -> None:
    """End it, and wait until it has."""
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


def be(what: str, port: int, number: int) -> None:
    """Attack, or burn processor time, until standard input ends. `number`: of the round."""
    os.nice(19)
    if not what:
        os.set_blocking(sys.stdin.fileno(), False)
        while sys.stdin.buffer.raw.read(1) is None:  # type: ignore[attr-defined]
            sum(range(10_000))
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    source = f"127.{10 + number}.0.{1 + list(ALL).index(what)}"
    with Attacker(ALL[what], ("127.0.0.1", port), source) as attacker:
        sys.stdin.buffer.read()
    if attacker.opened < ALL[what].connections:
        print(f"  {what}: {attacker.opened} connections only", file=sys.stderr)


def offered(attack: Attack) -> str:
    """Return the load that the attacker offers, in words."""
    if attack.reset:
        return f"{attack.connections / attack.pause:,.0f} conn/s"
    rate = attack.connections * len(attack.more(0)) / attack.pause
    return f"{attack.connections:,} conn" + (f" {rate / 1000:,.0f} kB/s" if rate else "")


def measure(
    gateway: GatewayProcess,
    name: str,
    steps: dict[str, Callable[[], object]],
    seconds: float,
    rounds: range,
    found: dict[str, list[Times]],
) -> float:
    """Of each of the three kinds of rounds adds what was measured; the gateway's memory at the end, in MiB."""
    memory = 0.0
    port = getattr(gateway, f"{ALL[name].port}_port")
    for number in rounds:
        found["alone"].append(measured(steps, seconds / 2))
        for kind, what in (("burner", ""), ("attack", name)):
            process = beside(what, port, number)
            measured(steps, MANY_WARM_SECONDS if what in MANY else WARM_SECONDS)
            found[kind].append(measured(steps, seconds))
            memory = gateway.resident_bytes() / 2**20
            end(process)
        measured(steps, WARM_SECONDS)  # until its connections have ended
    return memory


def run_shared(gateway: GatewayProcess, seconds: float, rounds: int) -> bool:
    """Measure clients whose own connection has stuck readers, beside one that has none; print it. Return whether it
    holds."""
    ratios = {}
    usual, beside = shared_steps(gateway, 0), {stuck: shared_steps(gateway, stuck) for stuck in STUCK}
    for stuck, step in beside.items():
        times: Times = {"without": [], "with": []}
        for _ in range(rounds):
            for kind, steps in (("without", usual), ("with", step)):
                measured({"s2": steps}, WARM_SECONDS)
                times[kind].append(p99(measured({"s2": steps}, seconds)["s2"]))
        before, after = (statistics.median(times[kind]) for kind in ("without", "with"))
        ratios[stuck] = after / before
        verdict = "holds" if ratios[stuck] <= MOST else "OVER"
        print(
            f"{SHARED:25}{stuck:>15} streams{before:>18.1f} -> {after:.1f} ms, {ratios[stuck]:.2f}  {verdict}",
            flush=True,
        )
    return max(ratios.values()) <= MOST


def tails(found: dict[str, list[Times]], protocol: str) -> dict[str, float]:
    """Of each kind of rounds the median of their p99, in ms."""
    return {kind: statistics.median(p99(each[protocol]) for each in of) for kind, of in found.items()}


def worst(found: dict[str, list[Times]]) -> float:
    """The ratio of the protocol that suffers most."""
    some = [tails(found, protocol) for protocol in found["attack"][0]]
    return max(each["attack"] / each["burner"] for each in some)


def run(names: list[str], protocols: list[str], seconds: float, rounds: int) -> list[str]:
    """All measurements, each printed as it is there; the attacks that do not hold."""
    over = []
    with GatewayProcess(CONFIG + ROOM) as gateway:
        client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
        for _ in range(24):
            client.append("much", os.urandom(480_000).hex())
        append_many(gateway)
        steps = {protocol: VICTIMS[protocol](gateway) for protocol in protocols}
        measured(steps, WARM_SECONDS)
        heads = "".join(f"  {protocol:>8}: alone burner attack ratio" for protocol in protocols)
        print(f"{'p99 in ms':25}{'offered':>22}{heads}  RSS MiB")
        for name in names:
            if name == SHARED:
                if not run_shared(gateway, seconds, rounds):
                    over.append(name)
                continue
            found: dict[str, list[Times]] = {"alone": [], "burner": [], "attack": []}
            memory = measure(gateway, name, steps, seconds, range(rounds), found)
            if worst(found) > MOST:
                memory = measure(gateway, name, steps, seconds, range(rounds, 3 * rounds), found)
            shown = ""
            for tail in (tails(found, protocol) for protocol in protocols):
                shown += f"{tail['alone']:>18.1f}{tail['burner']:>7.1f}{tail['attack']:>7.1f}"
                shown += f"{tail['attack'] / tail['burner']:>6.2f}"
            verdict = "holds" if worst(found) <= MOST else "OVER"
            if verdict != "holds":
                over.append(name)
            print(
                f"{name:25}{offered(ALL[name]):>22}{shown}{memory:>9.0f}  {verdict}, {len(found['attack'])} rounds",
                flush=True,
            )
    return over


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=3, help="of each kind, for each attack")
    parser.add_argument("--only", nargs="*", default=[*ALL, SHARED], help=f"of {json.dumps([*ALL, SHARED])}")
    parser.add_argument("--protocol", nargs="*", default=list(VICTIMS), choices=list(VICTIMS))
    parser.add_argument("--be", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.be is not None:
        be(asked.be, asked.port, asked.number)
        return
    over = run(asked.only, asked.protocol, asked.seconds, asked.rounds)
    print(f"{len(asked.only) - len(over)} of {len(asked.only)} attacks hold; not: {', '.join(over) or 'none'}")
    sys.exit(bool(over))


if __name__ == "__main__":
    main()
