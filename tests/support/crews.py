"""Gateways that have workers."""

import time
from typing import Any

from support.management import ask
from support.process import GatewayProcess
from support.s2.client import Http1Stream, S2Client
from support.s2.frames import Session

from penstock.app.workers.process import CONNECTIONS

TWO = """\
workers = 2

[listeners.s2]
bind = "127.0.0.1:{s2_port}"

[listeners.s3p]
bind = "127.0.0.1:{s3p_port}"
basin = "{basin}"

[listeners.segment]
bind = "127.0.0.1:{segment_port}"
basin = "{basin}"

[drain]
grace_seconds = 0.2
deadline_seconds = 5

[store]
directory = "{data}"

[[store.basins]]
name = "{basin}"

[log]
format = "json"
"""


def served_by(gateway: GatewayProcess, session: Session) -> int:
    """Return the worker that serves a session's connection."""
    return connection_of(gateway, session) // CONNECTIONS


def connection_of(gateway: GatewayProcess, session: Session) -> int:
    """Return the number of a session's connection."""
    assert isinstance(session.stream, Http1Stream)
    mine = "{}:{}".format(*session.stream.socket.getsockname()[:2])
    for one in ask(gateway.management_port, "/connections")[1]["connections"]:
        if one["client"] == mine:
            return int(one["connection"])
    raise AssertionError(f"{mine} is not open")


def session_in(gateway: GatewayProcess, client: S2Client, worker: int, stream: str, **reading: object) -> Session:
    """An append session that this worker serves, or a read session where something is said about `reading`: the system
    chooses a worker for each connection, so there are as many tries as it takes."""
    for _ in range(100):
        session = client.read_session(stream, **reading) if reading else client.append_session(stream)
        if not reading:
            assert isinstance(session.stream, Http1Stream)
        assert session.stream.status == 200
        if served_by(gateway, session) == worker:
            return session
        session.close()
    raise AssertionError(f"worker {worker} gets no connection")


def started(gateway: GatewayProcess) -> dict[int, int]:
    """Return the newest process of each worker."""
    return {event["worker"]: event["process"] for event in gateway.events("worker_started")}


def until(true: Any, seconds: float = 20) -> None:
    """Wait until something that happens in other processes has happened."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)
