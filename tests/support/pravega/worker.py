"""Pravega's Python client, unmodified, in a process of its own; `support.pravega.clients` drives it.

Every blocking call of this client holds the interpreter's lock (segment fact sheet, 3.1), so it cannot live in the
tests' own process. One request a line on standard input, `{"do": METHOD, "arguments": {...}}`; one answer a line on
standard output, `{"result": ...}` or `{"error": TEXT}`, and before it any number of `{"progress": NUMBER}`. Bytes
are text in which each character is a byte.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import pravega_client

Event = tuple[str, str | None]
"""A payload and a routing key."""


ANSWERS = os.fdopen(os.dup(sys.stdout.fileno()), "w")
os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the client writes its log to standard output

PR_SET_PDEATHSIG = 1
SETTLE_SECONDS = 0.05
"""After a read a thread of the client wants the interpreter's lock once more. A blocking call that is quicker holds
it, and may wait for what that thread has to do next: for ever, whatever the server says."""


def say(**message: object) -> None:
    print(json.dumps(message), file=ANSWERS, flush=True)


def told() -> bool:
    """Return whether a line of input waits to be read."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def text(data: bytes) -> str:
    return data.decode("latin-1")


class Worker:
    """Commands of the worker. Writers, groups and so on are kept under the names that the tests give them."""

    def __init__(self, uri: str, auth: bool) -> None:
        self.manager = pravega_client.StreamManager(uri, auth, uri.startswith("tls"))
        self.loop = asyncio.new_event_loop()
        self.writers: dict[tuple[str, str], Any] = {}
        self.groups: dict[str, Any] = {}
        self.cuts: dict[str, Any] = {}
        self.readers: dict[str, Any] = {}
        self.byte_streams: dict[str, Any] = {}
        self.transaction_writers: dict[tuple[str, str], Any] = {}
        self.transactions: dict[str, Any] = {}

    # ---- scopes and streams ----

    def manage(self, call: str, *arguments: object) -> object:
        """A call of the stream manager whose arguments and result are plain values."""
        return getattr(self.manager, call)(*arguments)

    def configure(self, call: str, scope: str, stream: str, segments: int, tags: list[str]) -> object:
        """create_stream_with_policy or update_stream_with_policy."""
        scaling = pravega_client.StreamScalingPolicy.fixed_scaling_policy(segments)
        retention = pravega_client.StreamRetentionPolicy.by_size(1 << 30)
        return getattr(self.manager, call)(scope, stream, scaling, retention, tags)

    # ---- events ----

    def writer(self, scope: str, stream: str) -> Any:
        if (scope, stream) not in self.writers:
            self.writers[scope, stream] = self.manager.create_writer(scope, stream)
        return self.writers[scope, stream]

    def write(self, scope: str, stream: str, events: list[Event], flush_every: int = 1_000_000) -> None:
        """All are acknowledged when it returns; `progress` says how many are."""
        writer = self.writer(scope, stream)
        for number, (body, key) in enumerate(events, 1):
            writer.write_event_bytes(body.encode("latin-1"), key)
            if number % flush_every == 0:
                writer.flush()
                say(progress=number)
        writer.flush()

    def write_until_told(self, scope: str, stream: str, keys: int, batch: int) -> int:
        """Writes the numbers from 0 on, number n with the key n % keys, until a line comes; gives how many."""
        writer, number = self.writer(scope, stream), 0
        while not told():
            for _ in range(batch):
                writer.write_event(str(number), str(number % keys))
                number += 1
            writer.flush()
            say(progress=number)
        sys.stdin.readline()
        return number

    def group(self, name: str, scope: str, stream: str, tail: bool = False, cut: str | None = None) -> None:
        self.groups[name] = self.manager.create_reader_group(name, scope, stream, tail, cut and self.cuts[cut])

    def cut(self, name: str, group: str) -> dict[int, int]:
        """Keeps where the group is, and gives it as offsets by segment."""
        self.cuts[name] = self.groups[group].get_streamcut()
        offsets: dict[int, int] = self.cuts[name].get_segment_offset_map()
        return offsets

    def reader(self, name: str, group: str) -> None:
        self.readers[name] = self.groups[group].create_reader(name)

    def offline(self, reader: str) -> None:
        self.readers[reader].reader_offline()

    def read(self, readers: list[str], count: int, seconds: float) -> dict[str, list[tuple[int, str]]]:
        """Return offset and payload of `count` events by reader, read in turns; fewer if there are no more within
        `seconds`.
        """
        end = time.monotonic() + seconds
        return self._found(readers, count, lambda: time.monotonic() > end)

    def read_until_told(self, reader: str) -> list[tuple[int, str]]:
        """Offsets and payloads, until a line comes."""
        found = self._found([reader], 1 << 30, told)[reader]
        sys.stdin.readline()
        return found

    def _found(self, readers: list[str], count: int, ended: Callable[[], bool]) -> dict[str, list[tuple[int, str]]]:
        found = self.loop.run_until_complete(self._read(readers, count, ended))
        time.sleep(SETTLE_SECONDS)
        return found

    async def _read(self, names: list[str], count: int, ended: Callable[[], bool]) -> dict[str, list[tuple[int, str]]]:
        found: dict[str, list[tuple[int, str]]] = {name: [] for name in names}
        left = count
        while left and not ended():
            for name in names:
                piece = await self.readers[name].get_segment_slice_async()
                for event in piece:
                    found[name].append((event.offset(), text(event.data())))
                    left -= 1
                    if not left:
                        break
                self.readers[name].release_segment(piece)
                say(progress=count - left)
                if not left:
                    break
        return found

    # ---- bytes ----

    def open_bytes(self, name: str, scope: str, stream: str) -> None:
        self.byte_streams[name] = self.manager.create_byte_stream(scope, stream)

    def write_bytes(self, name: str, data: str) -> int:
        written: int = self.byte_streams[name].write(data.encode("latin-1"))
        self.byte_streams[name].flush()
        return written

    def read_bytes(self, name: str, size: int) -> str:
        """One readinto."""
        buffer = bytearray(size)
        return text(bytes(buffer[: self.byte_streams[name].readinto(buffer)]))

    def of_bytes(self, name: str, call: str, *arguments: int) -> object:
        """seek, tell, truncate, current_head_offset or current_tail_offset."""
        return getattr(self.byte_streams[name], call)(*arguments)

    # ---- transactions ----

    def begin(self, name: str, scope: str, stream: str) -> int:
        """The writer is kept: the transactions of one that is gone cannot be ended."""
        if (scope, stream) not in self.transaction_writers:
            self.transaction_writers[scope, stream] = self.manager.create_transaction_writer(scope, stream, 1)
        self.transactions[name] = self.transaction_writers[scope, stream].begin_txn()
        number: int = self.transactions[name].get_txn_id()
        return number

    def resume(self, name: str, number: str, scope: str, stream: str) -> None:
        """Find a transaction by its id, as another writer."""
        writer = self.manager.create_transaction_writer(scope, stream, 2)
        self.transaction_writers[scope, stream] = writer
        self.transactions[name] = writer.get_txn(int(number))

    def write_in(self, name: str, events: list[Event]) -> None:
        for body, key in events:
            self.transactions[name].write_event(body, key)

    def of_transaction(self, name: str, call: str) -> object:
        """commit, abort or is_open."""
        return getattr(self.transactions[name], call)()


def end_with_parent() -> None:
    """Have the system kill this process when its parent dies (Linux only, as this client is).

    A call that waits would not notice the parent's death.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    end_with_parent()
    worker = Worker(sys.argv[1], auth=sys.argv[2:] == ["auth"])
    while line := sys.stdin.readline():
        request = json.loads(line)
        try:
            say(result=getattr(worker, request["do"])(*request["positional"], **request["named"]))
        except (Exception, pravega_client.TxnFailedException) as error:
            say(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
