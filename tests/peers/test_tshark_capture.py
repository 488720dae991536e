"""Wireshark opens what we write without a warning, and we read what its programs write."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.captures import NOW_NS, by_side, conversation, read, story, written
from support.peers import need

from penstock.capture.pcapng import (
    CaptureEvent,
    Chunk,
    Closed,
    Conversation,
    Noted,
    Opened,
    Sender,
    Side,
    SocketAddress,
)

pytestmark = pytest.mark.peer

CLIENT, SERVER = Sender.CLIENT, Sender.SERVER


def tshark(*arguments: str | Path) -> str:
    """Run tshark and return its standard output; its warnings (about root, say) go to standard error."""
    done = subprocess.run(
        [need("tshark"), "-n", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def talk(
    one: Conversation, offsets: tuple[int, int] = (0, 0), rounds: int = 3, size: int = 100_000
) -> list[CaptureEvent]:
    """Questions and large answers, with notes between."""
    asked, answered = offsets
    events: list[CaptureEvent] = [Opened(one, NOW_NS, *offsets), Noted(one, NOW_NS, "route", "orders")]
    for turn in range(rounds):
        question, answer = b"question %d of %d\n" % (turn, one.number), bytes([turn]) * size
        time_ns = NOW_NS + turn * 1_000_000
        events.append(Chunk(one, time_ns, CLIENT, asked, question))
        events.append(Noted(one, time_ns, "stream", f"a stream, {turn}"))
        events.append(Chunk(one, time_ns + 1, SERVER, answered, answer))
        asked, answered = asked + len(question), answered + size
    return events


def ends(one: Conversation, reset: bool = False) -> list[CaptureEvent]:
    if reset:
        return [Closed(one, NOW_NS + 10**9, SERVER, reset=True)]
    return [Closed(one, NOW_NS + 10**9, CLIENT), Closed(one, NOW_NS + 10**9 + 1, SERVER)]


def interleaved(lines: Sequence[list[CaptureEvent]]) -> list[CaptureEvent]:
    longest = max(map(len, lines))
    return [line[place] for place in range(longest) for line in lines if place < len(line)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[CaptureEvent]]:
    """Large, IPv6, sequence numbers that begin anew, from the middle, FIN and RST; all at once."""
    plain, six, wraps, reset, left, back = (
        conversation(1),
        conversation(2, "2001:db8::1"),
        conversation(3),
        conversation(4),
        conversation(5, "::1"),
        Conversation(
            6, SocketAddress("10.0.0.1", 9), SocketAddress("10.0.0.2", 80), Side.BACK, "backs.lite", "s2", tls=True
        ),
    )
    streaming = [Chunk(back, NOW_NS, SERVER, place * 60_000, bytes(60_000)) for place in range(100)]
    events = interleaved(
        [
            [*talk(plain), *ends(plain)],
            [*talk(six, rounds=20), *ends(six)],
            [*talk(wraps, (2**32 - 20, 7 * 2**32 - 150_000)), *ends(wraps)],
            [*talk(reset), *ends(reset, reset=True)],
            [*talk(left, (5, 0))],
            [Opened(back, NOW_NS), *streaming, *ends(back)],
        ]
    )
    path = tmp_path_factory.mktemp("captures") / "written.pcapng"
    path.write_bytes(written(events))
    return path, events


NOTED = "_ws.expert.severity >= 0x400000 && tcp.flags.fin == 0 && tcp.flags.reset == 0"
"""Notes and worse; that a connection ends is one."""


@pytest.mark.parametrize("filter_", ["tcp.analysis.flags", "_ws.malformed", NOTED])
def test_wireshark_has_no_complaint(recorded: tuple[Path, list[CaptureEvent]], filter_: str) -> None:
    path, _ = recorded
    assert len(tshark("-r", path).splitlines()) > 200
    assert tshark("-r", path, "-o", "ip.check_checksum:TRUE", "-Y", filter_) == ""


def test_wireshark_follows_the_very_bytes(recorded: tuple[Path, list[CaptureEvent]]) -> None:
    path, events = recorded
    listed = tshark(
        "-r", path, "-T", "fields", "-e", "tcp.stream", "-e", "frame.comment", "-Y", "frame.comment contains side"
    )
    streams = {int(line.split("connection=")[1].split()[0]): line.split("\t")[0] for line in listed.splitlines()}
    assert sorted(streams) == [1, 2, 3, 4, 5, 6]
    for number, stream in streams.items():
        if number == 6:  # megabytes of zeros
            continue
        printed = tshark("-q", "-r", path, "-z", f"follow,tcp,raw,{stream}").splitlines()[6:-1]
        sides = by_side([event for event in events if event.conversation.number == number])
        assert bytes.fromhex("".join(line for line in printed if line[0] != "\t")) == sides[CLIENT]
        assert bytes.fromhex("".join(line[1:] for line in printed if line[0] == "\t")) == sides[SERVER]


def test_wireshark_shows_the_notes(recorded: tuple[Path, list[CaptureEvent]]) -> None:
    path, _ = recorded
    fields = ("-T", "fields", "-e", "frame.comment")
    assert tshark("-r", path, *fields, "-Y", 'frame.comment contains "connection=4 "').splitlines() == [
        "penstock connection=4 side=front name=listeners.s2 protocol=s2 tls=no run=run-1 client_offset=0 "
        "server_offset=0",
        "penstock connection=4 route=orders",
        *(f'penstock connection=4 stream="a stream, {turn}"' for turn in range(3)),
    ]


def test_wireshark_knows_directions_interfaces_and_times(recorded: tuple[Path, list[CaptureEvent]]) -> None:
    path, _ = recorded
    fields = ["frame.time_epoch", "frame.interface_name", "frame.packet_flags_direction", "tcp.window_size"]
    arguments = [word for field in fields for word in ("-e", field)]
    lines = tshark("-r", path, "-T", "fields", *arguments, "-Y", "tcp.len == 16 && tcp.stream == 0").splitlines()
    assert lines[1].split("\t") == ["1700000000.124456789", "listeners.s2", "0x00000001", str(65_535 << 14)]
    back = tshark("-r", path, "-T", "fields", *arguments[2:6], "-Y", "ip.src == 10.0.0.1").splitlines()
    assert set(back) == {"backs.lite\t0x00000002"}


@pytest.mark.parametrize("kind", ["pcapng", "pcap", "nsecpcap"])
def test_what_wireshark_saves_says_the_same(
    recorded: tuple[Path, list[CaptureEvent]], kind: str, tmp_path: Path
) -> None:
    """With its comments as pcapng; else by TCP alone."""
    path, events = recorded
    saved = tmp_path / "saved"
    subprocess.run([need("editcap"), "-F", kind, path, saved], check=True, timeout=60)
    found = read(saved.read_bytes(), range(0, 40_000_000, 1_000_000))
    if kind == "pcapng":
        assert story(found) == story(events)
        return
    told = {lines[1][2][:18]: lines for lines in story(found).values()}
    for lines in story(events).values():
        again = told[lines[1][2][:18]]
        assert [line[2] for line in again if isinstance(line[0], Sender)] == [
            line[2] for line in lines if isinstance(line[0], Sender)
        ]


def test_what_dumpcap_captures_on_loopback(tmp_path: Path) -> None:
    """Real TCP, with packets that the system makes larger than any link would."""
    path = tmp_path / "captured.pcapng"
    need("dumpcap")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        capturing = subprocess.Popen(
            ["dumpcap", "-q", "-i", "lo", "-f", f"tcp port {port}", "-w", str(path)], stderr=subprocess.PIPE, text=True
        )
        with capturing:
            try:
                assert capturing.stderr is not None
                said = []
                for line in capturing.stderr:
                    said.append(line)
                    if line.startswith("File:"):
                        break
                else:
                    pytest.skip(f"dumpcap cannot capture here: {''.join(said).strip()}")
                sent, answered = exchange(listener, port)
                wait_for(path, b"the end")
            finally:
                capturing.terminate()
    (lines,) = story(read(path.read_bytes())).values()
    sides = {sender: b"".join(line[2] for line in lines if line[0] is sender) for sender in Sender}
    assert sides == {CLIENT: sent, SERVER: answered}
    assert lines[0] == ("opened", 0, 0, False)


def exchange(listener: socket.socket, port: int) -> tuple[bytes, bytes]:
    """Bytes both ways at once; the server says `the end` last."""
    sent, answered = os.urandom(300_000), os.urandom(500_000) + b"the end"

    def serve() -> None:
        accepted, _ = listener.accept()
        with accepted:
            left = len(sent)
            while left:
                left -= len(accepted.recv(65_536))
            accepted.sendall(answered)

    server = threading.Thread(target=serve)
    server.start()
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(sent)
        while client.recv(65_536):
            pass
    server.join()
    return sent, answered


def wait_for(path: Path, words: bytes) -> None:
    """Until dumpcap has written them."""
    while words not in path.read_bytes():
        pass


def test_what_others_merge(recorded: tuple[Path, list[CaptureEvent]], tmp_path: Path) -> None:
    """Two files of one conversation, put together by mergecap: several interfaces, one of each file."""
    path, events = recorded
    merged = tmp_path / "merged.pcapng"
    subprocess.run([need("mergecap"), "-a", "-w", merged, path, path], check=True, timeout=60)
    twice = read(merged.read_bytes(), range(0, 80_000_000, 1_000_000))
    assert sum(isinstance(event, Opened) for event in twice) == 12
    whole = sum(len(event.data) for event in events if isinstance(event, Chunk))
    assert sum(len(event.data) for event in twice if isinstance(event, Chunk)) == 2 * whole
