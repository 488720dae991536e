"""The benchmark's client process: takes jobs as JSON lines on standard input, answers with JSON lines.

One process drives all connections of a job with one selector, so that on a machine of two cores the server has one
for itself. `run.py` starts it; the jobs are the functions in `JOBS`.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import scripts
import segments
import wire
from followers import FOLLOWERS, Follower
from lanes import LANES, Lane, Refused

STALL_SECONDS = 30.0
_BUFFER = 1 << 20


def percentile(samples: Sequence[float], share: float) -> float:
    """The sample below which `share` of all samples lie."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _milliseconds(samples: Sequence[float]) -> dict[str, Any]:
    return {
        "p50_ms": percentile(samples, 0.5) * 1e3,
        "p99_ms": percentile(samples, 0.99) * 1e3,
        "samples": len(samples),
    }


def _wait(selector: selectors.BaseSelector) -> list[tuple[selectors.SelectorKey, int]]:
    ready = selector.select(STALL_SECONDS)
    if not ready:
        raise Refused(f"no progress for {STALL_SECONDS} s")
    return ready


def _receive(connection: socket.socket) -> bytes:
    try:
        data = connection.recv(_BUFFER)
    except BlockingIOError:
        return b""
    if not data:
        raise Refused("the connection was closed")
    return data


# ---- appends -------------------------------------------------------------------------------------------------


def append(job: dict[str, Any]) -> dict[str, Any]:
    """Keeps `depth` batches in flight on each connection, for `seconds` or until each has sent `batches`.

    The time ends with the last acknowledgement.
    """
    body = wire.body_of(job["size"])
    lanes = [LANES[job["protocol"]](job["port"], stream, body, job["count"]) for stream in job["streams"]]
    selector = selectors.DefaultSelector()
    events = dict.fromkeys(lanes, selectors.EVENT_READ)
    left = dict.fromkeys(lanes, job.get("batches", sys.maxsize))
    for lane in lanes:
        selector.register(lane.socket, selectors.EVENT_READ, lane)
    latencies: list[float] = []
    acked = dict.fromkeys(job["streams"], 0)
    begin = end = perf_counter()
    deadline = begin + job["seconds"]

    def fill(lane: Lane) -> None:
        while left[lane] and len(lane.sent_at) < job["depth"] and not lane.pending and lane.may_send():
            if perf_counter() >= deadline:
                left[lane] = 0
                break
            left[lane] -= 1
            lane.submit()
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if lane.pending else 0)
        if wanted != events[lane]:
            events[lane] = wanted
            selector.modify(lane.socket, wanted, lane)

    for lane in lanes:
        fill(lane)
    while any(lane.sent_at for lane in lanes):
        for key, mask in _wait(selector):
            lane = key.data
            if mask & selectors.EVENT_WRITE:
                lane.flush()
            if mask & selectors.EVENT_READ and (acks := lane.credit(_receive(lane.socket))):
                end = perf_counter()
                latencies += [end - lane.sent_at.popleft() for _ in range(acks)]
                acked[lane.stream] += acks * job["count"]
            fill(lane)
    for lane in lanes:
        lane.close()
    return {"records": sum(acked.values()), "acked": acked, "seconds": end - begin, **_milliseconds(latencies)}


# ---- catch-up reads ------------------------------------------------------------------------------------------


class _Reading:
    """One connection that plays a script over and over until the deadline."""

    def __init__(self, port: int, script: scripts.Script, depth: int) -> None:
        self.port = port
        self.script = script
        self.depth = depth
        self.socket = self._connect()
        self._start()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.script.opening is not None:
            said, left = self.script.opening
            connection.sendall(said)
            while left:
                left -= len(connection.recv(left) or self._closed())
        return connection

    def _closed(self) -> bytes:
        raise Refused("the connection was closed")

    def _start(self) -> None:
        self.left = self.script.answer_bytes
        self.unsent = deque(self.script.steps)
        self.owed: deque[int] = deque()
        self._ask()

    def _ask(self) -> None:
        """Keeps `depth` requests under way; they are small, so that a send is never cut."""
        pieces = []
        while self.unsent and len(self.owed) < self.depth:
            request, length = self.unsent.popleft()
            pieces.append(request)
            self.owed.append(length)
        if pieces:
            self.socket.send(b"".join(pieces))

    def took(self, count: int) -> bool:
        """Notes received bytes; whether the reading is complete."""
        self.left -= count
        if self.script.varies:
            return count == 0
        while self.owed and count:
            step = min(count, self.owed[0])
            count -= step
            self.owed[0] -= step
            if self.owed[0] == 0:
                self.owed.popleft()
        if self.left:
            self._ask()
        return self.left == 0

    def again(self) -> None:
        """Begins another reading, on a new connection where the server closes the old one."""
        if self.script.closes:
            while self.socket.recv(4096):
                pass
            self.socket.close()
            self.socket = self._connect()
        self._start()


