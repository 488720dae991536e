"""`make soak`: heavy mixed traffic while everything is recorded, with secrets in it, for ten minutes.

    python bench/soak.py [--seconds 600] [--directory DIR]

Checks all the while that the gateway's memory does not grow, that no secret stands in any file, and that every byte of
a file can be decoded; prints what it saw, also how many conversations were left out, since traffic goes first, and ends
with 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import re
import secrets
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import wire
import zstandard
from recordings import Recorded
from segments import RELEASED
from servers import Client

from penstock.capture.pcapng import CaptureReader, Chunk

RESULTS = Path(__file__).parent / "results"
SIZES = (100, 1024, 16 * 1024)
CONNECTIONS = 8
PHASE_SECONDS = 1.0
WARM = 0.3
"""The part of the time after which memory may not grow any more."""
GROWTH = 1.15
"""The factor by which the maximum of what is left may grow from the first half to the second."""
_LINE = re.compile(r"VmRSS:\s+(\d+) kB")


class Soaked(Recorded):
    """Rotates often, compresses, and blanks a word in bodies too."""

    _CONFIG = (
        Recorded._CONFIG.replace("keep_files = 3", "keep_bytes = 6_000_000_000")
        + 'rotate_bytes = 100_000_000\ncompress = "zstd"\nqueue_bytes = 134_217_728\n'
        + '\n[recorder.redact]\npatterns = ["sk-live-[0-9a-f]{{32}}"]\nrecord_headers = ["x-secret"]\n'
    )


class Planter:
    """Sends secrets where rules say that they are: a header, a body, the header of a record."""

    def __init__(self, gateway: Soaked) -> None:
        self._gateway = gateway
        self.token = secrets.token_hex(16)
        self.word = f"sk-live-{secrets.token_hex(16)}"
        self.header = secrets.token_hex(16)
        self.sent = 0

    @property
    def wanted(self) -> list[bytes]:
        """The secrets that must be in no file."""
        return [value.encode() for value in (self.token, self.word, self.header)]

    def plant(self) -> None:
        """Send the secrets over HTTP, read them back, and send them over S3P."""
        connection = http.client.HTTPConnection("127.0.0.1", self._gateway.s2_port, timeout=30)
        headers = {"s2-basin": wire.BASIN, "authorization": f"Bearer {self.token}"}
        record = {"body": f"the key is {self.word}, keep it", "headers": [["x-secret", self.header]]}
        try:
            for method, path, body in (
                ("POST", "/v1/streams/planted/records", json.dumps({"records": [record]})),
                ("GET", "/v1/streams/planted/records?seq_num=0&count=3", None),
            ):
                more = {"content-type": "application/json"} if body else {}
                connection.request(method, path, body, {**headers, **more})
                answer = connection.getresponse()
                told = answer.read()
                if answer.status != 200 or (body is None and self.word.encode() not in told):
                    raise RuntimeError(f"{method} {path}: {answer.status} {told[:200]!r}")
        finally:
            connection.close()
        self._by_s3p()
        self.sent += 1

    def _by_s3p(self) -> None:
        with socket.create_connection(("127.0.0.1", self._gateway.s3p_port), timeout=30) as connection:
            connection.sendall(wire.resp(b"APPEND", b"planted", (), [self.word.encode()]))
            answer = connection.recv(4096)
            if answer.startswith(b"-"):
                raise RuntimeError(f"APPEND: {answer!r}")


class Checker:
    """Looks through every file that is closed, once."""

    def __init__(self, directory: Path, words: list[bytes]) -> None:
        self._directory = directory
        self._words = words
        self._seen: set[str] = set()
        self.files = self.bytes = self.decoded = 0
        self.wrong: list[str] = []

    def look(self, *, last: bool = False) -> None:
        """At what is new. Files that are compressed meanwhile are looked at as what they become."""
        for path in sorted(self._directory.glob("*.pcapng*")):
            if path.name not in self._seen and (last or path.suffix == ".zst"):
                self._seen.add(path.name)
                self._check(path)

    def _check(self, path: Path) -> None:
        reader, tail = CaptureReader(), b""
        longest = max(map(len, self._words))
        for piece in self._pieces(path):
            self.bytes += len(piece)
            text = tail + piece
            self.wrong += [f"{path.name} has {word.decode()}" for word in self._words if word in text]
            tail = text[-longest:]
            reader.receive(piece)
            self.decoded += sum(len(event.data) for event in reader.events() if isinstance(event, Chunk))
        reader.receive(b"")
        self.decoded += sum(len(event.data) for event in reader.events() if isinstance(event, Chunk))
        if reader.damage is not None:
            self.wrong.append(f"{path.name}: {reader.damage}")
        self.files += 1

    @staticmethod
    def _pieces(path: Path) -> Iterator[bytes]:
        with path.open("rb") as file:
            source = zstandard.ZstdDecompressor().stream_reader(file) if path.suffix == ".zst" else file
            while piece := source.read(1 << 20):
                yield piece


class Load:
    """One kind of traffic after the other, as much of each as goes in a second."""

    def __init__(self, gateway: Soaked, client: Client) -> None:
        self._gateway = gateway
        self._client = client
        self._turn = itertools.count()
        self.records = 0

    def phases(self) -> Iterator[Callable[[], None]]:
        """For ever."""
        ports = {"S3P": self._gateway.s3p_port, RELEASED: self._gateway.segment_port}
        reads = list(self._prepared(ports))
        for size in itertools.cycle(SIZES):
            for protocol in ("S2S h1", "S2S h2", "S3P", RELEASED):
                yield lambda p=protocol, s=size: self._append(p, ports.get(p, self._gateway.s2_port), s)
                for port, scripts in reads:
                    yield lambda at=port, keys=scripts: self._read(at, keys)

    def _prepared(self, ports: dict[str, int]) -> Iterator[tuple[int, list[str]]]:
        streams = [f"read-{index}" for index in range(CONNECTIONS)]
        fill = {"size": 1024, "count": 100, "depth": 8, "seconds": 60, "batches": 40}
        self._client.do("append", protocol="S2S h1", port=self._gateway.s2_port, streams=streams, **fill)
        for protocol in ("S2S h1", "SSE", "S3P"):
            port = ports.get(protocol, self._gateway.s2_port)
            keys = [f"{protocol} {stream}" for stream in streams]
            for key, stream in zip(keys, streams, strict=True):
                self._client.do("prepare", key=key, protocol=protocol, port=port, stream=stream, records=4000)
            yield port, keys

    def _append(self, protocol: str, port: int, size: int) -> None:
        turn = next(self._turn)
        count = min(100, (512 << 10) // size)
        streams = [f"t{turn}-{index}" for index in range(CONNECTIONS)]
        plan = {"size": size, "count": count, "depth": 8, "seconds": PHASE_SECONDS / 2}
        self.records += self._client.do("append", protocol=protocol, port=port, streams=streams, **plan)["records"]

    def _read(self, port: int, keys: list[str]) -> None:
        answer = self._client.do("read", scripts=keys, port=port, depth=4, seconds=PHASE_SECONDS)
        self.records += answer["records"]


def memory(pid: int) -> int:
    """Resident, in KiB."""
    found = _LINE.search(Path(f"/proc/{pid}/status").read_text())
    assert found, "no VmRSS"
    return int(found[1])


def flat(samples: list[int]) -> tuple[int, int]:
    """The most of the first half after the warm-up, and of the second."""
    warm = samples[int(len(samples) * WARM) :]
    middle = len(warm) // 2
    return max(warm[:middle]), max(warm[middle:])


def soak(directory: Path, seconds: float, say: Callable[[str], None]) -> list[str]:
    """Run the soak; return what was wrong."""
    captures = directory / "captures"
    with (
        Client() as client,
        Soaked(directory / "gateway", (sys.executable, "-m", "penstock"), captures=captures) as one,
    ):
        planter, load = Planter(one), Load(one, client)
        checker = Checker(captures, planter.wanted)
        samples: list[int] = []
        done = threading.Event()
        looking = threading.Thread(target=look, args=(checker, done))
        looking.start()
        end = time.monotonic() + seconds
        try:
            for number, phase in enumerate(load.phases()):
                phase()
                planter.plant()
                samples.append(memory(one.process.pid))
                if number % 20 == 19:
                    size = f"{checker.bytes / 1e9:.1f} GB in {checker.files} files looked at"
                    say(f"{load.records:,} records, {size}, {samples[-1] / 1024:.0f} MiB resident")
                if time.monotonic() > end or checker.wrong:
                    break
            dropped = one.dropped
        finally:
            one.stop()
            done.set()
            looking.join()
        checker.look(last=True)
    first, second = flat(samples)
    say(f"{load.records:,} records; {planter.sent} times {len(planter.wanted)} secrets; {checker.files} files")
    say(f"{checker.bytes:,} bytes of files, {checker.decoded:,} of conversations; {dropped} conversations dropped")
    say(f"resident: {first / 1024:.0f} MiB, then {second / 1024:.0f} MiB at the most")
    wrong = checker.wrong
    if second > first * GROWTH:
        wrong.append(f"memory grew from {first} to {second} KiB")
    if not checker.decoded:
        wrong.append("nothing was recorded")
    return wrong


def look(checker: Checker, done: threading.Event) -> None:
    """Until it is done."""
    while not done.wait(1.0):
        checker.look()


def main() -> None:
    parser = argparse.ArgumentParser(description="A soak of the recorder.")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument(
        "--directory", type=Path, default=RESULTS, help="directory for the gateway's data during the run"
    )
    options = parser.parse_args()
    begin = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begin:5.0f} s] {text}", flush=True)

    RESULTS.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="soak-", dir=options.directory))
    try:
        wrong = soak(directory, options.seconds, say)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for line in wrong:
        say(f"WRONG: {line}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
