"""The commands on streams, as a person runs them, at a gateway's listeners of every protocol."""

from __future__ import annotations

import json
import selectors
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.peers import call, create_stream
from support.ports import free_ports
from support.process import BASIN, CONFIG, GatewayProcess, running_gateway

from penstock.cli import main

PATIENCE_SECONDS = 30.0


class Ended(NamedTuple):
    """The end of a command: its exit code, and all that it printed."""

    code: int
    out: bytes = b""
    err: bytes = b""


Run = Callable[..., Ended]


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with running_gateway() as running:
        yield running


def server(gateway: GatewayProcess) -> str:
    return f"s2://127.0.0.1:{gateway.s2_port}"


@pytest.fixture
def penstock(
    gateway: GatewayProcess,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Run a command in this process, with the gateway's S2 listener as its server, and `said` as its input."""
    monkeypatch.setenv("PENSTOCK_SERVER", server(gateway))

    def run(*words: str | Path, said: bytes = b"") -> Ended:
        given = tmp_path / "input"
        given.write_bytes(said)
        with given.open() as source, monkeypatch.context() as patched:
            patched.setattr(sys, "stdin", source)
            with pytest.raises(SystemExit) as end:
                main(list(map(str, words)), "penstock")
        assert isinstance(end.value.code, int)
        return Ended(end.value.code, *capfdbinary.readouterr())

    return run


def started(gateway: GatewayProcess, *words: str) -> subprocess.Popen[bytes]:
    """Start a command in a process of its own."""
    command = [sys.executable, "-m", "penstock", words[0], "--server", server(gateway), *words[1:]]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_append_and_read(penstock: Run) -> None:
    assert penstock("append", "first", said=b"a\nb\n") == Ended(0, err=b"appended 2 records: sequence numbers 0 to 1\n")
    assert penstock("append", "first", said=b"c") == Ended(0, err=b"appended 1 record: sequence number 2\n")
    assert penstock("append", "first") == Ended(0, err=b"appended nothing\n")
    assert penstock("read", f"{BASIN}/first") == Ended(0, out=b"a\nb\nc\n")
    assert penstock("read", "first", "--from", "-2", "--count", "1") == Ended(0, out=b"b\n")
    assert penstock("read", "first", "--from", "1", "--until", "2", "--format", "hex") == Ended(0, out=b"1 62\n")
    assert penstock("read", "first", "--from", "1h") == Ended(0, out=b"a\nb\nc\n")
    assert penstock("read", "first", "--from", "tail", "--count", "1") == Ended(0)


def test_what_is_read_as_json_is_appended_as_it_is(penstock: Run) -> None:
    """With headers and timestamps; and the acknowledgements are JSON, too."""
    written = b'{"body_base64":"/w==","headers":[{"name":"k","value":"v"}],"timestamp":1700000000000}\n'
    result = penstock("append", "json-1", "--format", "json", "--json", said=written)
    assert (result.code, json.loads(result.out)["end"]) == (0, {"seq_num": 1, "timestamp": 1700000000000})
    copied = penstock("read", "json-1", "--format", "json").out
    assert penstock("append", "json-2", "--format", "json", said=copied) == Ended(
        0, err=b"appended 1 record: sequence number 0\n"
    )
    again = penstock("read", "json-2", "--format", "json").out
    assert again == copied
    assert json.loads(again) == {**json.loads(written), "seq_num": 0}


def test_files(penstock: Run, tmp_path: Path) -> None:
    photo = tmp_path / "photo"
    photo.write_bytes(bytes(range(256)) * 2000)
    result = penstock("append", "files", photo, "--format", "whole", "--header", "type=image/png")
    assert result == Ended(0, err=b"appended 1 record: sequence number 0\n")
    read = penstock("read", "files", "--format", "length")
    assert read.out == len(photo.read_bytes()).to_bytes(4, "big") + photo.read_bytes()
    assert penstock("append", "copy", "--format", "length", said=read.out) == Ended(
        0, err=b"appended 1 record: sequence number 0\n"
    )


def test_streams_and_basins(penstock: Run, gateway: GatewayProcess) -> None:
    place = f"s2://127.0.0.1:{gateway.s2_port}/my-basin-1"
    assert penstock("create", "my-basin-1/", "--retention", "7d") == Ended(0, err=f"created {place}\n".encode())
    assert penstock("create", "my-basin-1/made", "--retention", "forever") == Ended(
        0, err=f"created {place}/made\n".encode()
    )
    assert penstock("streams", "my-basin-1") == Ended(0, out=b"my-basin-1/made\n")
    assert penstock("streams", "my-basin-1/x") == Ended(0)
    (line,) = penstock("streams", "my-basin-1/ma", "--json").out.splitlines()
    assert json.loads(line).keys() == {"basin", "stream", "created_at", "deleted_at"}
    assert b"my-basin-1/made\n" in penstock("streams").out
    assert penstock("delete", "my-basin-1/", "--yes") == Ended(0, err=f"deleted {place}\n".encode())
    assert penstock("streams", "my-basin-1") == Ended(1, err=b"Error: there is no basin 'my-basin-1'\n")


@pytest.fixture
def made(penstock: Run) -> str:
    penstock("append", "managed", said=b"a\nb\nc\n")
    return "managed"


def test_trim_and_delete(penstock: Run, made: str, gateway: GatewayProcess) -> None:
    place = f"s2://127.0.0.1:{gateway.s2_port}/{BASIN}/{made}"
    assert penstock("trim", made, "--before", "2") == Ended(0, err=f"trimmed {place}: the first record is 2\n".encode())
    read = penstock("read", made)
    assert read == Ended(0, out=b"c\n", err=b"left out 1 command record; --format json prints them\n")
    unconfirmed = penstock("delete", made)
    assert unconfirmed.code == 2 and b"only with --yes" in unconfirmed.err
    assert penstock("delete", made, "--yes") == Ended(0, err=f"deleted {place}\n".encode())
    assert penstock("read", made) == Ended(1, err=b"Error: there is no stream 'managed' in basin 'penstock'\n")


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("s3p", "s3p://127.0.0.1:{}/every"),
        ("segment", "segment://127.0.0.1:{}/penstock/every"),
        ("controller", "pravega://127.0.0.1:{}/penstock/every"),
    ],
)
def test_every_protocol(penstock: Run, gateway: GatewayProcess, kind: str, url: str) -> None:
    """Records that are appended through one protocol are read through the others."""
    there = url.format(getattr(gateway, f"{kind}_port")) + kind
    assert penstock("create", there) == Ended(0, err=f"created {there}\n".encode())
    assert penstock("append", there, said=b"a\nb\n") == Ended(0, err=b"appended 2 records: sequence numbers 0 to 1\n")
    assert penstock("read", there, "--from", "-1") == Ended(0, out=b"b\n")
    assert penstock("read", f"every{kind}") == Ended(0, out=b"a\nb\n")
    assert penstock("delete", there, "--yes") == Ended(0, err=f"deleted {there}\n".encode())
    assert penstock("read", f"every{kind}").code == 1


