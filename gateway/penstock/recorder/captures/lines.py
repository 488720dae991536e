"""JSON lines for messages, problems and records of a capture, with the text forms of times and bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import orjson

from penstock.model.records import Headers

if TYPE_CHECKING:
    from penstock.capture.dialogue import Message, Problem, SeenRecord
    from penstock.capture.dialogue.summaries import Summary
    from penstock.capture.pcapng import Conversation

__all__ = [
    "as_json",
    "conversation_keys",
    "headers_in_text",
    "in_text",
    "message_line",
    "problem_line",
    "record_line",
    "summary_line",
    "utc",
]

_LAST_SECOND: Final = 253_402_300_799
"""The last second of the year 9999; captures may claim later times."""


def as_json(line: Mapping[str, Any]) -> str:
    """Return one line of JSON."""
    try:
        return orjson.dumps(line, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):  # integers beyond 64 bits, or strings that are not UTF-8
        return json.dumps(line, separators=(",", ":"), default=str)


def utc(time_ns: int) -> str:
    """Return a time in RFC 3339 format, in microseconds."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(min(seconds, _LAST_SECOND), UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:06}Z"


def in_text(name: str, data: bytes) -> dict[str, str]:
    """Return bytes as text under `name`, or as base64 under `<name>_base64` if they are not UTF-8."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def headers_in_text(headers: Headers) -> list[dict[str, str]]:
    """Return headers as objects with `name` and `value`, each as `in_text` returns it."""
    return [{**in_text("name", name), **in_text("value", value)} for name, value in headers]


def conversation_keys(conversation: Conversation) -> dict[str, Any]:
    """Return the keys that identify a conversation."""
    keys = {"connection": conversation.number, "run": conversation.run, "name": conversation.name}
    return {name: value for name, value in keys.items() if value != ""}


def message_line(message: Message) -> dict[str, Any]:
    """Return a message with its fields, and the numbers of its own records and of those that it settles."""
    line = {
        "type": "message",
        "time": utc(message.end_ns),
        **conversation_keys(message.conversation),
        "sender": message.sender.value,
        "layer": message.layer,
        "kind": message.kind,
        "stream": message.stream,
        "exchange": message.exchange,
        "offset": message.offset,
        "length": message.length,
        "start_ns": message.start_ns,
        "end_ns": message.end_ns,
        "answer_ns": message.answers,
        "state": message.state,
        "failure": message.failure,
        "records": len(message.own_records),
        "settled": (len(message.records) if message.records and not message.own_records else 0) or None,
        "withheld_bytes": message.withheld or None,
        "fields": message.fields,
    }
    return {name: value for name, value in line.items() if value is not None and value != ""}


def problem_line(problem: Problem) -> dict[str, Any]:
    """Return a problem with its bytes."""
    line = {
        "type": "problem",
        "time": utc(problem.time_ns),
        **conversation_keys(problem.conversation),
        "sender": problem.sender.value,
        "exchange": problem.exchange,
        "offset": problem.offset,
        "rule": problem.rule,
        "clause": problem.clause,
        "fatal": problem.fatal,
        "withheld_bytes": problem.withheld or None,
        "context_offset": problem.context_offset,
        "context_hex": problem.context.hex(),
    }
    return {name: value for name, value in line.items() if value is not None and value != ""}


def record_line(record: SeenRecord) -> dict[str, Any]:
    """Return a record; its body and headers are text where they are UTF-8."""
    line: dict[str, Any] = {
        "action": record.action,
        "stream": record.stream,
        "seq_num": record.seq_num,
        "timestamp": record.timestamp,
        "record_id": record.record_id,
        "offset": record.offset,
        **in_text("body", record.body),
    }
    if record.headers:
        line["headers"] = headers_in_text(record.headers)
    if not record.acknowledged:
        line["acknowledged"] = False
    if record.failure:
        line["failure"] = record.failure
    line["time"] = utc(record.time_ns)
    if record.conversation is not None:
        line |= conversation_keys(record.conversation)
    return {name: value for name, value in line.items() if value is not None}


def summary_line(summary: Summary) -> dict[str, Any]:
    """Return the summary of a conversation."""
    from penstock.capture.pcapng import Sender  # other lines need no captures

    conversation = summary.conversation
    return {
        "type": "conversation",
        **conversation_keys(conversation),
        "side": conversation.side.value,
        "protocol": conversation.protocol,
        "tls": conversation.tls,
        "client": str(conversation.client),
        "server": str(conversation.server),
        "time": utc(summary.start_ns),
        "duration_ns": summary.end_ns - summary.start_ns,
        "client_bytes": summary.sent[Sender.CLIENT],
        "server_bytes": summary.sent[Sender.SERVER],
        "lost_bytes": summary.lost,
        "whole": summary.whole,
        "messages": summary.messages,
        "problems": summary.problems,
        "failures": summary.failures,
        "ended": summary.ended,
        **summary.notes,
    }
