"""`penstock diff` of a gateway's recording of S3P clients with another's recording of S2 clients, or its streams."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from support.process import BASIN, GatewayProcess, running_gateway
from support.s3p.client import S3PClient, options

from penstock.cli import main

RECORDS = 300


def recorded() -> list[bytes]:
    return [b"record %d" % number for number in range(RECORDS)]


def lost(bodies: list[bytes]) -> None:
    del bodies[137]


def doubled(bodies: list[bytes]) -> None:
    bodies.insert(138, bodies[137])


def reordered(bodies: list[bytes]) -> None:
    bodies.insert(140, bodies.pop(137))


def altered(bodies: list[bytes]) -> None:
    bodies[137] = b"record 13?"


PLANTED: dict[str, Callable[[list[bytes]], None]] = {
    "lost": lost,
    "doubled": doubled,
    "reordered": reordered,
    "altered": altered,
}


class Recorded(NamedTuple):
    a: Path
    b: Path
    gateway: GatewayProcess


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """`a`: 300 records by S3P. `b`: the same by S2, and again with each difference in a stream of its own."""
    first, second = tmp_path_factory.mktemp("a"), tmp_path_factory.mktemp("b")
    with (
        running_gateway(arguments=("--record", str(first))) as gateway,
        S3PClient(("127.0.0.1", gateway.s3p_port)) as client,
    ):
        client.send("CREATE", "orders", options())
        assert client.reply() == "OK"
        bodies = recorded()
        for start in range(0, RECORDS, 50):
            assert isinstance(client.append("orders", *bodies[start : start + 50]), bytes)
    with GatewayProcess(arguments=("--record", str(second))) as gateway:
        append(gateway, "orders", recorded())
        for name, plant in PLANTED.items():
            bodies = recorded()
            plant(bodies)
            append(gateway, name, bodies)
        assert gateway.terminate() == 0
        gateway.start()
        yield Recorded(first, second, gateway)


def append(gateway: GatewayProcess, stream: str, bodies: list[bytes]) -> None:
    connection = HTTPConnection("127.0.0.1", gateway.s2_port, timeout=20)
    headers = {"s2-basin": BASIN, "content-type": "application/json"}
    for start in range(0, len(bodies), 70):
        words = {"records": [{"body": body.decode()} for body in bodies[start : start + 70]]}
        connection.request("POST", f"/v1/streams/{stream}/records", json.dumps(words), headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
    connection.close()


def diff(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["diff", *map(str, arguments)])  # a process for each takes longer than the rest
    return done.exit_code, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.peer
def test_recordings_by_two_protocols_are_equal(both: Recorded) -> None:
    code, said = diff(both.a, both.b, "--map", f"orders={BASIN}/orders", "--json")
    found: dict[str, Any] = json.loads(said)
    compared = next(one for one in found["streams"] if one["a"] is not None)
    assert (compared["a"]["name"], compared["b"]["name"]) == ("orders", f"{BASIN}/orders")
    assert (compared["equal"], compared["same"]) == (True, RECORDS)
    assert (code, found["equal"]) == (1, False), "B has four streams more"


@pytest.mark.peer
def test_positions_of_s3p_records_are_their_ordinals(both: Recorded) -> None:
    _, said = diff(both.a, both.b, "--by", "position", "--map", f"orders={BASIN}/orders", "--json")
    compared = next(one for one in json.loads(said)["streams"] if one["a"] is not None)
    assert (compared["equal"], compared["same"]) == (True, RECORDS)


@pytest.mark.peer
def test_a_recording_and_a_live_server(both: Recorded) -> None:
    code, said = diff(both.a, f"s2://127.0.0.1:{both.gateway.s2_port}")
    assert (code, said.splitlines()[-1]) == (0, "equal: 1 stream"), said
    code, said = diff(both.a, f"s3p://127.0.0.1:{both.gateway.s3p_port}/{BASIN}")
    assert code == 1 and "only in A" in said, "over S3P a basin is a part of the name, which this server's have not"
    code, said = diff(both.a, f"s3p://127.0.0.1:{both.gateway.s3p_port}")
    assert (code, said.splitlines()[-1]) == (0, "equal: 1 stream"), said


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.peer
def test_each_planted_difference_is_found(both: Recorded, kind: str) -> None:
    server = f"s2://127.0.0.1:{both.gateway.s2_port}"
    code, said = diff(both.a, server, "--map", f"orders={BASIN}/{kind}", "--json")
    (stream,) = json.loads(said)["streams"]
    assert (code, stream["counts"]) == (1, {kind: 1})
    (difference,) = stream["differences"]
    at = (difference["a"] or difference["b"])["ordinal"]
    assert difference["kind"] == kind and 137 <= at <= 140
    if kind == "altered":
        code, said = diff(both.a, both.b, "--map", f"orders={BASIN}/{kind}")
        assert code == 1 and "  altered    A #137 " in said and said.splitlines()[-1] == "different: 5 of 5 streams"


@pytest.mark.peer
def test_what_cannot_be_compared(both: Recorded, tmp_path: Path) -> None:
    code, said = diff(both.a, tmp_path / "nothing")
    assert code == 2 and "nothing" in said
    code, said = diff(both.a, "gopher://127.0.0.1:70")
    assert code == 2 and "give a URL such as durable://" in said
    code, said = diff(both.a, both.b, "--stream", "no such")
    assert code == 2 and "with such a name" in said
    code, said = diff(both.a, both.b, "--ignore", "colour")
    assert code == 2 and "'colour' cannot be ignored" in said
