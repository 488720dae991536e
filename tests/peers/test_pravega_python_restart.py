"""Pravega's Python client across restarts of the gateway: exactly once, for writers and for those who read later.

The numbers are the events; number n has the routing key n % KEYS. The client keeps a writer id, asks after a cut which
event is the last one stored, and sends all behind it once more (segment fact sheet, 1.4).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.pravega import CONFIG, Found, PravegaClient, bodies_by_s2s, need_pravega, streams_of
from support.process import GatewayProcess

SCOPE, STREAM = "Scope", "s"
KEYS = 12
SEGMENTS = 3
ROUNDS = 20


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    need_pravega()
    with GatewayProcess(CONFIG, directory=tmp_path) as gateway:
        yield gateway


@pytest.fixture
def writer(gateway: GatewayProcess) -> Iterator[PravegaClient]:
    with PravegaClient(gateway.controller_port) as client:
        client.call("manage", "create_scope", SCOPE)
        client.call("manage", "create_stream", SCOPE, STREAM, SEGMENTS)
        yield client


def check_order(segments: list[list[int]]) -> list[int]:
    """Each routing key is in one segment, and rises there; all numbers, sorted."""
    keys = [{number % KEYS for number in numbers} for numbers in segments]
    assert len(set().union(*keys)) == sum(map(len, keys))
    for numbers in segments:
        for key in range(KEYS):
            of_key = [number for number in numbers if number % KEYS == key]
            assert of_key == sorted(of_key), f"key {key} is out of order"
    return sorted(number for numbers in segments for number in numbers)


def stored(gateway: GatewayProcess) -> list[list[int]]:
    return [list(map(int, bodies_by_s2s(gateway, stream))) for stream in streams_of(f"{SCOPE}/{STREAM}", SEGMENTS)]


def terminate(gateway: GatewayProcess) -> None:
    assert gateway.terminate() == 0


@pytest.mark.parametrize("stop", [terminate, GatewayProcess.kill], ids=["drain", "kill"])
def test_a_writer_and_a_reader_live_on(
    stop: Callable[[GatewayProcess], None], gateway: GatewayProcess, writer: PravegaClient
) -> None:
    count = 600
    with PravegaClient(gateway.controller_port) as reader:
        reader.call("group", "g", SCOPE, STREAM)
        reader.call("reader", "r", "g")
        reader.start("read", ["r"], count, 60)
        writer.start("write", SCOPE, STREAM, [(str(n), str(n % KEYS)) for n in range(count)], flush_every=5)
        writer.wait_for(count // 4)
        stop(gateway)
        gateway.start()
        writer.finish(60)
        found = Found(reader.finish(90))
    assert sorted(map(int, found.bodies("r"))) == list(range(count))
    assert check_order(stored(gateway)) == list(range(count))


def test_kill_nine_during_appends(gateway: GatewayProcess, writer: PravegaClient) -> None:
    """Twenty times under the same writer. All that it wrote is there, once, in order."""
    dice = random.Random(20)
    began = time.monotonic()
    writer.start("write_until_told", SCOPE, STREAM, KEYS, 10)
    for _ in range(ROUNDS):
        writer.wait_for(writer.progress + 100, seconds=30)
        time.sleep(dice.uniform(0, 0.1))
        gateway.kill()
        acknowledged = writer.progress
        gateway.start()
        assert set(range(acknowledged)) <= set(check_order(stored(gateway)))
    writer.wait_for(writer.progress + 100, seconds=30)
    written = writer.stop()
    print(f"{ROUNDS} rounds in {time.monotonic() - began:.0f} s: {written} events")
    assert check_order(stored(gateway)) == list(range(written))
