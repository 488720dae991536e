"""Applications for uvicorn: `answering` does the least that an endpoint does, `storing` keeps records in SQLite."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

DIRECTORY = "BENCH_DIRECTORY"
"""The environment variable with the directory of `storing`."""
ANSWER = b'{"start":{"seq_num":0,"timestamp":0},"end":{"seq_num":1,"timestamp":0},"tail":{"seq_num":1,"timestamp":0}}'
TYPE = (b"content-type", b"application/json")

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_log: _Log | None = None


async def _body(receive: Receive) -> bytes:
    body = b""
    while (message := await receive()).get("more_body"):
        body += message.get("body", b"")
    return body + message.get("body", b"")


async def _answer(send: Send, body: bytes) -> None:
    headers = [TYPE, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def answering(scope: Message, receive: Receive, send: Send) -> None:
    """Answer every request with `ANSWER`."""
    if scope["type"] == "http":
        await _body(receive)
        await _answer(send, ANSWER)


class _Log:
    """Records of streams in one table of SQLite; an append is on disk when it returns."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "records.db"
        self._writer = self._connect()
        self._writer.execute(
            "CREATE TABLE records (stream TEXT, seq_num INTEGER, timestamp INTEGER, body TEXT,"
            " PRIMARY KEY (stream, seq_num)) WITHOUT ROWID"
        )
        self._reader = self._connect()
        self._tails: dict[str, int] = {}
        self._thread = ThreadPoolExecutor(1)

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        return database

    async def append(self, stream: str, bodies: list[str]) -> tuple[int, int, int]:
        """Return the first sequence number, the tail, and the timestamp in ms."""
        first, now = self._tails.get(stream, 0), time.time_ns() // 1_000_000
        tail = self._tails[stream] = first + len(bodies)
        rows = [(stream, number, now, body) for number, body in enumerate(bodies, first)]
        await asyncio.get_running_loop().run_in_executor(self._thread, self._insert, rows)
        return first, tail, now

    def _insert(self, rows: list[tuple[str, int, int, str]]) -> None:
        self._writer.execute("BEGIN")
        self._writer.executemany("INSERT INTO records VALUES (?, ?, ?, ?)", rows)
        self._writer.execute("COMMIT")

    def read(self, stream: str, begin: int, count: int) -> list[Message]:
        """Return up to `count` records from a sequence number on."""
        rows = self._reader.execute(
            "SELECT seq_num, timestamp, body FROM records WHERE stream = ? AND seq_num >= ? ORDER BY seq_num LIMIT ?",
            (stream, begin, count),
        )
        return [{"seq_num": number, "timestamp": timestamp, "body": body} for number, timestamp, body in rows]


async def storing(scope: Message, receive: Receive, send: Send) -> None:
    """Append the records of a POST to the stream that the path names, durably, or answer a GET with its records."""
    global _log
    if scope["type"] != "http":
        return
    if _log is None:
        _log = _Log(Path(os.environ[DIRECTORY]))
    stream = scope["path"].split("/")[3]
    if scope["method"] == "GET":
        query = dict(pair.split("=") for pair in scope["query_string"].decode().split("&"))
        answer: Message = {"records": _log.read(stream, int(query["seq_num"]), int(query["count"]))}
    else:
        given = json.loads(await _body(receive))
        first, tail, now = await _log.append(stream, [record["body"] for record in given["records"]])
        ends = {"start": first, "end": tail, "tail": tail}
        answer = {name: {"seq_num": number, "timestamp": now} for name, number in ends.items()}
    await _answer(send, json.dumps(answer).encode())
