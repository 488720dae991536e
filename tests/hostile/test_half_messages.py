"""Memory of messages that never become complete: `max_inflight_bytes`, and little more."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from support.process import CONFIG, GatewayProcess
from support.s2.client import S2Client
from support.segment.client import bytes_of

from penstock_pravega.codec import released

MIB = 1 << 20
CONNECTIONS = 160
LIMIT = 64 * MIB
OWN = 64 * 1024
"""Bytes that each connection may hold in any case."""
SLACK = 36 * MIB
"""Connections, their tasks, and what the allocator cannot give back: with 90 to 97 MiB in all it takes some 20. Buffers
that grow in place took 133."""

LIMITS = f"""
[limits]
max_inflight_bytes = {LIMIT}
max_inflight_bytes_per_client = {LIMIT}
inflight_wait_seconds = 20
"""

_HEAD = b"POST /v1/streams/half/records HTTP/1.1\r\nhost: localhost\r\ns2-basin: penstock\r\n"


def unary(size: int) -> bytes:
    """All but the end of a body in JSON."""
    body = b'{"records":[{"body":"' + b"x" * size
    return _HEAD + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % (len(body) + 10) + body


def session(size: int, chunk: int) -> bytes:
    """All but the end of an S2S frame, in chunks of a given size."""
    body = (size + 10).to_bytes(3, "big") + b"\0" + b"x" * size
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in _parts(body, chunk))
    return _HEAD + b"content-type: s2s/proto\r\ntransfer-encoding: chunked\r\n\r\n" + chunks


def append(size: int) -> bytes:
    """All but the end of a record of S3P."""
    return b"*4\r\n$6\r\nAPPEND\r\n$4\r\nhalf\r\n*0\r\n*1\r\n$%d\r\n" % (size + 10) + b"x" * size


def block(size: int) -> bytes:
    """All but the end of an AppendBlock."""
    head = struct.pack(">ii", released.AppendBlock.type_id, size + 10) + UUID(int=1).bytes
    return bytes_of(released.Hello(16, 5)) + head + b"x" * (size - 16)


def produce(size: int) -> bytes:
    """All but the end of a request of Kafka."""
    return (size + 10).to_bytes(4, "big") + b"\0" * size


def _parts(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


MESSAGES = {
    "unary": ("s2", unary(MIB - 1000)),
    "session": ("s2", session(MIB, 1000)),
    "append": ("s3p", append(MIB - 1000)),
    "block": ("segment", block(15 * MIB)),
    "produce": ("kafka", produce(15 * MIB)),
}


def resident(gateway: GatewayProcess, key: str) -> int:
    """Bytes of the process: now (`VmRSS`), or the most there ever were (`VmHWM`)."""
    lines = Path(f"/proc/{gateway.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell how much memory is used")
@pytest.mark.parametrize("kind", MESSAGES)
def test_half_messages_stay_within_the_limit(kind: str) -> None:
    listener, message = MESSAGES[kind]
    with GatewayProcess(CONFIG + LIMITS) as gateway, contextlib.ExitStack() as stack:
        before = resident(gateway, "VmRSS")
        port = getattr(gateway, f"{listener}_port")
        left = [(stack.enter_context(_connected(port, number)), memoryview(message)) for number in range(CONNECTIONS)]
        for connection, _ in left:
            connection.setblocking(False)
        until, most = time.monotonic() + 15, 0
        while time.monotonic() < until and (left or most < LIMIT):
            left = [(connection, rest) for connection, data in left if (rest := data[_send(connection, data) :])]
            time.sleep(0.01)
            most = resident(gateway, "VmHWM") - before
        time.sleep(1)
        most = resident(gateway, "VmHWM") - before
        print(f"{kind}: {most / MIB:.0f} MiB")
        assert most > LIMIT * 3 // 4, "so much is read"
        assert most < LIMIT + CONNECTIONS * OWN + SLACK
        assert S2Client(("127.0.0.1", gateway.s2_port), "penstock").append("whole", "x")


def _connected(port: int, number: int) -> socket.socket:
    """From one of eight addresses: one client has a limit of its own."""
    return socket.create_connection(("127.0.0.1", port), source_address=(f"127.0.0.{2 + number % 8}", 0))


def _send(connection: socket.socket, data: memoryview) -> int:
    """Bytes that were sent; all of them where the gateway has closed the connection."""
    try:
        return connection.send(data[:65536])
    except BlockingIOError:
        return 0
    except OSError:
        return len(data)
