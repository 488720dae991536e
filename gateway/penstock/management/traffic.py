"""Connections and recordings, as the management listener shows and switches them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

import msgspec
import trio

from penstock.management.decoded import DecodedWriter
from penstock.recorder.connections import Connections
from penstock.recorder.live import LiveRecording
from penstock.recorder.recordings import Recordings, Running
from penstock.recorder.selection import Selection, network
from penstock.recorder.tap import Tap
from penstock_codecs.failures import FailureCode, fail

__all__ = ["Others", "SelectionWords", "Traffic", "words_of"]

_AT_ONCE: Final = 500
"""So many connections are described while traffic waits: 1 ms. Of 10,000 it took up to 0.2 s."""
_MOST_VALUES: Final = 50
_MOST_WILDCARDS: Final = 20
"""In one glob. A name of 512 characters is held against 50 such globs in some 100 ms, once for each new use of a
connection."""


class SelectionWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which connections are meant, in JSON; see `Selection`."""

    listeners: tuple[str, ...] = ()
    backs: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    connections: tuple[int, ...] = ()
    identities: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()


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


def words_of(query: str) -> SelectionWords:
    """The same in a query, where each name may stand several times. Raises BAD_QUERY."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_VALUES)
    except ValueError as error:
        raise fail(FailureCode.BAD_QUERY, f"the query cannot be read: {error}") from None
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        if name not in _SINGULAR:
            raise fail(FailureCode.BAD_QUERY, f"{name!r:.80}: unknown parameter; there are {', '.join(_SINGULAR)}")
        found.setdefault(_SINGULAR[name], []).append(value)
    try:
        return msgspec.convert(found, SelectionWords, strict=False)
    except msgspec.ValidationError as error:
        raise fail(FailureCode.BAD_QUERY, str(error)) from None


class Others(Protocol):
    """Processes that serve the clients in the place of this one (`penstock.workers`)."""

    async def connections(self) -> list[dict[str, Any]]:
        """Those that are open there."""

    async def newest(self, most: int) -> list[tuple[int, list[dict[str, Any]]]]:
        """As `Traffic.newest`, of each."""

    async def close_connection(self, number: int) -> bool:
        """End a connection; whether there was one of this number."""


class Traffic:
    """What is asked about connections and recordings."""

    def __init__(
        self, connections: Connections, recordings: Recordings, listeners: Collection[str], backs: Collection[str]
    ) -> None:
        """`listeners`, `backs`: the names that there are, as in `Selection`."""
        self.recordings = recordings
        self._connections = connections
        self.others: Others | None = None
        self._known: dict[str, set[str]] = {}
        self.know(listeners, backs)

    @property
    def decodes(self) -> bool:
        """Whether `decoded` gives anything: what goes by in other processes cannot be followed."""
        return self.others is None

    def know(self, listeners: Collection[str], backs: Collection[str]) -> None:
        """These are the names that there are from now on."""
        self._known = {
            "listeners": {*listeners, *(label.partition(".")[0] for label in listeners)},
            "backs": set(backs),
            "protocols": {"s2", "s3p", "segment", "controller"},
        }

    async def newest(self, most: int) -> tuple[int, list[dict[str, Any]]]:
        """How many there are, those with this listener aside, and the newest of them."""
        taps = [tap for tap in self._connections if not tap.over and tap.conversation.protocol != "management"]
        files = {one.recording.sink: one.recording.id for one in self.recordings.running if one.kind == "file"}
        total, rows = (
            len(taps),
            [_shown(tap, [files[one] for one in tap.sinks if one in files]) for tap in taps[-most:]],
        )
        for more, theirs in [] if self.others is None else await self.others.newest(most):
            total, rows = total + more, [*rows, *theirs]
        return total, rows[-most:]

    async def connections(self) -> list[dict[str, Any]]:
        """Those that are open, each with what is known of it."""
        numbers = {one.recording.sink: one.recording.id for one in self.recordings.running}
        shown = []
        for turn, tap in enumerate(self._connections, 1):
            if not tap.over:
                shown.append(_shown(tap, [numbers[sink] for sink in tap.sinks if sink in numbers]))
            if turn % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        return shown if self.others is None else [*shown, *await self.others.connections()]

    async def close_elsewhere(self, number: int) -> bool:
        """End a connection of a worker; whether there was one of this number."""
        return self.others is not None and await self.others.close_connection(number)

    def break_off(self, number: int) -> bool:
        """End a connection with a server, as if the network had; whether there was one of this number."""
        return self._connections.break_off(number)

    def running(self) -> list[dict[str, Any]]:
        """The recordings that run, with their status."""
        return [_running(one) for one in self.recordings.running]

    async def start(self, words: SelectionWords) -> dict[str, Any]:
        """Begin a recording into files. Raises CannotStart, and OperationFailed: INVALID for names that there are not,
        or without a directory, LIMIT_EXCEEDED."""
        return _running(await self.recordings.start(self._selection(words)))

    async def stop(self, number: str) -> dict[str, Any] | None:
        """End a recording: how it ended; None where none of this number runs."""
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            return None
        stopped = await self.recordings.stop(int(number))
        return None if stopped is None else _running(stopped)

    @asynccontextmanager
    async def listening(self, words: SelectionWords) -> AsyncIterator[LiveRecording]:
        """Pieces of a pcapng file that never ends. Raises OperationFailed as `start`."""
        async with self.recordings.listening(self._selection(words)) as live:
            yield live

    @asynccontextmanager
    async def decoded(self) -> AsyncIterator[LiveRecording]:
        """All that is said from now on, as JSON lines (`penstock.management.decoded`); a piece is whole lines."""
        async with self.recordings.listening(Selection(), DecodedWriter(), "page") as live:
            yield live

    def drain(self) -> None:
        """The gateway is about to stop: whoever follows the traffic is told that it ends."""
        self.recordings.drain()

    def _selection(self, words: SelectionWords) -> Selection:
        if self.others is not None:
            raise fail(FailureCode.NOT_IMPLEMENTED, "what workers serve cannot be recorded: it takes `workers = 1`")
        words = _with_short_names(words)
        _bounded(words)
        for key, known in self._known.items():
            for name in getattr(words, key):
                if name not in known:
                    there = ", ".join(sorted(known)) or "none"
                    raise fail(FailureCode.INVALID, f"{key}: {name!r:.80} is unknown; there are {there}")
        numbers = {tap.conversation.number for tap in self._connections} if words.connections else frozenset[int]()
        for number in words.connections:
            if number not in numbers:
                raise fail(FailureCode.INVALID, f"connections: {number} is not open")
        try:
            peers = tuple(network(peer) for peer in words.peers)
        except ValueError as error:
            raise fail(FailureCode.INVALID, f"peers: {error}") from None
        return Selection(**{**msgspec.structs.asdict(words), "peers": peers})


def _with_short_names(words: SelectionWords) -> SelectionWords:
    """Listeners and backs may also be called as tables, metrics and the log call them: `listeners.s2`, `backs.lite`."""
    return msgspec.structs.replace(
        words,
        listeners=tuple(name.removeprefix("listeners.") for name in words.listeners),
        backs=tuple(name.removeprefix("backs.") for name in words.backs),
    )


def _bounded(words: SelectionWords) -> None:
    """What is asked for is held against every connection and every use. Raises INVALID for too much of it."""
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


def _running(running: Running) -> dict[str, Any]:
    recording, status = running.recording, running.status
    asked = recording.selection
    return {
        "id": recording.id,
        "kind": running.kind,
        "since": recording.since_ns // 1_000_000,
        "selection": {
            key: [str(one) if key == "peers" else one for one in getattr(asked, key)]
            for key in _SINGULAR.values()
            if getattr(asked, key)
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
