"""Captures made of what codecs say, and tshark with the dissectors of config/wireshark reading them."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from support.peers import need

from penstock_codecs.capture.events import CaptureEvent, Chunk, Closed, Conversation, Endpoint, Opened, Sender, Side
from penstock_codecs.capture.writing import CaptureWriter

__all__ = [
    "DISSECTORS",
    "Layer",
    "Said",
    "Talk",
    "captured",
    "client_says",
    "cut",
    "faults",
    "layers",
    "need_tshark",
    "server_says",
    "tshark",
]

ROOT = Path(__file__).parents[2]
DISSECTORS = ROOT / "config" / "wireshark" / "penstock.lua"
PORTS = {"s2": 8080, "s3p": 7500, "segment": 12345, "controller": 9090, "": 4444}
SECONDS = 60.0

Said = tuple[Sender, bytes]


class Talk(NamedTuple):
    """A conversation: pieces in order, each in packets of its own. `port`: the server's, None for the usual one."""

    protocol: str
    pieces: Sequence[Said]
    port: int | None = None
    noted: bool = True
    """Whether the comment says which protocol it is."""
    begins: bool = True
    """Whether the recording has the connection's first bytes."""


def client_says(*pieces: bytes) -> list[Said]:
    return [(Sender.CLIENT, piece) for piece in pieces]


def server_says(*pieces: bytes) -> list[Said]:
    return [(Sender.SERVER, piece) for piece in pieces]


def cut(said: Iterable[Said], size: int) -> list[Said]:
    """The same in pieces of so many bytes, one side after the other as before."""
    pieces: list[Said] = []
    for sender, run in itertools.groupby(said, key=lambda piece: piece[0]):
        whole = b"".join(data for _, data in run)
        pieces += [(sender, whole[at : at + size]) for at in range(0, len(whole), size)]
    return pieces


def _events(talks: Sequence[Talk]) -> Iterator[CaptureEvent]:
    time_ns = 1_790_000_000_000_000_000
    for number, talk in enumerate(talks, 1):
        protocol = talk.protocol if talk.noted else ""
        server = Endpoint("127.0.0.1", talk.port or PORTS[talk.protocol])
        client = Endpoint("127.0.0.1", 40_000 + number)
        conversation = Conversation(number, client, server, Side.FRONT, f"listeners.{number}", protocol, run="tests")
        offsets = dict.fromkeys(Sender, 0 if talk.begins else 1000)
        yield Opened(conversation, time_ns, offsets[Sender.CLIENT], offsets[Sender.SERVER], continued=not talk.begins)
        for sender, data in talk.pieces:
            time_ns += 1_000_000
            yield Chunk(conversation, time_ns, sender, offsets[sender], data)
            offsets[sender] += len(data)
        for sender in Sender:
            yield Closed(conversation, time_ns, sender)


def captured(path: Path, *talks: Talk) -> Path:
    """A capture file of conversations, one after the other, numbered from 1; the directory must exist."""
    writer = CaptureWriter("tests")
    pieces = list(writer.begin())
    for event in _events(talks):
        pieces += [bytes(piece) for piece in writer.encode(event)]
    path.write_bytes(b"".join(pieces))
    return path


def need_tshark() -> str:
    """The program, or a visible skip."""
    return need("tshark", "apt-get install tshark")


def tshark(capture: Path, *arguments: str, dissectors: bool = True) -> str:
    """What tshark prints. Whatever it says on stderr, but for its warning to administrators, is a failure."""
    command = [need_tshark(), "-n", "-r", str(capture), *arguments]
    if dissectors:
        command += ["-X", f"lua_script:{DISSECTORS}"]
    environment = {**os.environ, "HOME": str(capture.parent), "LC_ALL": "C.UTF-8"}
    run = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False, env=environment)
    said = [line for line in run.stderr.decode().splitlines() if 'user "root"' not in line]
    assert run.returncode == 0 and not said, f"{command}: {run.returncode}\n" + "\n".join(said)
    return run.stdout.decode(errors="replace")


class Layer(NamedTuple):
    """One protocol in a frame, as tshark decoded it. `fields`: (name, value) in order; `talk` counts from 0."""

    frame: int
    talk: int
    protocol: str
    fields: list[tuple[str, str]]

    def all(self, name: str) -> list[str]:
        """All values of a field."""
        return [value for key, value in self.fields if key == name]

    def one(self, name: str) -> str:
        """The field's only value."""
        (value,) = self.all(name)
        return value


def faults(capture: Path, field: str) -> int:
    """In how many frames a field is, after nothing in the whole capture was an error of Lua, in either pass."""
    for arguments in (["-V"], ["-V", "-2", "-R", "tcp"]):
        text = tshark(capture, *arguments)
        assert "Lua Error" not in text, re.findall("Lua Error.*", text)[:3]
    return len(tshark(capture, "-Y", field).splitlines())


ERROR_SEVERITY = 8388608
OUTER = ("http", "http2")
"""Others stand inside these."""


def layers(capture: Path, *protocols: str, arguments: Sequence[str] = ()) -> list[Layer]:
    """What tshark decodes of some protocols, in order. Fails for errors of Lua, and where anything is malformed, or an
    expert info of these protocols is an error.
    """
    shown = " ".join(("frame", "penstock", "_ws.malformed", *OUTER, *protocols))
    text = tshark(capture, "-T", "pdml", "-J", shown, *arguments)
    assert "Lua Error" not in text, re.findall('Lua Error[^"]*', text)[:3]
    found = []
    for packet in ElementTree.fromstring(text).iter("packet"):
        fields = {field.get("name", ""): field.get("show", "") for field in packet.iter("field")}
        assert not [layer for layer in packet.iter("proto") if layer.get("name") == "_ws.malformed"]
        assert fields.get("_ws.expert.severity") != str(ERROR_SEVERITY), ElementTree.tostring(packet)
        for layer in packet.iter("proto"):
            if layer.get("name") in protocols:
                values = [(field.get("name", ""), field.get("show", "")) for field in layer.iter("field")]
                frame, talk = int(fields["frame.number"]), int(fields.get("penstock.connection", "1")) - 1
                found.append(Layer(frame, talk, layer.get("name", ""), values))
    return found
