"""Connections and recordings, as the management listener shows and switches them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
import trio

from penstock.app.management.decoded import DecodedWriter
from penstock.model.failures import FailureCode, fail
from penstock.observe.taps.connections import Connections
from penstock.observe.taps.tap import Tap
from penstock.protocols.plugin import listener_kinds
from penstock.recorder.captures.choosing import CaptureFilter, parse_terms
from penstock.recorder.live import LiveRecording
from penstock.recorder.recordings import PAGE, Recordings, RunningRecording
from penstock.recorder.selection import Selection, network

__all__ = ["SelectionJson", "Traffic", "parse_selection", "words_of"]

_AT_ONCE: Final = 500
"""Connections described between two checkpoints: 1 ms. Describing 10,000 at once took up to 0.2 s."""
_MOST_VALUES: Final = 50
_MOST_WILDCARDS: Final = 20
"""Most wildcards in one glob. Matching a name of 512 characters against 50 such globs takes some 100 ms, once for each
new use of a connection."""
_SINGULAR: Final = {
    "listener": "listeners",
    "back": "backs",
    "protocol": "protocols",
    "peer": "peers",
    "connection": "connections",
    "identity": "identities",
    "route": "routes",
    "stream": "streams",
}


class SelectionJson(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A selection of connections, in JSON; see `Selection`."""

    listeners: tuple[str, ...] = ()
    backs: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    connections: tuple[int, ...] = ()
    identities: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()


