"""`penstock conform` on a recording: real clients keep to the specifications of their protocols, and a wrong one does
not."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import s2_sdk as s2
from click.testing import CliRunner
from support.bridges.client_fronts import DurableFront, KafkaFront
from support.bridges.fronts import Front, Record
from support.peers import finish
from support.process import BASIN, running_gateway
from support.s2.sdk import connector

from penstock.cli import main

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


def test_a_client_that_is_wrong(tmp_path: Path) -> None:
    """An array of two elements is no command."""
    with running_gateway(arguments=("--record", str(tmp_path))) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.s3p_port)) as wrong:
            wrong.sendall(b"*2\r\n$6\r\nCREATE\r\n$1\r\ns\r\n")
            assert wrong.recv(1000).startswith(b"-ERR_")
        gateway.terminate()
    client = judged(tmp_path)["s3p", "client"]
    assert client["outcome"] == "fail" and "S3P 0.2.0" in client["violations"][0]["clause"]
