"""A real gateway under attack: others are served, memory is bounded, and afterwards all is as before.

How much slower others are served is measured by `make hostile`.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attacks import ATTACKS, Attacker, source_of
from support.process import BASIN, CONFIG, GatewayProcess, running_gateway
from support.s2.client import S2Client
from support.s3p.client import S3PClient
from support.segment.client import ReleasedSocket

from penstock.model.limits import MIB

LIMITED = """
[limits]
first_byte_seconds = 0.5
receive_grace_seconds = 0.5
inflight_wait_seconds = 0.5
max_inflight_bytes = 67_108_864
max_inflight_bytes_per_client = 33_554_432

[listeners.s2.limits]
head_timeout_seconds = 0.5

[listeners.controller.limits]
head_timeout_seconds = 0.5
"""
"""Times that tests can wait for, and little memory."""
GROWTH = 200 * MIB
"""More than what is allowed to be in flight, which takes up to three times its bytes for a moment, and less than any
attack would take for which there is no limit."""
ROUNDS = 3
CUT_OFF = [name for name in ATTACKS if name.startswith("slowloris")]
"""All of whose connections are ended by the gateway."""
LIKE_OTHERS = frozenset(
    {
        *("priority flood", "settings flood", "ping flood unread", "window updates", "empty data", "tiny data h2"),
        *(
            "window games",
            "made to reset",
            "many headers http/1.1",
            "reset segment",
            "unread answers h2",
            "slowloris s2s",
            "reset s3p",
            "connects and goes",
            "idle",
        ),
    }
)
"""Left to the long run."""

_names = itertools.count()


@pytest.fixture(scope="module")
def process() -> Iterator[GatewayProcess]:
    with running_gateway(CONFIG + LIMITED) as process:
        client = S2Client(("127.0.0.1", process.s2_port), BASIN)
        for _ in range(24):
            client.append("much", os.urandom(480_000).hex())
        yield process


def use(process: GatewayProcess) -> None:
    """Append and read over each protocol, as a well-behaved client, and check the results."""
    name = f"behaved-{next(_names)}"
    body = name.encode()
    s2 = S2Client(("127.0.0.1", process.s2_port), BASIN)
    s2.append(name, name)
    assert s2.bodies(name, seq_num=0) == [name]
    with S3PClient(("127.0.0.1", process.s3p_port)) as s3p:
        s3p.create(f"{name}-s3p")
        s3p.append(f"{name}-s3p", body)
        assert [each for _, each in s3p.read_all(f"{name}-s3p")] == [body]
    with ReleasedSocket(("127.0.0.1", process.segment_port)) as segment:
        at = segment.new(f"scope/{name}/0.#epoch.0", body)
        assert body in segment.content(at)


def descriptors(process: GatewayProcess) -> int:
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


def _ordinary_or_long() -> Iterator[object]:
    for name in ATTACKS:
        yield pytest.param(name, marks=pytest.mark.long) if name in LIKE_OTHERS else name


@pytest.mark.parametrize("name", list(_ordinary_or_long()))
def test_others_are_served_and_memory_is_bounded(process: GatewayProcess, name: str) -> None:
    use(process)
    attack = ATTACKS[name]
    told = sum(line["level"] == "error" for line in process.events())
    files, before, most = descriptors(process), process.resident_bytes(), 0
    address = "127.0.0.1", getattr(process, f"{attack.port}_port")
    with Attacker(attack, address, source_of(name)) as attacker:
        while attacker.turns < 8:
            time.sleep(0.02)
        for _ in range(ROUNDS):
            use(process)
            most = max(most, process.resident_bytes())
        while name in CUT_OFF and attacker.ended < attack.connections:
            time.sleep(0.02)
        assert attacker.opened >= attack.connections
    print(f"{name}: {(most - before) / MIB:.0f} MiB more, {attacker.opened} connections, {attacker.ended} ended")
    assert most - before < GROWTH, f"{(most - before) / MIB:.0f} MiB"
    while descriptors(process) > files + 8:  # idle ones of the client, and the store's
        time.sleep(0.02)
    use(process)
    errors = [line for line in process.events() if line["level"] == "error"]
    assert not errors[told:], errors[-1].get("exception", errors[-1])
