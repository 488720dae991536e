"""Encode in comments of packets the information that TCP has no place for: `penstock connection=12 side=front
name=listeners.s2 ...`.

A comment is the word `penstock` and pairs `key=value`, separated by one space. A value of letters, digits and `._:/@+-`
is bare; any other, also the empty one, is a JSON string. The first key is always `connection`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from penstock.capture.pcapng.events import Conversation, Lost, Opened, Side, SocketAddress, Withheld

__all__ = [
    "MAX_VALUE",
    "NOTE_MARK",
    "conversation_of",
    "identity",
    "loss",
    "note",
    "parse_note",
    "parse_number",
    "withholding",
]

NOTE_MARK: Final = b"penstock connection="
"""Beginning of each comment of ours."""
MAX_VALUE: Final = 8_000
"""Longest value, in characters; longer ones are cut. Escaped, one still fits into an option (65,535 bytes)."""
MAX_PAIRS: Final = 32
"""Most pairs of a comment that is one of ours, which have a dozen; each of others' might become an event."""

_BARE: Final = re.compile(r"[A-Za-z0-9._:/@+-]+")
_PAIR: Final = re.compile(r' ([a-z_]{1,32})=([A-Za-z0-9._:/@+-]+|"(?:[^"\\]|\\.)*")')
_SIDES: Final = {side.value: side for side in Side}
_YES: Final = {True: "yes", False: "no"}


def _text(value: str) -> str:
    value = value[:MAX_VALUE]
    if _BARE.fullmatch(value):
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    try:
        quoted.encode()
    except UnicodeEncodeError:  # lone surrogates have no UTF-8
        return json.dumps(value)
    return quoted


def _line(conversation: Conversation, pairs: Mapping[str, str]) -> bytes:
    words = "".join(f" {key}={_text(value)}" for key, value in pairs.items())
    return f"penstock connection={conversation.number}{words}".encode()


def identity(opened: Opened, hosts: Mapping[str, str]) -> bytes:
    """Return all that is known of a conversation, for its first packet in a file, which its client sends.

    `hosts`: `client_host` or `server_host` where the packets' addresses cannot express it.
    """
    conversation = opened.conversation
    pairs = {
        "side": conversation.side.value,
        "name": conversation.name,
        "protocol": conversation.protocol,
        "tls": _YES[conversation.tls],
        "run": conversation.run,
        "client_offset": str(opened.client_offset),
        "server_offset": str(opened.server_offset),
    }
    if conversation.path:
        pairs["path"] = conversation.path
    if opened.continued:
        pairs["continued"] = "yes"
    return _line(conversation, {**pairs, **hosts})


def note(conversation: Conversation, key: str, value: str) -> bytes:
    """Return the comment of a `Noted`. `key`: at most 32 lower-case letters and underscores."""
    return _line(conversation, {key: value})


def loss(lost: Lost) -> bytes:
    """Return the comment of a `Lost`."""
    pairs = {
        "lost": lost.sender.value,
        "at": str(lost.offset),
        "length": str(lost.length),
        "reason": lost.reason,
    }
    return _line(lost.conversation, pairs)


def withholding(withheld: Withheld) -> bytes:
    """Return the comment of a `Withheld`."""
    pairs = {"withheld": withheld.sender.value, "at": str(withheld.offset), "length": str(withheld.length)}
    return _line(withheld.conversation, pairs)


def parse_note(comment: bytes) -> dict[str, str] | None:
    """Return the pairs of a comment, or None if it is not one of ours."""
    try:
        text = comment.decode()
    except UnicodeDecodeError:
        return None
    if not text.startswith("penstock "):
        return None
    pairs: dict[str, str] = {}
    place = len("penstock")
    while place < len(text):
        match = _PAIR.match(text, place)
        if match is None or len(pairs) == MAX_PAIRS:
            return None
        key, value = match.groups()
        if value[0] == '"':
            try:
                value = json.loads(value)
            except ValueError:
                return None
        pairs[key] = value
        place = match.end()
    return pairs if next(iter(pairs), None) == "connection" else None


def parse_number(pairs: Mapping[str, str], key: str) -> int | None:
    """Return a decimal number of up to 19 digits, or None if the text is not one."""
    value = pairs.get(key, "")
    return int(value) if len(value) <= 19 and value.isascii() and value.isdigit() else None


def conversation_of(pairs: Mapping[str, str], client: SocketAddress, server: SocketAddress) -> Conversation | None:
    """Return the conversation that an `identity` names, or None if it is invalid. The ends are those of its packet."""
    number = parse_number(pairs, "connection")
    side = _SIDES.get(pairs.get("side", ""))
    if number is None or side is None:
        return None
    return Conversation(
        number,
        SocketAddress(pairs.get("client_host", client.host), client.port),
        SocketAddress(pairs.get("server_host", server.host), server.port),
        side,
        pairs.get("name", ""),
        pairs.get("protocol", ""),
        pairs.get("tls") == "yes",
        pairs.get("run", ""),
        pairs.get("path", ""),
    )
