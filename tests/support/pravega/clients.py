"""Real clients of Pravega as the peer tests use them, and what these need of a gateway."""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from support.process import BASIN, CONFIG, GatewayProcess
from support.s2.client import S2Client
from support.s3p.client import S3PClient

from penstock_proto import s2_pb2 as pb

__all__ = [
    "Found",
    "PravegaClient",
    "PravegaFailed",
    "advertised",
    "advertising",
    "bodies_by_s2s",
    "bodies_by_s3p",
    "need_pravega",
    "numbered",
    "streams_of",
    "wait_until",
]


def advertising(port: int) -> str:
    """Return the usual configuration, in which the controller sends clients to another port for their segments."""
    return CONFIG.replace(*advertised(port))


def advertised(port: int) -> tuple[str, str]:
    """The text of the usual configuration that makes it `advertising` when it is replaced, and by which."""
    listener = 'bind = "127.0.0.1:{controller_port}"\n'
    return listener, f'{listener}advertise = "127.0.0.1:{port}"\n'


WORKER = Path(__file__).with_name("worker.py")


def need_pravega() -> None:
    """Skips the test where the client is not installed: there are wheels for few platforms only."""
    if importlib.util.find_spec("pravega_client") is None:
        pytest.skip("the package pravega 0.3.8 is not installed: it has wheels for CPython to 3.11, x86-64, glibc 2.35")


class PravegaFailed(AssertionError):
    """The client failed, or gave no answer in time; the message ends with its output on standard error."""


def _environment(credentials: tuple[str, str] | None) -> dict[str, str]:
    """By which this client is told user name and password."""
    if credentials is None:
        return {}
    name, password = credentials
    prefix = "pravega_client_auth_"
    return {f"{prefix}method": "Basic", f"{prefix}username": name, f"{prefix}password": password}


class PravegaClient:
    """The Python client in a process of its own (`support.pravega.worker`); use it as a context manager.

    `progress` is the count reached by the running call, for those that count.
    """

    def __init__(
        self,
        controller_port: int,
        authority: str | None = None,
        credentials: tuple[str, str] | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        """`authority`: the file of the certificate that servers are trusted by; None: no TLS. `credentials`: user name
        and password; None: no authentication."""
        secured = authority is not None  # the client knows certificates by names only, so it asks for localhost
        self._uri = f"tls://localhost:{controller_port}" if secured else f"tcp://{host}:{controller_port}"
        self._arguments = ["auth"] if credentials else []
        tls = {"pravega_client_tls_cert_path": authority or ""}
        self._environment = {**os.environ, **tls, **_environment(credentials)}
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.progress = 0

    def start(self, do: str, *positional: object, **named: object) -> None:
        """Ask, without waiting for the answer."""
        assert self._process.stdin is not None
        self.progress = 0
        self._process.stdin.write(json.dumps({"do": do, "positional": positional, "named": named}) + "\n")
        self._process.stdin.flush()

    def finish(self, seconds: float = 30) -> Any:
        """Return the answer to the last call. Raises PravegaFailed."""
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            self._process.kill()
            raise PravegaFailed(f"no answer within {seconds} s\n{self._complaints()}") from None
        if answer is None or "error" in answer:
            raise PravegaFailed(f"{'it ended' if answer is None else answer['error']}\n{self._complaints()}")
        return answer["result"]

    def call(self, do: str, *positional: object, seconds: float = 30, **named: object) -> Any:
        """Ask and wait for the answer. Raises PravegaFailed."""
        self.start(do, *positional, **named)
        return self.finish(seconds)

    def stop(self, seconds: float = 30) -> Any:
        """Tell a call that goes on until told, and wait for its answer. Raises PravegaFailed."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.finish(seconds)

    def wait_for(self, progress: int) -> None:
        """Wait until the running call has reached `progress`. Raises PravegaFailed."""
        try:
            wait_until(lambda: self.progress >= progress)
        except TimeoutError as error:
            raise PravegaFailed(f"{self.progress} of {progress}: {error}\n{self._complaints()}") from None

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            if "progress" in answer:
                self.progress = answer["progress"]
            else:
                self._answers.put(answer)
        self._answers.put(None)

    def _complaints(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-3000:]

    def __enter__(self) -> Self:
        self._errors = tempfile.TemporaryFile()  # closed in __exit__
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), self._uri, *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=self._environment,
        )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._listener.join()  # before the pipe that it reads is closed
        self._process.communicate()
        self._errors.close()


def wait_until(reached: Callable[[], bool], seconds: float = 30) -> None:
    """Raises TimeoutError."""
    end = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(0.005)


class Found(dict[str, list[tuple[int, bytes]]]):
    """Events that readers read: offset and payload of each, by reader."""

    def __init__(self, answer: dict[str, list[tuple[int, str]]]) -> None:
        super().__init__(
            {reader: [(offset, body.encode("latin-1")) for offset, body in events] for reader, events in answer.items()}
        )

    @property
    def events(self) -> list[tuple[int, bytes]]:
        """Of all readers, one reader after the other."""
        return [event for events in self.values() for event in events]

    def bodies(self, reader: str) -> list[bytes]:
        return [body for _, body in self[reader]]


def numbered(count: int, keys: int, first: int = 0) -> list[tuple[str, str]]:
    """Return events that contain their number, each with one of `keys` routing keys."""
    return [(f"event {number}", f"key {number % keys}") for number in range(first, first + count)]


def streams_of(stream: str, segments: int) -> list[str]:
    """Return the S2 and S3P names of the segments of a stream that was never scaled (docs/names.md)."""
    return [stream, *(f"{stream}/{number}.#epoch.0" for number in range(1, segments))]


def bodies_by_s2s(gateway: GatewayProcess, stream: str, basin: str = BASIN) -> list[bytes]:
    """Return all records of a stream, by an S2S session."""
    client = S2Client(("127.0.0.1", gateway.s2_port), basin)
    with client.read_session(stream, "h2", seq_num=0, wait=0) as session:
        return [record.body for frame in session.rest() for record in pb.ReadBatch.FromString(frame.message).records]


def bodies_by_s3p(gateway: GatewayProcess, stream: str) -> list[bytes]:
    """Return all records of a stream, by S3P."""
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as client:
        return [body for _, body in client.read_all(stream)]