PLACES = {
    "s2": "s2://127.0.0.1:{}/penstock",
    "s3p": "s3p://127.0.0.1:{}",
    "durable": "durable://127.0.0.1:{}",
    "kafka": "kafka://127.0.0.1:{}",
    "pravega": "pravega://127.0.0.1:{}/penstock",
    "segment": "segment://127.0.0.1:{}/penstock",
}
WORDS = (["append"], ["read"], ["follow"], ["create"], ["delete", "--yes"], ["trim", "--before", "1"])
LISTED = ("s2://127.0.0.1:{}", PLACES["s2"], PLACES["kafka"], "pravega://127.0.0.1:{}", PLACES["pravega"])
"""Servers whose protocols can list streams."""


@pytest.mark.parametrize(
    ("url", "words"),
    [
        *((f"{place}/down", words) for place, words in zip(PLACES.values(), WORDS, strict=True)),
        *(
            pytest.param(f"{place}/down", words, marks=pytest.mark.slow)
            for number, place in enumerate(PLACES.values())
            for words in (*WORDS[:number], *WORDS[number + 1 :])
        ),
        *((place, ["streams"]) for place in LISTED),
    ],
)
def test_a_server_that_is_down(penstock: Run, url: str, words: list[str]) -> None:
    """The command names it in one line, and fails. Each protocol and each command has a turn; the other pairs are
    slow, as each waits for a second attempt."""
    [port] = free_ports(1)
    result = penstock(words[0], url.format(port), *words[1:], said=b"a\n")
    error = f"Error: 127.0.0.1:{port}: cannot connect: connection refused\n"
    last = result.err.decode().splitlines(keepends=True)[-1]
    assert (result.code, result.out, last) == (1, b"", error)