def words_of(query: str) -> SelectionJson:
    """Parse a selection from a query, in which each parameter may be repeated. Raises BAD_QUERY."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_VALUES)
    except ValueError as error:
        raise fail(FailureCode.BAD_QUERY, f"the query cannot be read: {error}") from None
    words: dict[str, list[str]] = {}
    for name, value in pairs:
        if name not in _SINGULAR:
            raise fail(
                FailureCode.BAD_QUERY, f"{name!r:.80}: unknown parameter; expected one of {', '.join(_SINGULAR)}"
            )
        words.setdefault(_SINGULAR[name], []).append(value)
    return _converted(words, FailureCode.BAD_QUERY)


def parse_selection(text: str) -> SelectionJson:
    """Parse a selection in one line, such as `stream=penstock/orders* listener=s2`. Raises INVALID."""
    try:
        terms = parse_terms(text, _SINGULAR)
    except ValueError as error:
        raise fail(FailureCode.INVALID, f"expression: {error}") from None
    return _converted({_SINGULAR[name]: values for name, values in terms.items()}, FailureCode.INVALID)


def _converted(words: Mapping[str, Sequence[str]], code: FailureCode) -> SelectionJson:
    try:
        return msgspec.convert(words, SelectionJson, strict=False)
    except msgspec.ValidationError as error:
        raise fail(code, str(error)) from None


class Traffic:
    """Queries and operations on connections and recordings."""

    def __init__(
        self, connections: Connections, recordings: Recordings, listeners: Collection[str], backs: Collection[str]
    ) -> None:
        """`listeners`, `backs`: the known names, as in `Selection`."""
        self.recordings = recordings
        self._connections = connections
        self._known: dict[str, set[str]] = {}
        self.know(listeners, backs)

    def know(self, listeners: Collection[str], backs: Collection[str]) -> None:
        """Replace the known names of listeners and backs."""
        self._known = {
            "listeners": {*listeners, *(label.partition(".")[0] for label in listeners)},
            "backs": set(backs),
            "protocols": set(listener_kinds()),
        }

    async def connections(self) -> list[dict[str, Any]]:
        """Return the open connections with what is known of each."""
        numbers = {
            running_recording.recording.sink: running_recording.recording.id
            for running_recording in self.recordings.running
        }
        shown = []
        for turn, tap in enumerate(self._connections, 1):
            if not tap.over:
                shown.append(_shown(tap, [numbers[sink] for sink in tap.sinks if sink in numbers]))
            if turn % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        return shown

    def break_off(self, number: int) -> bool:
        """Break a connection to a server, as a network failure would. Return whether it existed."""
        return self._connections.break_off(number)

    def running(self) -> list[dict[str, Any]]:
        """Return the running recordings with their status."""
        return [_running(running_recording) for running_recording in self.recordings.running]

    async def start(self, words: SelectionJson) -> dict[str, Any]:
        """Start a recording into files. Raises CannotStart, and OperationFailed: INVALID for unknown names or if no
        directory is configured, LIMIT_EXCEEDED."""
        return _running(await self.recordings.start(self._selection(words)))

    async def stop(self, number: str) -> dict[str, Any] | None:
        """Stop a recording and return its final status, or None if no recording of this number runs."""
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            return None
        stopped = await self.recordings.stop(int(number))
        return None if stopped is None else _running(stopped)

    @asynccontextmanager
    async def listening(self, words: SelectionJson) -> AsyncIterator[LiveRecording]:
        """Open a live recording, in pieces of an endless pcapng file. Raises OperationFailed as `start`."""
        async with self.recordings.listening(self._selection(words)) as live:
            yield live

    @asynccontextmanager
    async def decoded(self, choice: CaptureFilter) -> AsyncIterator[LiveRecording]:
        """Open a live recording of the wanted messages as JSON lines (`penstock.app.management.decoded`), in pieces of
        whole lines."""
        async with self.recordings.listening(Selection(), DecodedWriter(choice), PAGE) as live:
            yield live

    def drain(self) -> None:
        """End all live recordings: the gateway is about to stop."""
        self.recordings.drain()

    def _selection(self, words: SelectionJson) -> Selection:
        words = _with_short_names(words)
        _bounded(words)
        for key, known in self._known.items():
            for name in getattr(words, key):
                if name not in known:
                    there = ", ".join(sorted(known)) or "none"
                    raise fail(FailureCode.INVALID, f"{key}: {name!r:.80} is unknown; expected {there}")
        numbers = {tap.conversation.number for tap in self._connections} if words.connections else frozenset[int]()
        for number in words.connections:
            if number not in numbers:
                raise fail(FailureCode.INVALID, f"connections: {number} is not open")
        try:
            peers = tuple(network(peer) for peer in words.peers)
        except ValueError as error:
            raise fail(FailureCode.INVALID, f"peers: {error}") from None
        return Selection(**{**msgspec.structs.asdict(words), "peers": peers})


def _with_short_names(words: SelectionJson) -> SelectionJson:
    """Strip the prefixes that tables, metrics and the log use: `listeners.s2`, `backs.lite`."""
    return msgspec.structs.replace(
        words,
        listeners=tuple(name.removeprefix("listeners.") for name in words.listeners),
        backs=tuple(name.removeprefix("backs.") for name in words.backs),
    )


def _bounded(words: SelectionJson) -> None:
    """Bound a selection, since it is matched against every connection and each of its uses. Raises INVALID if it is too
    large."""
    for key in _SINGULAR.values():
        if len(getattr(words, key)) > _MOST_VALUES:
            raise fail(FailureCode.INVALID, f"{key}: more than {_MOST_VALUES}")
    for key in ("identities", "routes", "streams"):
        for glob in getattr(words, key):
            if glob.count("*") + glob.count("?") > _MOST_WILDCARDS:
                raise fail(FailureCode.INVALID, f"{key}: {glob!r:.80} has more than {_MOST_WILDCARDS} wildcards")


def _shown(tap: Tap, recordings: list[int]) -> dict[str, Any]:
    conversation, noted = tap.conversation, tap.noted
    client_bytes, server_bytes = tap.offsets
    return {
        "connection": conversation.number,
        "side": conversation.side.value,
        "name": conversation.name,
        "protocol": conversation.protocol,
        "tls": conversation.tls,
        "client": str(conversation.client),
        "server": str(conversation.server),
        "since": tap.opened_ns // 1_000_000,
        "client_bytes": client_bytes,
        "server_bytes": server_bytes,
        "routes": noted["route"],
        "streams": noted["stream"],
        "identities": noted["identity"],
        "recordings": recordings,
    }


def _running(running: RunningRecording) -> dict[str, Any]:
    recording, status = running.recording, running.status
    selection = recording.selection
    return {
        "id": recording.id,
        "kind": running.kind,
        "since": recording.since_ns // 1_000_000,
        "selection": {
            key: [str(value) if key == "peers" else value for value in getattr(selection, key)]
            for key in _SINGULAR.values()
            if getattr(selection, key)
        },
        "state": status.state.value,
        "file": None if status.file is None else str(status.file),
        "files": status.files,
        "bytes": status.bytes,
        "events": status.events,
        "conversations": status.conversations,
        "dropped": status.dropped,
        "queue_bytes": status.queue_bytes,
        "last_error": status.last_error,
    }
