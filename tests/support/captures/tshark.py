"""Captures made with the codecs, exported with their messages, and read by tshark with the dissector of
config/wireshark."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from support.captures import written
from support.peers import need

from penstock.capture.pcapng.events import (
    CaptureEvent,
    Chunk,
    Closed,
    Conversation,
    Opened,
    Sender,
    Side,
    SocketAddress,
)
from penstock.cli import main

__all__ = [
    "DISSECTOR",
    "Layer",
    "Said",
    "Talk",
    "as_user",
    "captured",
    "client_says",
    "cut",
    "exported",
    "layers",
    "need_tshark",
    "server_says",
    "tshark",
]

ROOT = Path(__file__).parents[3]
DISSECTOR = ROOT / "config" / "wireshark" / "penstock.lua"
PORTS = {"s2": 8080, "s3p": 7500, "segment": 12345, "controller": 9090, "": 4444}
SECONDS = 60.0

Said = tuple[Sender, bytes]


class Talk(NamedTuple):
    """A conversation: pieces in order, each in packets of its own. `port`: the server's, None for the usual one."""

    protocol: str
    pieces: Sequence[Said]
    port: int | None = None
    noted: bool = True
    """True if the comment names the protocol."""
    begins: bool = True
    """True if the recording includes the connection's first bytes."""
    ends: bool = True
    """True if both sides close the connection."""


def client_says(*pieces: bytes) -> list[Said]:
    return [(Sender.CLIENT, piece) for piece in pieces]


def server_says(*pieces: bytes) -> list[Said]:
    return [(Sender.SERVER, piece) for piece in pieces]


def cut(said: Iterable[Said], size: int) -> list[Said]:
    """Return the same bytes in pieces of at most `size` bytes, with the sides in the same order."""
    pieces: list[Said] = []
    for sender, run in itertools.groupby(said, key=lambda piece: piece[0]):
        whole = b"".join(data for _, data in run)
        pieces += [(sender, whole[at : at + size]) for at in range(0, len(whole), size)]
    return pieces


def _events(talks: Sequence[Talk]) -> Iterator[CaptureEvent]:
    time_ns = 1_790_000_000_000_000_000
    for number, talk in enumerate(talks, 1):
        protocol = talk.protocol if talk.noted else ""
        server = SocketAddress("127.0.0.1", talk.port or PORTS[talk.protocol])
        client = SocketAddress("127.0.0.1", 40_000 + number)
        conversation = Conversation(number, client, server, Side.FRONT, f"listeners.{number}", protocol, run="tests")
        offsets = dict.fromkeys(Sender, 0 if talk.begins else 1000)
        yield Opened(conversation, time_ns, offsets[Sender.CLIENT], offsets[Sender.SERVER], continued=not talk.begins)
        for sender, data in talk.pieces:
            time_ns += 1_000_000
            yield Chunk(conversation, time_ns, sender, offsets[sender], data)
            offsets[sender] += len(data)
        for sender in Sender if talk.ends else ():
            yield Closed(conversation, time_ns, sender)


def captured(path: Path, *talks: Talk) -> Path:
    """Return an exported capture of conversations, one after the other, numbered from 1; the directory must exist."""
    recorded = path.with_suffix(".recorded")
    recorded.write_bytes(written(_events(talks)))
    return exported(recorded, path)


def exported(recorded: Path, path: Path) -> Path:
    """Return a file with a recording as `penstock export` writes it for Wireshark."""
    result = CliRunner().invoke(main, ["export", "--to", "pcapng", str(recorded), "-o", str(path)])
    assert result.exit_code == 0, result.output
    return path


def need_tshark() -> str:
    """Return the path of tshark; skips the test if it is missing."""
    return need("tshark")


def as_user(*command: str) -> list[str]:
    """Return the command as an ordinary user would run it, with the files of this one: for root, tshark ignores
    WIRESHARK_EXTCAP_DIR. Skips the test if the system has no namespaces for users."""
    if os.geteuid() != 0:
        return list(command)
    become = [need("unshare"), "--user", "--map-user=1000", "--map-group=1000"]
    if subprocess.run([*become, "true"], capture_output=True, timeout=SECONDS, check=False).returncode != 0:
        pytest.skip("this system lets root make no namespace for users")
    return [*become, *command]


def tshark(capture: Path, *arguments: str, dissector: bool = True) -> str:
    """Run tshark and return what it prints. Output on stderr is a failure, except its warning to administrators."""
    command = [need_tshark(), "-n", "-r", str(capture), *arguments]
    if dissector:
        command += ["-X", f"lua_script:{DISSECTOR}"]
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
        """Return all values of a field."""
        return [value for key, value in self.fields if key == name]

    def one(self, name: str) -> str:
        """Return the field's only value."""
        (value,) = self.all(name)
        return value


ERROR_SEVERITY = 8388608
OUTER = ("http", "http2")
"""Others stand inside these."""


def layers(capture: Path, *protocols: str, arguments: Sequence[str] = (), legal: bool = True) -> list[Layer]:
    """Return the layers of some protocols that tshark decodes, in order.

    Fails for errors of Lua, malformed packets, and expert information of these protocols with severity error. `legal`
    False: messages may break rules of their protocol, as far as Penstock says so.
    """
    shown = " ".join(("frame", "penstock", "_ws.malformed", *OUTER, *protocols))
    text = tshark(capture, "-T", "pdml", "-J", shown, *arguments)
    assert "Lua Error" not in text, re.findall('Lua Error[^"]*', text)[:3]
    found = []
    for packet in ElementTree.fromstring(text).iter("packet"):
        fields = {field.get("name", ""): field.get("show", "") for field in packet.iter("field")}
        if legal or "penstock.malformed" not in fields:
            assert not [layer for layer in packet.iter("proto") if layer.get("name") == "_ws.malformed"]
            assert fields.get("_ws.expert.severity") != str(ERROR_SEVERITY), ElementTree.tostring(packet)
        for layer in packet.iter("proto"):
            if layer.get("name") in protocols:
                values = [(field.get("name", ""), field.get("show", "")) for field in layer.iter("field")]
                frame, talk = int(fields["frame.number"]), int(fields.get("penstock.connection", "1")) - 1
                found.append(Layer(frame, talk, layer.get("name", ""), values))
    return found
