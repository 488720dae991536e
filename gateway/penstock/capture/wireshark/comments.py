"""Decoded messages as text in comments of packets, which `config/wireshark/penstock.lua` shows in Wireshark.

A comment begins with the line `penstock decoded`. Each message is a line with its protocol and a summary, and one line
for each of its fields: a space for each level of the tree, the name, and `=` with the value if it has one.

    penstock decoded
    s3p APPEND orders 1 record
     command=APPEND
     name=orders
     records=1
     record=6f6e65
     @sent=3:1790000000000000000

A field's name in filters is the protocol and the names on the way to it: `s3p.record`. Bytes are hex digits. `@sent` of
a request and `@asked` of its response have the same value, by which Wireshark links the two.

A plug-in says which names there are and of which kinds (`WiresharkProtocol`); the table in the Lua file is generated
from that. Messages of other protocols are shown by their dialogue's fields, except those of HTTP itself, which
Wireshark decodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final
from uuid import UUID

from penstock.capture.dialogue.messages import Message, Problem
from penstock.capture.pcapng import Sender
from penstock.capture.plugin import HTTP, plugins
from penstock.capture.wireshark.fields import FieldKind, Shown, WiresharkProtocol
from penstock.model.limits import MIB

__all__ = ["DECODED_MARK", "comments_of", "wireshark_protocols"]

DECODED_MARK: Final = "penstock decoded"
"""First line of each comment with messages."""
MAX_VALUE: Final = 4096
"""Most bytes or characters of a value that are shown."""
MAX_MESSAGE: Final = 60_000
"""Most bytes of one message's text, and of a comment: an option of pcapng has at most 65,535."""
MAX_COMMENTS: Final = 1 * MIB
"""Most bytes of the comments of one packet: small compressed messages may have large texts."""
_MAX_SUMMARY: Final = 200
_MAX_ITEMS: Final = 16
"""Most items of a list of a dialogue's fields."""
_OWN: Final = "penstock"
_LEFT_TO_WIRESHARK: Final = (HTTP, "tcp")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NO_NAME: Final = re.compile(r"[^\w.-]")


@cache
def wireshark_protocols() -> dict[str, WiresharkProtocol]:
    """Return the protocols of all plug-ins by their names in filters, and `penstock` for messages of all others."""
    kinds = dict.fromkeys(("layer", "kind", "stream", "failure", "malformed", "problem"), FieldKind.STRING)
    own = WiresharkProtocol(
        title="Penstock",
        column="Penstock",
        kinds={**kinds, "record": FieldKind.BYTES},
        layers=frozenset(),
        describe=_generic_fields,
    )
    return {
        name: protocol
        for plugin in plugins().values()
        if plugin.wireshark is not None
        for name, protocol in plugin.wireshark().items()
    } | {_OWN: own}


def _generic_fields(message: Message) -> list[Shown]:
    """Return the fields of a message of a protocol without a `WiresharkProtocol`."""
    return [
        Shown("layer", message.layer),
        Shown("kind", message.kind),
        *([Shown("stream", message.stream)] if message.stream else ()),
        *(field for name, value in message.fields.items() for field in _dialogue_fields(name, value)),
        *(Shown("record", record.body) for record in message.own_records),
    ]


def _dialogue_fields(name: str, value: Any) -> Iterator[Shown]:
    name = _NO_NAME.sub("_", name) or "_"
    if isinstance(value, Mapping):
        yield Shown(name, None, [field for key, each in value.items() for field in _dialogue_fields(str(key), each)])
    elif isinstance(value, list | tuple):
        for each in value[:_MAX_ITEMS]:
            yield from _dialogue_fields(name, each)
    elif value is not None:
        yield Shown(name, str(value))


def comments_of(items: Iterable[Message | Problem]) -> list[bytes]:
    """Return the comments for the packet that completes these messages and problems."""
    comments: list[bytes] = []
    size = left_out = 0
    for item in items:
        text = _problem_text(item) if isinstance(item, Problem) else _message_text(item)
        if not text:
            continue
        if size + len(text) > MAX_COMMENTS:
            left_out += 1
            continue
        size += len(text)
        if comments and len(comments[-1]) + len(text) < MAX_MESSAGE:
            comments[-1] += b"\n" + text
        else:
            comments.append(f"{DECODED_MARK}\n".encode() + text)
    if left_out:
        comments.append(f"{DECODED_MARK}\n{_OWN} {left_out} more messages that are not shown".encode())
    return comments


def _problem_text(problem: Problem) -> bytes:
    rule = f"{problem.rule} ({problem.clause})" if problem.clause else problem.rule
    name = "malformed" if problem.clause else "problem"
    return _message_lines(_OWN, f"{name}: {rule}", [Shown(name, rule)])


def _message_text(message: Message) -> bytes:
    """Return the lines of a message; b"" if Wireshark decodes it, or if it has no bytes."""
    if not message.length:
        return b""
    for name, protocol in wireshark_protocols().items():
        fields = protocol.describe(message) if message.layer in protocol.layers else None
        if fields is not None:
            return _message_lines(name, _summary(message), [*fields, *_links(message)])
    if message.layer in _LEFT_TO_WIRESHARK:
        return b""
    return _message_lines(_OWN, f"{message.layer} {_summary(message)}", [*_generic_fields(message), *_links(message)])


def _summary(message: Message) -> str:
    words = [message.kind, message.stream]
    if count := len(message.own_records):
        words.append("1 record" if count == 1 else f"{count} records")
    if message.failure:
        words.append(message.failure.removeprefix(f"{message.kind}: "))
    else:
        simple = ((name, value) for name, value in message.fields.items() if isinstance(value, int | str))
        words += [f"{name}={value}" for name, value in simple if value not in ("", count, message.stream)]
    return " ".join(filter(None, words))


def _links(message: Message) -> Iterator[Shown]:
    """Yield the reported error, the response time, and the key that links a request and its response."""
    if message.failure:
        yield Shown("failure", message.failure)
    if message.answers is not None:
        yield Shown("time", message.answers)
        yield Shown("@asked", f"{message.exchange}:{message.end_ns - message.answers}")
    elif message.exchange is not None and message.sender is Sender.CLIENT:
        yield Shown("@sent", f"{message.exchange}:{message.end_ns}")


def _message_lines(protocol: str, summary: str, fields: Iterable[Shown]) -> bytes:
    lines = [_line(f"{protocol} {_printable(summary)[:_MAX_SUMMARY]}")]
    size = len(lines[0])
    for line in _lines(fields, " "):
        size += len(line) + 1
        if size > MAX_MESSAGE - 100:
            lines.append(_line(" rest=not shown"))
            break
        lines.append(line)
    return b"\n".join(lines)


def _lines(fields: Iterable[Shown], indent: str) -> Iterator[bytes]:
    for name, value, inner in fields:
        if value is None or value == b"":
            if not inner:
                continue
            yield _line(f"{indent}{name}")
        else:
            yield _line(f"{indent}{name}={_value(value)}")
        yield from _lines(inner, indent + " ")


def _value(value: bool | int | bytes | str | UUID) -> str:
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, bytes):
        return value[:MAX_VALUE].hex()
    return value.hex if isinstance(value, UUID) else _printable(value[:MAX_VALUE])


def _printable(text: str) -> str:
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def _line(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
