"""`penstock conform` on a recording: real clients keep to the specifications of their protocols, and a wrong one does
not."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import s2_sdk as s2
from click.testing import CliRunner
from s2_sdk._exceptions import AppendIndefiniteFailureError
from support.bridges.client_fronts import DurableFront, KafkaFront
from support.bridges.fronts import LOOPBACK, Front, Record
from support.faults import with_faults
from support.peers import finish
from support.process import BASIN, GatewayProcess, running_gateway
from support.s2.sdk import connector
from support.s3p.client import encode

from penstock.cli import main
from penstock.tools.conform_run import FAULTS

T = TypeVar("T")

RECORDS = [Record(b"first"), Record(b"x" * 70_000), *(Record(b"record %d" % number) for number in range(50))]


def judged(recordings: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The judgements of a recording, by protocol and sender."""
    result = CliRunner().invoke(main, ["conform", str(recordings), "--json"])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == any(line["outcome"] == "fail" for line in lines), result.output
    return {(line["protocol"], line["sender"]): line for line in lines}


@pytest.mark.parametrize("client", [KafkaFront, DurableFront], ids=lambda client: client.name)
def test_a_client_that_appends_and_reads(client: type[Front], tmp_path: Path) -> None:
    with running_gateway(arguments=("--record", str(tmp_path))) as gateway:
        front = client(gateway, "judged")
        front.create()
        records = list(map(front.formed, RECORDS))
        front.append(records)
        assert [one.record for one in front.read(front.start())] == records
        front.close()
        gateway.terminate()
    found = judged(tmp_path)
    protocol = client.name.lower().split()[0]
    assert (found[protocol, "client"]["violations"], found[protocol, "server"]["violations"]) == ([], [])
    assert sum(found[protocol, "client"]["messages"].values()) > 3


def test_the_python_client_of_s2(tmp_path: Path) -> None:
    async def append_and_read(port: int) -> None:
        async with connector(port)() as client:
            stream = client.basin(BASIN).stream("judged")
            async with stream.append_session() as session:
                await (await session.submit(s2.AppendInput([s2.Record(one.body) for one in RECORDS])))
            async for _ in stream.read_session(start=s2.SeqNum(0), limit=s2.ReadLimit(count=len(RECORDS))):
                pass

    with running_gateway(arguments=("--record", str(tmp_path))) as gateway:
        finish(append_and_read(gateway.s2_port))
        gateway.terminate()
    found = judged(tmp_path)
    assert (found["s2", "client"]["violations"], found["s2", "server"]["violations"]) == ([], [])
    assert found["s2", "client"]["messages"]["AppendInput"] == 1


# ---- before a server that misbehaves ---------------------------------------------------------------------------------

BODIES = [b"record %d" % number for number in range(12)]


def again(attempt: Callable[[], T], *failures: type[Exception]) -> T:
    """Repeat an attempt until it succeeds, as users must whose client does not; return its result."""
    for _ in range(20):
        with suppress(*failures):
            return attempt()
    raise AssertionError("it never succeeds")


def by_s2_sdk(gateway: GatewayProcess) -> list[bytes]:
    """Each append says where it must stand, so that one whose acknowledgement is lost is not stored twice."""

    async def append(stream: s2.S2Stream) -> None:
        while (first := (await stream.check_tail()).seq_num) < len(BODIES):
            with suppress(s2.SeqNumMismatchError, AppendIndefiniteFailureError):
                async with stream.append_session() as session:
                    for number in range(first, len(BODIES)):
                        await session.submit(s2.AppendInput([s2.Record(BODIES[number])], match_seq_num=number))

    async def append_and_read() -> list[bytes]:
        async with connector(gateway.s2_port)() as client:
            stream = client.basin(BASIN).stream("unkind")
            await append(stream)
            limit = s2.ReadLimit(count=len(BODIES))
            async with stream.read_session(start=s2.SeqNum(0), limit=limit) as batches:
                return [record.body async for batch in batches for record in batch.records]

    return finish(append_and_read())


