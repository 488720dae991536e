"""The S3P conformance cases (S3P fact sheet, section 5), each against a fresh listener and a fresh store."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import trio
from support.s3p.front import listening

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("s3p_cases.json").read_text())
BETWEEN_WRITES = 0.005
STAYS_OPEN = 0.1
CLOSES_WITHIN = 1.0
ANSWERS_WITHIN = 15.0


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
async def test_case(case: dict[str, Any], tmp_path: Path) -> None:
    async with listening(tmp_path) as port:
        await _set_up(port, case["setup"])
        async with await _connect(port) as client, trio.open_nursery() as nursery:
            for other in case.get("concurrent", []):
                nursery.start_soon(_later, port, other)
            written = await _write(client, case["send"])
            received = await _read_until(client, case)
            took_ms = (trio.current_time() - written) * 1000
            assert case.get("min_ms", 0) <= took_ms <= case.get("max_ms", 60_000)
            await _check_end(client, case["closes"], received)
            nursery.cancel_scope.cancel()
        if "then" in case:
            async with await _connect(port) as client:
                await _write(client, case["then"]["send"])
                await _read_until(client, case["then"])


async def _connect(port: int) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", port)


async def _set_up(port: int, commands: list[str]) -> None:
    async with await _connect(port) as client:
        for command in commands:
            await client.send_all(command.encode("latin-1"))
            reply = await client.receive_some()
            assert reply[:1] in b"+$", reply


async def _write(client: trio.SocketStream, send: str | list[str]) -> float:
    """Write the pieces; when the last was written."""
    for index, piece in enumerate([send] if isinstance(send, str) else send):
        if index:
            await trio.sleep(BETWEEN_WRITES)
        await client.send_all(piece.encode("latin-1"))
    return trio.current_time()


async def _later(port: int, other: dict[str, Any]) -> None:
    await trio.sleep(other["after_ms"] / 1000)
    async with await _connect(port) as client:
        await client.send_all(other["send"].encode("latin-1"))
        await client.receive_some()


async def _read_until(client: trio.SocketStream, case: dict[str, Any]) -> bytes:
    expect = case["expect"].encode("latin-1")
    received = b""
    with trio.move_on_after(ANSWERS_WITHIN):
        while not _met(received, expect, case.get("match", "exact")):
            data = await client.receive_some()
            if not data:
                break
            received += data
    assert _met(received, expect, case.get("match", "exact")), received
    return received


def _met(received: bytes, expect: bytes, match: str) -> bool:
    return received == expect if match == "exact" else re.search(expect, received, re.DOTALL) is not None


async def _check_end(client: trio.SocketStream, closes: bool, received: bytes) -> None:
    """Check that the connection ends if it must and stays open if it must, without another byte."""
    with trio.move_on_after(CLOSES_WITHIN if closes else STAYS_OPEN) as waiting:
        more = await client.receive_some()
        assert not more, received + more
    assert waiting.cancelled_caught is not closes
