"""`GET /positions`: one record's position in the terms of every protocol, and how to read on from there in each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl

from msgspec.structs import replace

from penstock.app.management.overview import ListenerView, Overview
from penstock.core.back import Back
from penstock.core.identity import CLIENT
from penstock.model.byte_operations import GetByteStreamInfo
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import (
    FromByteOffset,
    FromRecordId,
    FromSeqNum,
    FromTailOffset,
    FromTimestamp,
    Locate,
    Located,
    Start,
)
from penstock.model.records import U64_MAX, RecordId, StreamRef
from penstock.protocols.plugin import listener_kinds
from penstock.protocols.terms import Terms

__all__ = ["Positions", "query_of"]

_MOST_FIELDS: Final = 20
_BAD: Final = FailureCode.BAD_QUERY
_OWN_NAMES: Final = tuple(name for name, kind in listener_kinds().items() if kind.own_names)
_NAMES: Final = ("stream", *_OWN_NAMES)
_RECORD_ID: Final = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")
_GROUP: Final = "group"
"""The parameter for the position that a group of consumers has committed."""


def query_of(query: str, known: tuple[str, ...], errors: str = "strict") -> dict[str, str]:
    """Return a query's decoded parameters; `errors` as for `bytes.decode`, for bytes that are not UTF-8. Raises
    BAD_QUERY for a parameter that is unknown or repeated, and for such bytes if they are an error."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors=errors, max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise fail(_BAD, f"the query cannot be read: {error}") from None
    parameters: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            raise fail(_BAD, f"{name!r:.80}: unknown parameter; expected one of {', '.join(known)}")
        if name in parameters:
            raise fail(_BAD, f"{name}: given twice")
        parameters[name] = value
    return parameters


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 20 or int(text) > U64_MAX:
        raise fail(_BAD, f"{name}: expected a whole number from 0 to 2^64 - 1, got {text!r:.80}")
    return int(text)


def _record_id(name: str, text: str) -> RecordId:
    match = _RECORD_ID.fullmatch(text)
    if match is None or max(ms_seq := (int(match[1]), int(match[2]))) > U64_MAX:
        raise fail(_BAD, f"{name}: expected an S3P identifier MS-SEQ, got {text!r:.80}")
    return RecordId(*ms_seq)


_STARTS: Final[Mapping[str, Callable[[str, str], Start]]] = {
    "seq_num": lambda name, text: FromSeqNum(_number(name, text)),
    "timestamp": lambda name, text: FromTimestamp(_number(name, text)),
    "record_id": lambda name, text: FromRecordId(_record_id(name, text)),
    "offset": lambda name, text: FromByteOffset(_number(name, text)),
    "tail_offset": lambda name, text: FromTailOffset(_number(name, text)),
}
_KNOWN: Final = (*_NAMES, *_STARTS, _GROUP, "listener", "identity")


