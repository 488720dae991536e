"""Pravega's Python client across restarts of the gateway: exactly once, for writers and for those who read later.

The numbers are the events; number n has the routing key n % KEYS. The client keeps a writer id, asks after a cut which
event is the last one stored, and sends all behind it once more (segment fact sheet, 1.4).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.pravega.clients import (
    Found,
    PravegaClient,
    advertising,
    bodies_by_s2s,
    need_pravega,
    streams_of,
    wait_until,
)
from support.pravega.relay import NO_TARGET, Relay
from support.process import GatewayProcess
from support.reloads import churn
from support.rounds import each_number_of_rounds

SCOPE, STREAM = "Scope", "s"
KEYS = 12
SEGMENTS = 3
BATCH = 10


class Behind(NamedTuple):
    """A gateway behind relays, so that its clients go on at once when it is back (`support.pravega.relay`)."""

    gateway: GatewayProcess
    segments: Relay
    controller: Relay


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Behind]:
    need_pravega()
    with (
        Relay() as segments,
        Relay() as controller,
        GatewayProcess(advertising(segments.port), directory=tmp_path) as gateway,
    ):
        segments.target, controller.target = gateway.segment_port, gateway.controller_port
        yield Behind(gateway, segments, controller)


@pytest.fixture
def writer(behind: Behind) -> Iterator[PravegaClient]:
    with PravegaClient(behind.controller.port) as client:
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


@pytest.mark.parametrize("stop", [GatewayProcess.terminate, GatewayProcess.kill])
def test_a_writer_and_a_reader_live_on(
    stop: Callable[[GatewayProcess], object], behind: Behind, writer: PravegaClient
) -> None:
    count = 600
    with PravegaClient(behind.controller.port) as reader:
        reader.call("group", "g", SCOPE, STREAM)
        reader.call("reader", "r", "g")
        reader.start("read", ["r"], count, 60)
        writer.start("write", SCOPE, STREAM, [(str(n), str(n % KEYS)) for n in range(count)], flush_every=5)
        writer.wait_for(count // 4)
        stop(behind.gateway)
        behind.gateway.start()
        writer.finish(60)
        found = Found(reader.finish(90))
    assert sorted(map(int, found.bodies("r"))) == list(range(count))
    assert check_order(stored(behind.gateway)) == list(range(count))


def test_a_writer_and_a_reader_do_not_notice_reloads(behind: Behind, writer: PravegaClient) -> None:
    count = 600
    with PravegaClient(behind.controller.port) as reader:
        reader.call("group", "g", SCOPE, STREAM)
        reader.call("reader", "r", "g")
        reader.start("read", ["r"], count, 60)
        writer.start("write", SCOPE, STREAM, [(str(n), str(n % KEYS)) for n in range(count)], flush_every=5)
        writer.wait_for(count // 4)
        churn(behind.gateway, ["segment", "controller"])
        writer.finish(60)
        found = Found(reader.finish(60))
    assert sorted(map(int, found.bodies("r"))) == list(range(count))
    assert check_order(stored(behind.gateway)) == list(range(count))


@each_number_of_rounds
def test_kill_nine_during_appends(behind: Behind, writer: PravegaClient, rounds: int) -> None:
    """Many times under the same writer: all that it wrote is there, once, in order.

    In every other round its acknowledgements get lost before, so that there are events in doubt: they are stored, and
    the writer does not know.
    """
    gateway, dice, began, in_doubt = behind.gateway, random.Random(20), time.monotonic(), 0
    writer.start("write_until_told", SCOPE, STREAM, KEYS, BATCH)
    for number in range(rounds):
        writer.wait_for(writer.progress + 100)
        if number % 2:
            behind.segments.swallows = True
            wait_until(lambda: len(check_order(stored(gateway))) > writer.progress)
        else:
            time.sleep(dice.uniform(0, 0.1))
        gateway.kill()
        acknowledged = writer.progress
        port, behind.segments.target, behind.segments.swallows = behind.segments.target, NO_TARGET, False
        gateway.start()
        found = check_order(stored(gateway))
        assert found[:acknowledged] == list(range(acknowledged))
        in_doubt += len(found) - acknowledged
        behind.segments.target = port
    writer.wait_for(writer.progress + 100)
    written = writer.stop()
    print(f"{rounds} rounds in {time.monotonic() - began:.0f} s: {written} events, {in_doubt} of them were in doubt")
    assert check_order(stored(gateway)) == list(range(written))
    assert in_doubt >= rounds // 2