def test_the_streams_of_all_scopes(penstock: Run, gateway: GatewayProcess) -> None:
    """Also those of scopes that cannot be basins; without any scope there are none."""
    server = f"pravega://127.0.0.1:{gateway.controller_port}"
    for stream in ("telemetry/1", "Tiny/2"):
        penstock("create", f"{server}/{stream}")
    listed = penstock("streams", server)
    assert (listed.code, listed.err) == (0, b"")
    assert {b"telemetry/1", b"penstock/Tiny/2"} <= set(listed.out.splitlines())


FAR = """
[backs.far]
kind = "kafka"
address = "127.0.0.1:{port}"
basin = "far-basin-1"

[[store.basins]]
name = "far-basin-1"
"""
FAR_WITH_BASINS = """
[backs.far]
kind = "s2"
address = "127.0.0.1:{port}"
"""
ROUTES = """
[[routes]]
name = "far"
basin = "far-basin-1"
back = "far"

[[routes]]
name = "near"
"""


@pytest.mark.parametrize(("far", "missing"), [(FAR, b"basin far-basin-1"), (FAR_WITH_BASINS, b"back far")])
def test_streams_beside_a_back_that_is_down(penstock: Run, far: str, missing: bytes) -> None:
    [port] = free_ports(1)
    with running_gateway(CONFIG + far.format(port=port) + ROUTES) as running:
        create_stream(running.s2_port, BASIN, "near")
        answer = json.loads(call(running.management_port, "GET", "/streams"))
        assert [one["stream"] for one in answer["streams"]] == [f"{BASIN}/near"]
        [failed] = answer["failed"]
        assert failed["back"] == "far" and str(port) in failed["reason"]
        listed = penstock("streams", f"s2://127.0.0.1:{running.s2_port}")
    assert (listed.code, listed.out) == (1, f"{BASIN}/near\n".encode())
    assert missing + b": its streams are missing\n" in listed.err and b"back far at" in listed.err