def read(job: dict[str, Any]) -> dict[str, Any]:
    """Plays each stream's script on a connection of its own, again and again, for `seconds`."""
    plans = [_SCRIPTS[key] for key in job["scripts"]]
    buffer = bytearray(_BUFFER)
    selector = selectors.DefaultSelector()
    begin = end = perf_counter()
    deadline = begin + job["seconds"]
    for plan in plans:
        reading = _Reading(job["port"], plan, job["depth"])
        selector.register(reading.socket, selectors.EVENT_READ, reading)
    readings = 0
    records = size = 0
    while selector.get_map():
        for key, _ in _wait(selector):
            reading = key.data
            count = reading.socket.recv_into(buffer)
            if not count and not (reading.script.varies and abs(reading.left) < reading.script.answer_bytes // 100):
                raise Refused(f"closed {reading.left} bytes before the end")
            if not reading.took(count):
                continue
            end = perf_counter()
            readings += 1
            records += reading.script.records
            size += reading.script.answer_bytes
            selector.unregister(reading.socket)
            if end < deadline:
                reading.again()
                selector.register(reading.socket, selectors.EVENT_READ, reading)
            else:
                reading.socket.close()
    return {"records": records, "bytes": size, "seconds": end - begin, "readings": readings}


_SCRIPTS: dict[str, scripts.Script] = {}
_WRITERS: dict[str, Callable[[int, str, int], scripts.Script]] = {
    "S2S h1": scripts.s2s_script,
    "SSE": scripts.sse_script,
    "S3P": scripts.s3p_script,
    "redis": scripts.redis_script,
    **segments.SCRIPTS,
}


def prepare(job: dict[str, Any]) -> dict[str, Any]:
    """Reads a stream once, checks it, and keeps the script of that reading under `key`."""
    script = _WRITERS[job["protocol"]](job["port"], job["stream"], job["records"])
    script = _SCRIPTS[job["key"]] = replace(script, varies=job.get("varies", False))
    return {"records": script.records, "bytes": script.answer_bytes}


def capture(job: dict[str, Any]) -> dict[str, Any]:
    """Saves the very bytes of a stream's S2S catch-up answer, for the relay; the script for them goes under `key`."""
    request = wire.read_session_head(job["stream"], f"seq_num=0&count={job['records']}")
    answer = scripts.read_all(job["port"], request)
    with open(job["path"], "wb") as file:  # noqa: PTH123 - one call, no path to handle
        file.write(answer)
    _SCRIPTS[job["key"]] = scripts.Script(((request, len(answer)),), job["records"], closes=True)
    return {"bytes": len(answer)}


# ---- from append to delivery ---------------------------------------------------------------------------------


def deliver(job: dict[str, Any]) -> dict[str, Any]:
    """Per stream one writer, who appends one record every `interval` seconds, and one follower."""
    body = wire.body_of(job["size"])
    selector = selectors.DefaultSelector()
    lanes: list[Lane] = []
    sent: dict[Follower, deque[float]] = {}
    due: dict[Lane, float] = {}
    now = perf_counter()
    for index, stream in enumerate(job["streams"]):
        lane = LANES[job["writer"]](job["port"], stream, body, 1)
        lanes.append(lane)
        follower = FOLLOWERS[job["protocol"]](job["port"], stream)
        sent[follower] = deque()
        # Writers are spread over the interval, as clients that know nothing of each other are.
        due[lane] = now + 0.2 + job["interval"] * index / len(job["streams"])
        selector.register(lane.socket, selectors.EVENT_READ, lane)
        selector.register(follower.socket, selectors.EVENT_READ, follower)
    pairs = dict(zip(lanes, sent, strict=True))
    latencies: list[float] = []
    deadline = now + 0.2 + job["seconds"]
    while True:
        now = perf_counter()
        if now > deadline and not any(sent.values()):
            break
        if now > deadline + STALL_SECONDS:
            raise Refused(f"{sum(map(len, sent.values()))} records were never delivered")
        for lane, moment in due.items():
            if now >= moment and now < deadline and not lane.pending and lane.may_send():
                sent[pairs[lane]].append(perf_counter())
                lane.submit()
                due[lane] = moment + job["interval"]
        rest = max(0.0, min(due.values()) - perf_counter()) if now < deadline else 0.05
        for key, _ in selector.select(rest):
            if isinstance(key.data, Follower):
                records = key.data.feed(_receive(key.data.socket))
                arrived = perf_counter()
                latencies += [arrived - sent[key.data].popleft() for _ in range(records)]
            else:
                for _ in range(key.data.credit(_receive(key.data.socket))):
                    key.data.sent_at.popleft()
    for end in (*lanes, *sent):
        end.close()
    return _milliseconds(latencies)


JOBS = {"append": append, "read": read, "prepare": prepare, "capture": capture, "deliver": deliver}


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = JOBS[job["job"]](job)
        except Exception as error:
            answer = {"error": repr(error), "trace": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
