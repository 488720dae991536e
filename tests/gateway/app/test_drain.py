"""The end of a real gateway, as those see it who are connected: clients, operators, listeners to the traffic."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from support.process import BASIN, CONFIG, GatewayProcess
from support.reloads import KeptAlive, churn, wait_for
from support.s3p.client import S3PClient

PATIENT = CONFIG + "\n[drain]\naccept_seconds = 60\ndeadline_seconds = 60\ngrace_seconds = 0.2\n"


def asked(gateway: GatewayProcess, method: str, path: str) -> tuple[int, Any]:
    """Of the management listener."""
    with closing(http.client.HTTPConnection("127.0.0.1", gateway.management_port, timeout=20)) as connection:
        connection.request(method, path, "{}" if method == "POST" else None, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.fixture
def patient() -> Iterator[GatewayProcess]:
    with GatewayProcess(PATIENT) as gateway:
        yield gateway


def test_while_it_still_accepts_it_says_that_it_is_not_ready(patient: GatewayProcess) -> None:
    """As long as a balancer sends clients here, they are served; a second signal ends it."""
    assert asked(patient, "GET", "/ready") == (200, {"ready": True, "reasons": []})
    assert asked(patient, "POST", "/drain")[0] == 202
    wait_for(patient, "not_ready")
    assert asked(patient, "GET", "/ready") == (503, {"ready": False, "reasons": ["the gateway is draining"]})
    assert asked(patient, "GET", "/live")[0] == 200
    with closing(KeptAlive(patient.s2_port)) as client:
        assert client.append("late", "served all the same") == 200
    with S3PClient(("127.0.0.1", patient.s3p_port)) as client:
        assert [body for _, body in client.read("late")] == [b"served all the same"]
    assert patient.process is not None
    for _ in range(2):
        patient.process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
    assert patient.process.wait(10) == 128 + signal.SIGTERM


FOLLOWED = CONFIG + "\n[drain]\ndeadline_seconds = 30\ngrace_seconds = 1.5\n"


def test_operators_are_served_to_the_end_and_hold_up_no_client() -> None:
    """A follower has its grace time; meanwhile nothing but the management listener accepts. Those who listen to the
    traffic, one of them without taking any of it, are told when the clients have gone."""
    with GatewayProcess(FOLLOWED) as gateway:
        with closing(KeptAlive(gateway.s2_port)) as client:
            assert client.append("followed", "first") == 200
        with (
            closing(KeptAlive(gateway.s2_port)) as follower,
            socket.create_connection(("127.0.0.1", gateway.management_port), timeout=20) as stuck,
            subprocess.Popen(
                [sys.executable, "-m", "penstock", "tail", "--management", f"127.0.0.1:{gateway.management_port}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ) as tail,
        ):
            stuck.sendall(b"GET /tail HTTP/1.1\r\nhost: localhost\r\n\r\n")
            follower.connection.request(
                "GET",
                "/v1/streams/followed/records?seq_num=0",
                headers={"s2-basin": BASIN, "accept": "text/event-stream"},
            )
            assert follower.connection.getresponse().status == 200
            wait_for(gateway, "listening_started", 2)
            begun = time.monotonic()
            assert gateway.process is not None
            gateway.process.send_signal(signal.SIGTERM)
            wait_for(gateway, "draining")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", gateway.s2_port), timeout=5)
            assert asked(gateway, "GET", "/ready")[0] == 503
            assert gateway.process.wait(20) == 0
            assert time.monotonic() - begun < 10, "the deadline is far away"
            assert not gateway.events("drain_deadline")
            assert tail.wait(10) == 0, tail.stderr and tail.stderr.read()


class S3PWriter(threading.Thread):
    """Appends numbers by S3P, each after the previous acknowledgement.

    When it is cut off it reconnects and repeats the unacknowledged append.
    """

    def __init__(self, gateway: GatewayProcess) -> None:
        super().__init__()
        self.address = "127.0.0.1", gateway.s3p_port
        self.acknowledged = 0
        self.cuts = 0
        self.in_doubt: list[int] = []
        self.stopping = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.write()
        except Exception as error:
            self.failure = error

    def write(self) -> None:
        sent = False
        try:
            with S3PClient(self.address) as client:
                while not self.stopping.is_set():
                    sent = True
                    reply = client.append("numbers", b"%d" % self.acknowledged)
                    assert isinstance(reply, bytes), reply
                    sent = False
                    self.acknowledged += 1
        except ConnectionRefusedError:
            time.sleep(0.01)
        except (EOFError, ConnectionResetError, BrokenPipeError):
            self.cuts += 1
            self.in_doubt += [self.acknowledged] * sent

    def finish(self) -> None:
        self.stopping.set()
        self.join(30)
        assert self.failure is None, self.failure


def wait_until_written(writer: S3PWriter, more: int) -> None:
    enough, deadline = writer.acknowledged + more, time.monotonic() + 20
    while writer.acknowledged < enough:
        assert time.monotonic() < deadline and writer.is_alive(), writer.failure
        time.sleep(0.005)


def numbers_in(gateway: GatewayProcess) -> list[int]:
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as client:
        return [int(body) for _, body in client.read_all("numbers")]


def test_a_client_of_s3p_loses_nothing_by_drains_and_notices_no_reload(fresh_gateway: GatewayProcess) -> None:
    """A command that was taken is answered before the connection ends; one that comes too late was not done."""
    with S3PClient(("127.0.0.1", fresh_gateway.s3p_port)) as client:
        client.create("numbers")
    writer = S3PWriter(fresh_gateway)
    writer.start()
    try:
        wait_until_written(writer, 50)
        churn(fresh_gateway, ["s3p"])
        assert writer.cuts == 0
        for _ in range(3):
            wait_until_written(writer, 50)
            fresh_gateway.restart()
        wait_until_written(writer, 50)
    finally:
        writer.finish()
    found = numbers_in(fresh_gateway)
    assert sorted(set(found)) == list(range(len(set(found)))), "what was acknowledged is there"
    assert len(set(found)) >= writer.acknowledged
    doubled = [number for number in set(found) if found.count(number) > 1]
    assert not doubled, "what was not acknowledged was not done"