def test_a_server_of_durable_streams(penstock: Run, gateway: GatewayProcess) -> None:
    """Streams that the command creates keep records apart; those of JSON are read message by message."""
    there = f"durable://127.0.0.1:{gateway.durable_port}/lines"
    assert penstock("create", there) == Ended(0, err=f"created {there}\n".encode())
    assert penstock("append", there, said=b"a\nb\n") == Ended(0, err=b"appended 2 records: sequence numbers 0 to 1\n")
    assert penstock("append", there, said=b"c\n") == Ended(0, err=b"appended 1 record: sequence number 2\n")
    assert penstock("read", there, "--from", "1") == Ended(0, out=b"b\nc\n")
    assert penstock("follow", there, "--from", "0", "--count", "2") == Ended(0, out=b"a\nb\n")
    assert penstock("delete", there, "--yes") == Ended(0, err=f"deleted {there}\n".encode())
    assert penstock("read", there).code == 1
    url = f"{gateway.durable_url}messages"
    headers = {"content-type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, b'[{"n": 1}]', headers, method="PUT"), timeout=20).close()
    messages = f"durable://127.0.0.1:{gateway.durable_port}/messages"
    assert penstock("append", messages, said=b"[2]\n").code == 0
    assert penstock("read", messages) == penstock("read", "messages") == Ended(0, out=b'{"n": 1}\n[2]\n')


def test_headers_that_a_protocol_cannot_carry(penstock: Run, gateway: GatewayProcess) -> None:
    there = f"s3p://127.0.0.1:{gateway.s3p_port}/without-headers"
    penstock("create", there)
    said = b'{"body":"a","headers":{"k":"v"}}'
    assert penstock("append", there, "--format", "json", said=said) == Ended(
        1, err=b"Error: record 1 of the batch has headers, which S3P cannot carry\n"
    )
    assert penstock("append", there, "--format", "json", "--loss", "envelope", said=said) == Ended(
        0, err=b"appended 1 record: sequence number 0\n"
    )
    read = penstock("read", there, "--format", "json", "--loss", "envelope").out
    assert json.loads(read)["headers"] == [{"name": "k", "value": "v"}]


@pytest.mark.slow
def test_following_until_interrupted(penstock: Run, gateway: GatewayProcess) -> None:
    penstock("create", "followed")
    with started(gateway, "follow", "followed") as follower:
        try:
            assert follower.stdout is not None
            ready = selectors.DefaultSelector()
            ready.register(follower.stdout, selectors.EVENT_READ)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not ready.select(0) and time.monotonic() < deadline:  # it begins where the tail is then
                penstock("append", "followed", said=b"x\n")
            assert follower.stdout.readline() == b"x\n"
            follower.send_signal(signal.SIGINT)
            assert follower.wait(PATIENCE_SECONDS) == 128 + signal.SIGINT
        finally:
            follower.kill()


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["read", "none"], 1, "there is no stream 'none' in basin 'penstock'"),
        (["read", "first", "--from", "9999"], 1, "nothing to read"),
        (["read", "first", "--from", "soon"], 2, "--from: 'soon' is no position: expected start, tail"),
        (["read", "first", "--until", "-1"], 2, "--until: '-1' is neither a sequence number nor a time"),
        (["read", "nope://h:1/x"], 2, "is no server"),
        (["append", "s2://127.0.0.1:1/penstock/x", "/dev/null"], 1, "Error: 127.0.0.1:1: cannot connect"),
        (["read", "s2://h:1/orders"], 2, "not 6; a stream there is called s2://h:1/BASIN/orders"),
        (["append", "first", "/dev/null", "--header", "x"], 2, "--header: expected NAME=VALUE, got 'x'"),
        (["append", ""], 2, "the name of a stream is missing"),
        (["create", "first", "--retention", "soon"], 2, "--retention"),
        (["create", "s2://127.0.0.1:1"], 2, "the name of a stream or basin is missing"),
        (["trim", "first", "--before", "-1"], 2, "--before: '-1'"),
        (["streams", "s3p://127.0.0.1:1"], 1, "127.0.0.1:1: S3P cannot list streams"),
        (["streams", "durable://127.0.0.1:1"], 1, "127.0.0.1:1: Durable Streams cannot list streams"),
        (["streams", "segment://127.0.0.1:1"], 1, "127.0.0.1:1: streams can be listed where a controller is"),
    ],
)
def test_errors(penstock: Run, words: list[str], code: int, error: str) -> None:
    """One line, and an exit code that says whose fault it is."""
    penstock("append", "first", said=b"a\n")
    result = penstock(*words)
    assert (result.code, result.out) == (code, b"")
    last = result.err.decode().splitlines()[-1]
    assert last.startswith("Error: ") and error in last


@pytest.mark.slow
def test_an_interrupted_append_says_what_is_on_disk(gateway: GatewayProcess) -> None:
    with started(gateway, "append", "interrupted", "--json") as running:
        try:
            assert running.stdin is not None and running.stdout is not None
            running.stdin.write(b"a\n")
            running.stdin.flush()
            assert json.loads(running.stdout.readline())["end"]["seq_num"] == 1
            running.send_signal(signal.SIGINT)
            _, errors = running.communicate(timeout=PATIENCE_SECONDS)
        finally:
            running.kill()
    assert (running.returncode, errors) == (128 + signal.SIGINT, b"appended 1 record: sequence number 0\n")
