"""Decoded traffic as JSON lines for the page: the same messages that `penstock tail` lists.

    {"time": ms since the epoch, "connection": 7, "sender": "client", "layer": "s3p", "kind": "APPEND",
     "stream": "orders", "length": 61, "state": "", "failure": "", "said": "records=2", "bodies": ["first", "second"]}

A problem has the kind `problem`, and its rule as its failure. `detail` is the whole message, as `penstock show --json
--details` prints it, with long texts and lists cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from penstock.app.management.mcp.tool import bounded
from penstock.capture.dialogue import Message, Problem
from penstock.capture.dialogue.dialogues import Dialogues
from penstock.capture.pcapng import CaptureEvent, Conversation, Sender
from penstock.recorder.captures.choosing import CaptureFilter
from penstock.recorder.captures.inspecting import Inspector
from penstock.recorder.captures.lines import as_json
from penstock.recorder.captures.text import duration, fields_text, printable, shortened

__all__ = ["DecodedWriter"]

_MOST_CONVERSATIONS: Final = 2000
"""Most conversations that are remembered; beyond it, the longest silent ones are forgotten."""
_MOST_NAME: Final = 200
_MOST_SAID: Final = 240
_MOST_BODIES: Final = 3
_MOST_BODY: Final = 80


class DecodedWriter:
    """See `penstock.recorder.live.LiveWriter`."""

    def __init__(self, choice: CaptureFilter) -> None:
        self._choice = choice
        self._dialogues = Dialogues(choice.conversation, most=_MOST_CONVERSATIONS)
        self._inspector = Inspector()

    def begin(self) -> Sequence[bytes]:
        """Return nothing: no header precedes the lines."""
        return ()

    def encode(self, event: CaptureEvent) -> Sequence[bytes]:
        """Return a line for each wanted message or problem that the event completes."""
        self._inspector.receive(event)
        return list(self._lines(event))

    def _lines(self, event: CaptureEvent) -> Iterable[bytes]:
        for item in self._dialogues.receive(event):
            if self._choice.accepts(item):
                line = _problem(item) if isinstance(item, Problem) else _message(item)
                detail = bounded(self._inspector.inspect(item))
                yield as_json(line | {"detail": detail}).encode() + b"\n"
            self._inspector.add(item)


def _of(conversation: Conversation, time_ns: int, sender: Sender) -> dict[str, Any]:
    return {
        "time": time_ns / 1_000_000,
        "connection": conversation.number,
        "name": conversation.name,
        "sender": sender.value,
    }


def _message(message: Message) -> dict[str, Any]:
    bodies = [_text(record.body[: 4 * _MOST_BODY]) for record in message.own_records[:_MOST_BODIES]]
    return _of(message.conversation, message.end_ns, message.sender) | {
        "layer": message.layer,
        "kind": _short(message.kind),
        "stream": _short(message.stream),
        "length": message.length,
        "exchange": message.exchange,
        "answered": duration(message.answers),
        "state": message.state,
        "failure": shortened(printable(message.failure), _MOST_SAID),
        "said": shortened(fields_text({"withheld_bytes": message.withheld or None, **message.fields}), _MOST_SAID),
        "records": len(message.own_records),
        "bodies": bodies,
    }


def _problem(problem: Problem) -> dict[str, Any]:
    rule = f"{problem.rule} ({problem.clause})" if problem.clause else problem.rule
    return _of(problem.conversation, problem.time_ns, problem.sender) | {
        "layer": problem.conversation.protocol,
        "kind": "problem",
        "stream": "",
        "length": 0,
        "exchange": problem.exchange,
        "answered": "",
        "state": "",
        "failure": shortened(printable(f"byte {problem.offset}: {rule}"), _MOST_SAID),
        "said": "",
        "records": 0,
        "bodies": [],
    }


def _short(text: str) -> str:
    return shortened(printable(text), _MOST_NAME)


def _text(data: bytes) -> str:
    return shortened(printable(data.decode(errors="backslashreplace")), _MOST_BODY)
