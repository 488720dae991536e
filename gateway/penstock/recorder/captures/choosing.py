"""Filters for the conversations and messages of a capture, and the expressions in which people write filters and
selections."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from penstock.capture.dialogue import Message, Problem, SeenRecord
from penstock.capture.pcapng import Conversation
from penstock.capture.plugin import plugins

__all__ = ["FILTER_TERMS", "PROTOCOLS", "CaptureFilter", "parse_filter", "parse_terms"]

_UNKNOWN: Final = "tcp"
_MOST_DIGITS: Final = 20
PROTOCOLS: Final = tuple(
    dict.fromkeys((*plugins(), *(layer for plugin in plugins().values() for layer in plugin.layers), _UNKNOWN))
)
"""Accepted filter values: the protocol of a listener or a back, or the layer of a message."""
FILTER_TERMS: Final = ("connection", "protocol", "stream", "kind", "exchange", "text")
"""Names in a filter expression: those of the options of `penstock show`."""


class CaptureFilter(msgspec.Struct, frozen=True):
    """A filter. Empty sequences accept everything; patterns are globs (`*`, `?`, `[...]`), and one match is enough.
    `texts`: all of them, each in a field or the failure of a message, one of its records, or the rule of a problem.
    `exchanges`: of messages and problems, by number."""

    connections: Sequence[int] = ()
    protocols: Sequence[str] = ()
    streams: Sequence[str] = ()
    kinds: Sequence[str] = ()
    texts: Sequence[str] = ()
    exchanges: Sequence[int] = ()

    def plus(self, other: CaptureFilter) -> CaptureFilter:
        """Return a filter with the values of both, as if all had been given to one command."""
        return CaptureFilter(
            *((*getattr(self, part), *getattr(other, part)) for part in CaptureFilter.__struct_fields__)
        )

    def conversation(self, conversation: Conversation) -> bool:
        """Return whether any message of this conversation may be wanted."""
        if self.connections and conversation.number not in self.connections:
            return False
        return self._may_speak(conversation.protocol)

    def accepts(self, item: Message | Problem) -> bool:
        """Return whether a message or a problem of a wanted conversation is wanted."""
        if self.exchanges and item.exchange not in self.exchanges:
            return False
        return self.problem(item) if isinstance(item, Problem) else self.message(item)

    def noted(self, conversation: Conversation, streams: Sequence[str]) -> bool:
        """Return whether a conversation is wanted by the streams that the gateway noted for it, regardless of its
        messages."""
        if (
            self.kinds
            or self.texts
            or self.exchanges
            or (self.protocols and conversation.protocol not in self.protocols)
        ):
            return False
        return not self.streams or any(map(self.stream, streams))

    def message(self, message: Message) -> bool:
        """Return whether a message of a wanted conversation is wanted."""
        if (
            self.protocols
            and message.conversation.protocol not in self.protocols
            and message.layer not in self.protocols
        ):
            return False
        return (
            self.stream(message.stream)
            and _matches(message.kind, self.kinds)
            and all(_says(message, text) for text in self.texts)
        )

    def stream(self, stream: str) -> bool:
        """Return whether items about this stream are wanted."""
        return _matches(stream, self.streams)

    def record(self, record: SeenRecord) -> bool:
        """Return whether a record of a wanted conversation is wanted."""
        return self.stream(record.stream)

    def problem(self, problem: Problem) -> bool:
        """Return whether a problem is wanted. A problem has no stream, so it is wanted only without a stream filter;
        its layer is known only to be one of those that the conversation may carry."""
        if not self._may_speak(problem.conversation.protocol):
            return False
        has_texts = all(text in problem.rule for text in self.texts)
        return has_texts and not self.streams and _matches("problem", self.kinds)

    def _may_speak(self, protocol: str) -> bool:
        """Return whether a conversation of this protocol ("": unknown) may carry a wanted protocol or layer."""
        if not self.protocols or protocol not in plugins():
            return True
        return not {protocol, *plugins()[protocol].layers, _UNKNOWN}.isdisjoint(self.protocols)


def parse_terms(text: str, names: Collection[str], bare: str = "") -> dict[str, tuple[str, ...]]:
    """Parse an expression in one line: NAME=VALUE terms, such as `stream=penstock/orders* kind=Append*`, which may be
    repeated, and quoted as in a shell. `bare`: the name for a word without `=`; "": that is an error. Raises
    ValueError, whose message says what is wrong."""
    terms: dict[str, tuple[str, ...]] = {}
    for term in shlex.split(text):
        name, equals, value = term.partition("=")
        if bare and not equals:
            name, value = bare, term
        if name not in names or not value:
            raise ValueError(f"{term!r}: expected NAME=VALUE with one of {', '.join(names)}")
        terms[name] = (*terms.get(name, ()), value)
    return terms


def parse_filter(text: str) -> CaptureFilter:
    """Parse a filter expression, such as `kind=Append* stream=penstock/* "a text"`. One match for each name is enough,
    but all texts must be found. Raises ValueError, whose message says what is wrong."""
    terms = parse_terms(text, FILTER_TERMS, bare="text")
    for name in terms.get("protocol", ()):
        if name not in PROTOCOLS:
            raise ValueError(f"protocol={name}: expected one of {', '.join(PROTOCOLS)}")
    return CaptureFilter(
        _numbers("connection", terms),
        terms.get("protocol", ()),
        terms.get("stream", ()),
        terms.get("kind", ()),
        terms.get("text", ()),
        _numbers("exchange", terms),
    )


def _numbers(name: str, terms: Mapping[str, tuple[str, ...]]) -> tuple[int, ...]:
    for text in terms.get(name, ()):
        if not (text.isascii() and text.isdigit()) or len(text) > _MOST_DIGITS:
            raise ValueError(f"{name}={text}: expected a whole number")
    return tuple(map(int, terms.get(name, ())))


def _says(message: Message, text: str) -> bool:
    """Return whether a text is in a message."""
    if text in message.failure or _has(message.fields, text):
        return True
    data = text.encode("utf-8", "surrogateescape")
    return any(data in part for record in message.own_records for part in _parts(record))


def _has(value: Any, text: str) -> bool:
    """Return whether a text is in a field, or in one inside it."""
    if isinstance(value, Mapping):
        return any(_has(each, text) for each in value.values())
    if isinstance(value, list | tuple):
        return any(_has(each, text) for each in value)
    return text in str(value)


def _parts(record: SeenRecord) -> Iterator[bytes]:
    yield record.body
    for header in record.headers:
        yield from header


def _matches(text: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)
