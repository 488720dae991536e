"""Gateways that record, the servers behind them, and clients that talk without a pause."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from support.captures.recording import capture_files, read_file, tshark_warnings
from support.process import CONFIG, GatewayProcess, running_gateway
from support.real_backs import SecondPenstock
from support.relay import Relay, recorded
from support.s3p.client import S3PClient

from penstock.capture.dialogue import Message, Problem
from penstock.capture.dialogue.dialogues import Dialogues
from penstock.capture.pcapng import CaptureEvent, Conversation, Sender, Side
from penstock.recorder.captures.opening import CaptureEvents

__all__ = [
    "MANAGEMENT",
    "RECORDED",
    "Talking",
    "before_servers",
    "captured",
    "check",
    "configuration",
    "heard_in",
    "recording",
    "until",
]

RECORDER = """
[recorder]
directory = "{data}/recordings"
start = {start}
[recorder.redact]
headers = []
parameters = []
tokens = false
"""
"""Nothing is blanked, so that all can be compared."""
MANAGEMENT = '[management]\nbind = "127.0.0.1:0"\n'


RECORDED = RECORDER.replace("{start}", "true")


def configuration(start: bool, more: str = "") -> str:
    return CONFIG + MANAGEMENT + (RECORDED if start else RECORDER.replace("{start}", "false")) + more


@contextmanager
def recording(directory: Path, config: str = CONFIG) -> Iterator[GatewayProcess]:
    """A gateway that records from the start; the recording is whole behind it."""
    with running_gateway(config, arguments=("--record", str(directory))) as gateway:
        yield gateway
        gateway.terminate()


def heard_in(directory: Path, protocol: str, side: Side = Side.FRONT) -> tuple[list[Message], list[Problem]]:
    """Messages and problems of the conversations in a protocol on one side, in a recording without damage."""
    dialogues = Dialogues(lambda conversation: (conversation.protocol, conversation.side) == (protocol, side))
    captures = CaptureEvents([directory])
    heard = [each for event in captures for each in dialogues.receive(event)]
    heard += dialogues.end()
    assert not captures.warnings
    messages = [each for each in heard if isinstance(each, Message)]
    return messages, [each for each in heard if isinstance(each, Problem)]


def captured(gateway: GatewayProcess, prefix: str = "penstock-2") -> list[CaptureEvent]:
    """All that is in the files of a recording; those that began from the start have the date behind their prefix."""
    files = [path for path in capture_files(gateway.data / "recordings") if path.name.startswith(prefix)]
    assert files, "nothing was recorded"
    for path in files:
        assert path.stat().st_mode & 0o777 == 0o600
        if warnings := tshark_warnings(path):
            raise AssertionError(f"{path}: {warnings}")
    return [event for path in files for event in read_file(path)]


def check(relays: list[Relay], events: list[CaptureEvent], side: Side) -> list[Conversation]:
    """Every relayed connection was recorded whole; gives the conversations, in order."""
    seen = {conversation: said for conversation, said in recorded(events).items() if conversation.side is side}
    found = []
    for relay in relays:
        relay.settle()
        for one in relay.connections:
            end = one.near if side is Side.BACK else one.far
            (conversation,) = [each for each in seen if each.client == end]
            for sender in Sender:
                offset, said = seen[conversation][sender]
                assert offset == 0
                assert said == bytes(one.said[sender]), (conversation, sender)
            found.append(conversation)
    assert len(found) == len(seen), "and nothing else"
    return found


BACKS = """
[backs.lite]
kind = "s2"
address = "127.0.0.1:{s2}"
http = "h2"
[backs.legacy]
kind = "s3p"
address = "127.0.0.1:{s3p}"
create_streams = true
[backs.legacy.loss]
headers = "envelope"
[backs.pravega]
kind = "segment"
address = "127.0.0.1:{segment}"
create_streams = true
[[routes]]
name = "legacy"
stream = "by-s3p"
back = "legacy"
[[routes]]
name = "pravega"
stream = "by-curl"
back = "pravega"
[[routes]]
name = "lite"
back = "lite"
"""


@contextmanager
def before_servers(start: bool) -> Iterator[tuple[GatewayProcess, list[Relay]]]:
    """A gateway before a second one, which it reaches by relays as S2, as S3P and as a segment store."""
    with SecondPenstock("s2") as server, contextlib.ExitStack() as stack:
        backs, relays = BACKS, []
        for kind in ("s2", "s3p", "segment"):
            relays.append(stack.enter_context(Relay(getattr(server.process, f"{kind}_port"))))
            backs = backs.replace(f"{{{kind}}}", str(relays[-1].port))
        yield stack.enter_context(GatewayProcess(configuration(start, backs))), relays


class Talking:
    """A client that appends to a stream without a pause, by a relay."""

    def __init__(self, port: int, stream: str) -> None:
        self.relay = Relay(port)
        self.stream = stream
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._talk, daemon=True)
        self._thread.start()

    def _talk(self) -> None:
        client = S3PClient(("127.0.0.1", self.relay.port))
        client.create(self.stream)
        while not self._stop.wait(0.002):
            client.append(self.stream, b"body of " + self.stream.encode())
        client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)
        self.relay.settle()

    def check(self, events: list[CaptureEvent]) -> Conversation:
        """Check that the recorded bytes equal the relayed ones, and return the conversation."""
        (relayed,) = self.relay.connections
        (conversation,) = [one for one in recorded(events) if one.client == relayed.far]
        for sender, (offset, said) in recorded(events)[conversation].items():
            assert len(said) > 100
            assert said == bytes(relayed.said[sender][offset : offset + len(said)])
        return conversation


def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not come to pass")