class Positions:
    """Finds positions by the listeners' names and routes."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview

    async def find(self, query: str) -> dict[str, Any]:
        """Return the answer to a query, as JSON values. Raises BAD_QUERY, naming the parameter, and the back's
        failures."""
        parameters = query_of(query, _KNOWN, "surrogateescape")  # S3P names are bytes
        start_name, start_text = _one_of(parameters, (*_STARTS, _GROUP))
        start = None if start_name == _GROUP else _STARTS[start_name](start_name, start_text)
        client = replace(CLIENT.get(), identity=parameters.get("identity", ""))
        token = CLIENT.set(client)
        try:
            listener, stream = self._listener_and_stream(parameters)
            CLIENT.set(replace(client, listener=listener.name))
            if start is None:
                label = listener.name.removeprefix("listeners.")
                start = await listener.terms.committed(listener.back, label, start_text, stream)
            located = await listener.back.perform(Locate(stream, start))
            there = [
                other_listener
                for other_listener in self._overview.listeners
                if _place(other_listener.back, stream) == _place(listener.back, stream)
            ]
            if located.offset is None and await _counted(there, listener.back, stream):
                located = await listener.back.perform(Locate(stream, start))
        finally:
            CLIENT.reset(token)
        return {"stream": str(stream), "position": _position(located), "read_on": _read_on(there, stream, located)}

    def _listener_and_stream(self, query: Mapping[str, str]) -> tuple[ListenerView, StreamRef]:
        """Return the first listener that fits the query and has a route for the stream, or the first that fits, whose
        failure then says that it has none."""
        fitting = [(listener, self._stream(query, listener)) for listener in self._fitting(query)]
        return next((pair for pair in fitting if _place(pair[0].back, pair[1]) is not None), fitting[0])

    def _fitting(self, query: Mapping[str, str]) -> list[ListenerView]:
        kind = next((name for name in _OWN_NAMES if name in query), None)
        of_kind = [listener for listener in self._overview.listeners if kind in (None, listener.kind)]
        if not of_kind:
            raise fail(_BAD, f"{kind}: this gateway has no listener for this protocol; give stream=BASIN/STREAM")
        if _GROUP in query:
            of_kind = [one for one in of_kind if one.terms.has_groups]
            if not of_kind:
                raise fail(_BAD, f"{_GROUP}: this gateway has no listener whose clients have groups")
        wanted = query.get("listener")
        if wanted is None:
            return of_kind
        named = [one for one in of_kind if one.name.removeprefix("listeners.") == wanted.removeprefix("listeners.")]
        if not named:
            names = ", ".join(one.name for one in of_kind)
            raise fail(_BAD, f"listener: expected one of {names}, got {wanted!r:.80}")
        return named

    def _stream(self, query: Mapping[str, str], listener: ListenerView) -> StreamRef:
        name, text = _one_of(query, _NAMES)
        try:
            return (listener.terms if name == listener.kind else Terms()).to_stream(text)
        except OperationFailed as error:
            raise fail(_BAD, f"{name}: {error.failure.message}") from None


def _place(back: Back, stream: StreamRef) -> tuple[str, StreamRef] | None:
    """Return the back and name that a listener's clients reach by this stream name, or None if no route takes it."""
    try:
        destination = back.destination(stream)
    except OperationFailed:
        return None
    return destination.back, destination.stream


async def _counted(listeners: Sequence[ListenerView], back: Back, stream: StreamRef) -> bool:
    """Give a stream's records stable byte offsets, if it never had a byte operation. Return whether they have them now;
    not tried if no client could use them."""
    if not any(listener.terms.reads_bytes and listener.terms.can_name(stream) for listener in listeners):
        return False
    try:
        await back.perform(GetByteStreamInfo(stream))
    except OperationFailed as error:
        if error.failure.code is FailureCode.NOT_IMPLEMENTED:
            return False
        raise
    return True


def _read_on(listeners: Sequence[ListenerView], stream: StreamRef, located: Located) -> dict[str, Any]:
    """Return each protocol's hint, from the first of its listeners that has one; all listeners reach the same
    stream."""
    hints: dict[str, Any] = {name: None for kind in listener_kinds().values() for name in kind.hint_names}
    for listener in listeners:
        for name, hint in listener.terms.hints(stream, located).items():
            hints[name] = hints[name] or {"listener": listener.name, **hint}
    return hints


def _one_of(query: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str]:
    names_given = [name for name in names if name in query]
    if len(names_given) != 1:
        got = f"got {', '.join(names_given)}" if names_given else "got none"
        raise fail(_BAD, f"give exactly one of {', '.join(names)}; {got}")
    return names_given[0], query[names_given[0]]


def _position(located: Located) -> dict[str, Any]:
    return {
        "seq_num": located.seq_num,
        "timestamp": located.timestamp,
        "record_id": None if located.record_id is None else str(located.record_id),
        "offset": located.offset,
        "at_tail": located.at_tail,
    }