def by_librdkafka(gateway: GatewayProcess) -> list[bytes]:
    """Its idempotent producer and its consumer go on by themselves."""
    front = KafkaFront(gateway, "unkind")
    front.create()
    for body in BODIES:
        front.append([Record(body)])
    found = [one.record.body for one in front.read(front.start())]
    front.close()
    return found


def by_durable_streams(gateway: GatewayProcess) -> list[bytes]:
    """Each append has a sequence number, so that one that was stored is refused when it is repeated."""
    client = pytest.importorskip("durable_streams", reason="durable-streams is not installed (group peers)")
    failures = (client.DurableStreamError, pytest.importorskip("httpx").HTTPError)
    url = gateway.durable_url + "unkind"
    stream = again(lambda: client.DurableStream.create(url, content_type="application/octet-stream"), *failures)

    def append(number: int) -> None:
        with suppress(client.SeqConflictError):
            stream.append(BODIES[number], seq=f"{number:09d}")

    for number in range(len(BODIES)):
        again(partial(append, number), *failures)
    stream.close()

    def read() -> bytes:
        with client.stream(url, offset="-1", live=False) as answer:
            return bytes(answer.read_bytes())

    return [again(read, *failures)]


def by_redis_py(gateway: GatewayProcess) -> list[bytes]:
    """Its user asks what is stored before an append, and again after one that failed."""
    redis = pytest.importorskip("redis", reason="redis is not installed (group peers)")
    connection = redis.connection.Connection(
        host=LOOPBACK, port=gateway.s3p_port, protocol=2, driver_info=None, socket_timeout=10
    )

    def ask(*arguments: object) -> Any:
        connection.send_packed_command([encode(arguments)])
        return connection.read_response()

    def asked(*arguments: object) -> Any:
        return again(partial(ask, *arguments), redis.RedisError)

    asked("CREATE", "unkind", [])
    for number, body in enumerate(BODIES):
        while not asked("READ", "unkind", ["MIN_ID", f"{number}-0"]):
            with suppress(redis.RedisError):
                ask("APPEND", "unkind", ["ID", number], [body])
    found: list[bytes] = []
    while page := asked("READ", "unkind", ["COUNT", 2, "MIN_ID", f"{len(found)}-0"]):
        found += page[1::2]
    connection.disconnect()
    return found


UNKIND: list[dict[str, Any]] = [{"stream": None, **fault} for fault in FAULTS]
"""The faults of `penstock conform -- COMMAND`."""


@pytest.mark.parametrize("client", [by_s2_sdk, by_librdkafka, by_durable_streams, by_redis_py])
def test_a_client_before_a_server_that_misbehaves(
    client: Callable[[GatewayProcess], list[bytes]], tmp_path: Path
) -> None:
    """It delivers what it has appended, once, and breaks no clause."""
    with running_gateway(with_faults(*UNKIND), arguments=("--record", str(tmp_path))) as gateway:
        delivered = client(gateway)
        gateway.terminate()
        fired = {event["rule"] for event in gateway.events("fault_injected")}
    assert b"".join(delivered) == b"".join(BODIES)
    assert fired == {str(fault["name"]) for fault in FAULTS}
    (found,) = (one for (_, sender), one in judged(tmp_path).items() if sender == "client")
    assert found["violations"] == [] and sum(found["messages"].values()) > len(BODIES)


def test_a_client_that_is_wrong(tmp_path: Path) -> None:
    """An array of two elements is no command."""
    with running_gateway(arguments=("--record", str(tmp_path))) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.s3p_port)) as wrong:
            wrong.sendall(b"*2\r\n$6\r\nCREATE\r\n$1\r\ns\r\n")
            assert wrong.recv(1000).startswith(b"-ERR_")
        gateway.terminate()
    client = judged(tmp_path)["s3p", "client"]
    assert client["outcome"] == "fail" and "S3P 0.2.0" in client["violations"][0]["clause"]
