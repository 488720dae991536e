"""The benchmark's client process: takes jobs as JSON lines on standard input, answers with JSON lines.

One process drives all connections of a job with one selector, so that on a machine of two cores the server has one
for itself. `run.py` starts it; the jobs are the functions in `JOBS`.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import kafka_client
import scripts
import segments
import wire
from followers import FOLLOWERS, Follower
from lanes import LANES, Lane, Refused
from servers import processor_seconds
from spread import SPREAD

STALL_SECONDS = 30.0
_BUFFER = 1 << 20
_SCRIPTS: dict[str, scripts.Script] = {}
_WRITERS: dict[str, Callable[[int, str, int], scripts.Script]] = {
    "S2S h1": scripts.s2s_script,
    "S2S h2": scripts.s2s_h2_script,
    "SSE": scripts.sse_script,
    "SSE h2": scripts.sse_h2_script,
    "S3P": scripts.s3p_script,
    "HTTP": scripts.unary_script,
    "Durable Streams": scripts.durable_script,
    "redis": scripts.redis_script,
    kafka_client.KAFKA: kafka_client.kafka_script,
    **segments.SCRIPTS,
}
_HELD: list[socket.socket | kafka_client.Member] = []


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
    return _append(job, [LANES[job["protocol"]](job["port"], stream, body, job["count"]) for stream in job["streams"]])


def append_spread(job: dict[str, Any]) -> dict[str, Any]:
    """Like `append`, but each of `connections` appends single records to its share of the streams in turn.

    Everything is acknowledged in order, so that the share's first streams have one record more at most. `cpu` are the
    processor seconds of the server, process `pid`, without those that it took to open the sessions.
    """
    body = wire.body_of(job["size"])
    shares = [job["streams"][index :: job["connections"]] for index in range(job["connections"])]
    lanes = [SPREAD[job["protocol"]](job["port"], share, body) for share in shares]
    before = processor_seconds(job["pid"])
    answer = _append({**job, "count": 1}, lanes)
    cpu = processor_seconds(job["pid"]) - before
    acked = {}
    for share in shares:
        rounds, more = divmod(answer["acked"][share[0]], len(share))
        acked |= {stream: rounds + (index < more) for index, stream in enumerate(share)}
    return {**answer, "acked": acked, "cpu": cpu}


def _append(job: dict[str, Any], lanes: Sequence[Lane]) -> dict[str, Any]:
    selector = selectors.DefaultSelector()
    events = dict.fromkeys(lanes, selectors.EVENT_READ)
    left = dict.fromkeys(lanes, job.get("batches", sys.maxsize))
    for lane in lanes:
        selector.register(lane.socket, selectors.EVENT_READ, lane)
    latencies: list[float] = []
    acked = {lane.stream: 0 for lane in lanes}
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

    def took(self, data: memoryview) -> bool:
        """Notes received bytes; whether the reading is complete."""
        count = len(data)
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


class _H2Reading(_Reading):
    """The same over HTTP/2, on one connection."""

    def _connect(self) -> socket.socket:
        connection = super()._connect()
        self._frames = scripts.H2Frames(connection)
        return connection

    def _ask(self) -> None:
        (block, _) = self.unsent.popleft()
        self._frames.ask(block)

    def took(self, data: memoryview) -> bool:
        self._frames.feed(data)
        self.left = self.script.answer_bytes - self._frames.data_bytes
        if self._frames.ended and self.left:
            raise Refused(f"ended {self.left} bytes before the end")
        return self._frames.ended


def read(job: dict[str, Any]) -> dict[str, Any]:
    """Plays each stream's script on a connection of its own, again and again, for `seconds`."""
    plans = [_SCRIPTS[key] for key in job["scripts"]]
    buffer = memoryview(bytearray(_BUFFER))
    selector = selectors.DefaultSelector()
    begin = end = perf_counter()
    deadline = begin + job["seconds"]
    for plan in plans:
        reading = (_H2Reading if plan.multiplexed else _Reading)(job["port"], plan, job["depth"])
        selector.register(reading.socket, selectors.EVENT_READ, reading)
    readings = 0
    records = size = 0
    while selector.get_map():
        for key, _ in _wait(selector):
            reading = key.data
            count = reading.socket.recv_into(buffer)
            if not count and not (reading.script.varies and abs(reading.left) < reading.script.answer_bytes // 100):
                raise Refused(f"closed {reading.left} bytes before the end")
            if not reading.took(buffer[:count]):
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


def prepare(job: dict[str, Any]) -> dict[str, Any]:
    """Reads a stream once, checks it, and keeps the script of that reading under `key`."""
    script = _SCRIPTS[job["key"]] = _WRITERS[job["protocol"]](job["port"], job["stream"], job["records"])
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
    """Per stream one writer, who appends one record every `interval` seconds, and `followers`, one if not said."""
    body = wire.body_of(job["size"])
    selector = selectors.DefaultSelector()
    lanes: list[Lane] = []
    sent: dict[Follower, deque[float]] = {}
    pairs: dict[Lane, list[Follower]] = {}
    for stream in job["streams"]:
        lane = LANES[job["writer"]](job["port"], stream, body, 1)
        lanes.append(lane)
        pairs[lane] = [FOLLOWERS[job["protocol"]](job["port"], stream) for _ in range(job.get("followers", 1))]
        selector.register(lane.socket, selectors.EVENT_READ, lane)
        for follower in pairs[lane]:
            sent[follower] = deque()
            selector.register(follower.socket, selectors.EVENT_READ, follower)
    latencies: list[float] = []
    begin = perf_counter() + 0.2
    # Writers are spread over the interval, as clients that know nothing of each other are.
    due = {lane: begin + job["interval"] * index / len(lanes) for index, lane in enumerate(lanes)}
    deadline = begin + job["seconds"]
    while True:
        now = perf_counter()
        if now > deadline and not any(sent.values()):
            break
        if now > deadline + STALL_SECONDS:
            raise Refused(f"{sum(map(len, sent.values()))} records were never delivered")
        for lane, moment in due.items():
            if now >= moment and now < deadline and not lane.pending and lane.may_send():
                moment_sent = perf_counter()
                for follower in pairs[lane]:
                    sent[follower].append(moment_sent)
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
    return {"records": len(latencies), **_milliseconds(latencies)}


# ---- requests ------------------------------------------------------------------------------------------------


class _Asking:
    """One connection that asks the same again and again, and waits for each answer."""

    def __init__(self, port: int, request: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self._held = b""
        self.ask()

    def ask(self) -> None:
        self.asked_at = perf_counter()
        self.socket.send(self._request)  # it fits into an empty buffer: never cut

    def answered(self, data: bytes) -> bool:
        """Takes received bytes; whether they complete the answer."""
        self._held += data
        if not scripts.is_whole(self._held):
            return False
        self._held = b""
        return True


def ask(job: dict[str, Any]) -> dict[str, Any]:
    """One request in flight on each connection, for `seconds`."""
    selector = selectors.DefaultSelector()
    begin = end = perf_counter()
    deadline = begin + job["seconds"]
    for stream in job["streams"]:
        asking = _Asking(job["port"], wire.small_request(job["request"], stream, wire.body_of(job["size"])))
        selector.register(asking.socket, selectors.EVENT_READ, asking)
    latencies = []
    acked = dict.fromkeys(job["streams"], 0)
    streams = {key.data: stream for stream, key in zip(job["streams"], list(selector.get_map().values()), strict=True)}
    while selector.get_map():
        for key, _ in _wait(selector):
            asking = key.data
            if not asking.answered(_receive(asking.socket)):
                continue
            end = perf_counter()
            latencies.append(end - asking.asked_at)
            acked[streams[asking]] += 1
            if end < deadline:
                asking.ask()
            else:
                selector.unregister(asking.socket)
                asking.socket.close()
    return {"records": len(latencies), "acked": acked, "seconds": end - begin, **_milliseconds(latencies)}


# ---- connections that wait -----------------------------------------------------------------------------------


def hold(job: dict[str, Any]) -> dict[str, Any]:
    """Opens what waits: followers of one stream (`protocol`), or connections. These have played a script once (`key`),
    or have asked nothing."""
    for _ in range(job["count"]):
        if job.get("protocol"):
            _HELD.append(FOLLOWERS[job["protocol"]](job["port"], job["stream"]).socket)
            continue
        connection = socket.create_connection(("127.0.0.1", job["port"]), timeout=20)
        _HELD.append(connection)
        if job.get("key"):
            script = _SCRIPTS[job["key"]]
            for request, length in (*filter(None, [script.opening]), *script.steps):
                connection.sendall(request)
                while length:
                    length -= len(_receive(connection)[:length])
    return {"count": len(_HELD)}


def members(job: dict[str, Any]) -> dict[str, Any]:
    """Members of `count` consumer groups, one each, that send a heartbeat every `interval` seconds, for `seconds`.

    `cpu`: processor seconds of the server, process `pid`, in that time.
    """
    found = [kafka_client.Member(job["port"], f"g{number}") for number in range(job["count"])]
    for member in found:
        member.join()
    beats, pause = 0, job["interval"] / job["count"]
    before, begin = processor_seconds(job["pid"]), time.perf_counter()
    while (now := time.perf_counter() - begin) < job["seconds"]:
        while beats * pause <= now:
            found[beats % len(found)].beat()
            beats += 1
        time.sleep(pause)
    cpu = processor_seconds(job["pid"]) - before
    _HELD.extend(found)
    return {"beats": beats, "cpu": cpu, "seconds": now}


def drop(_job: dict[str, Any]) -> dict[str, Any]:
    """Closes what `hold` opened."""
    while _HELD:
        _HELD.pop().close()
    return {}


JOBS = {
    "append": append,
    "append_spread": append_spread,
    "read": read,
    "prepare": prepare,
    "capture": capture,
    "deliver": deliver,
    "ask": ask,
    "hold": hold,
    "members": members,
    "drop": drop,
}


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
