"""Recordings as scripts: for each conversation, in order, the client's messages and the bytes that the server sent.

A script is kept in a temporary file, so that a large recording takes no more memory than a small one.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from itertools import takewhile
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec

from penstock.tools.mock.client_messages import ClientMessage, alike, client_message_of
from penstock_analysis.capture import CaptureEvent, Chunk, Closed, Conversation, Lost, Opened, Sender, Side
from penstock_analysis.dialogue import Dialogue
from penstock_analysis.dialogue.choosing import ENOUGH, dialogue_for, spoken_by
from penstock_analysis.plugin import plugins
from penstock_codecs.http import PREFACE

__all__ = ["Entry", "Script", "ScriptPart", "ServerBytes", "ServerEnd", "spoken"]

MOST_OPENING_BYTES: Final = 4096
"""Bytes of a server before its client's first message that may be sent before it is known which conversation is
played."""
_ENTRIES_AT_ONCE: Final = 32
_SCHEMA: Final = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE part (id INTEGER PRIMARY KEY, number INTEGER, speaks TEXT, opening BLOB, kind TEXT, text TEXT,
                   played INTEGER DEFAULT 0);
CREATE INDEX unplayed ON part (played, speaks, id);
CREATE TABLE entry (part INTEGER, place INTEGER, time_ns INTEGER, what TEXT, exchange INTEGER, text TEXT, data BLOB,
                    PRIMARY KEY (part, place)) WITHOUT ROWID;
"""
_OPENINGS: Final = "SELECT DISTINCT opening FROM part WHERE NOT played AND speaks = ?"
_NEXT: Final = "SELECT id, number, opening, kind, text FROM part WHERE NOT played AND speaks = ?{} ORDER BY id LIMIT 1"
_ALIKE: Final = " AND text GLOB '*[*][*][*]*' AND alike(text, ?)"
_ENTRIES: Final = (
    "SELECT time_ns, what, exchange, text, data FROM entry WHERE part = ? AND place >= ? ORDER BY place LIMIT ?"
)


class ServerBytes(NamedTuple):
    """Bytes that the server sent at once."""

    time_ns: int
    data: bytes


class ServerEnd(NamedTuple):
    """The end of the server's bytes or, with `reset`, of the connection."""

    time_ns: int
    reset: bool


Entry = ServerBytes | ServerEnd | tuple[int, ClientMessage]
"""An action of the server, or a message of the client with its time."""


class ScriptPart(msgspec.Struct, frozen=True):
    """One recorded conversation. `number`: as `penstock show` numbers it; `opening`: the server's bytes before the
    client's first message; `kind`, `text`: of that message."""

    id: int
    number: int
    opening: bytes
    kind: str
    text: str


def spoken(protocol: str, first: bytes) -> str | None:
    """Return the client's protocol, to find similar conversations: a plug-in, `h2`, or "" for anything else. None: more
    of its first bytes are needed."""
    if first.startswith(PREFACE[: len(first)]) and len(first) < len(PREFACE):
        return None
    if first.startswith(PREFACE):
        return "h2"
    plugin = plugins().get(protocol)
    if plugin is not None and not plugin.over_http:
        return protocol
    return spoken_by(Sender.CLIENT, first)


class _Reading(msgspec.Struct):
    """A conversation that is being loaded."""

    id: int
    dialogue: Dialogue
    first: bytes = b""
    opening: bytes = b""
    place: int = 0
    first_message: ClientMessage | None = None
    broken: str = ""
    closed: set[Sender] = msgspec.field(default_factory=set)


class Script:
    """A script: the conversations of a recording. A context manager that deletes the file at its end."""

    def __init__(self, protocol: str | None = None, side: Side = Side.FRONT) -> None:
        """Select conversations. `protocol`: only those of this protocol; `side`: those on this side, and those that no
        gateway recorded."""
        self._protocol = protocol
        self._side = side
        self._reading: dict[Conversation, _Reading] = {}
        self._count = 0
        self.left_out: dict[str, int] = {}
        """Number of conversations that cannot be played, by the reason."""

    def __enter__(self) -> Self:
        """Create the file."""
        self._file = tempfile.NamedTemporaryFile(prefix="penstock-mock-")
        self._rows = sqlite3.connect(self._file.name, isolation_level=None, check_same_thread=False)
        self._rows.executescript(_SCHEMA)
        self._rows.create_function("alike", 2, alike, deterministic=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete the file."""
        self._rows.close()
        self._file.close()

    # ---- from a recording ----------------------------------------------------------------------------------------

    def load(self, events: Iterable[CaptureEvent]) -> None:
        """Load all conversations of a capture."""
        self._rows.execute("BEGIN")
        for event in events:
            self._take(event)
        for reading in self._reading.values():
            self._finish(reading)
        self._reading.clear()
        self._rows.execute("COMMIT")

    def _take(self, event: CaptureEvent) -> None:
        conversation = event.conversation
        reading = self._reading.get(conversation)
        if reading is None:
            if not isinstance(event, Opened | Chunk) or not self._wants(conversation):
                return
            reading = self._reading[conversation] = self._begin(conversation, event)
        if isinstance(event, Lost):
            reading.broken = reading.broken or "some of its bytes are missing"
        if isinstance(event, Chunk) and event.sender is Sender.SERVER:
            data = bytes(event.data)
            if reading.first_message is None and len(reading.opening) < MOST_OPENING_BYTES:
                reading.opening += data
            self._write(reading, event.time_ns, "bytes", data=data)
        elif isinstance(event, Chunk) and len(reading.first) < ENOUGH:
            reading.first += bytes(event.data[:ENOUGH])
        for item in reading.dialogue.receive(event):
            message = client_message_of(item)
            if message is not None:
                reading.first_message = reading.first_message or message
                self._write(reading, event.time_ns, message.kind, message.exchange, message.text, offset=message.offset)
        if isinstance(event, Closed) and self._closes(reading, event):
            self._finish(reading)
            del self._reading[conversation]

    def _wants(self, conversation: Conversation) -> bool:
        if conversation.side not in (self._side, Side.FOREIGN) or conversation.protocol == "management":
            return False
        return self._protocol is None or conversation.protocol in (self._protocol, "")

    def _begin(self, conversation: Conversation, event: CaptureEvent) -> _Reading:
        self._count += 1
        reading = _Reading(self._count, dialogue_for(conversation))
        if not isinstance(event, Opened) or event.client_offset or event.server_offset:
            reading.broken = "its beginning was not recorded"
        self._rows.execute("INSERT INTO part (id, number) VALUES (?, ?)", (reading.id, conversation.number))
        return reading

    def _closes(self, reading: _Reading, event: Closed) -> bool:
        reading.closed.add(event.sender)
        if event.sender is Sender.SERVER:  # the client's end is not replayed
            self._write(reading, event.time_ns, "reset" if event.reset else "end")
        return event.reset or len(reading.closed) == len(Sender)

    def _write(
        self,
        reading: _Reading,
        time_ns: int,
        what: str,
        exchange: int = 0,
        text: str | None = None,
        data: bytes = b"",
        offset: int = 0,
    ) -> None:
        row = reading.id, reading.place, time_ns, what, exchange, text, data if text is None else str(offset).encode()
        self._rows.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        reading.place += 1

    def _finish(self, reading: _Reading) -> None:
        if reading.first_message is None:
            reading.broken = reading.broken or "its client sent nothing"
        if reading.broken:
            self.left_out[reading.broken] = self.left_out.get(reading.broken, 0) + 1
            self._rows.execute("DELETE FROM part WHERE id = ?", (reading.id,))
            self._rows.execute("DELETE FROM entry WHERE part = ?", (reading.id,))
            return
        assert reading.first_message is not None
        row = (
            spoken(self._protocol or "", reading.first) or "",
            reading.opening[:MOST_OPENING_BYTES],
            reading.first_message.kind,
            reading.first_message.text,
            reading.id,
        )
        self._rows.execute("UPDATE part SET speaks = ?, opening = ?, kind = ?, text = ? WHERE id = ?", row)

    # ---- for a mock ----------------------------------------------------------------------------------------------

    @property
    def left(self) -> int:
        """Number of conversations that were not played."""
        return int(self._rows.execute("SELECT count(*) FROM part WHERE NOT played").fetchone()[0])

    def speaks(self, what: str) -> bool:
        """Return whether any conversation uses the protocol `what`."""
        return self._rows.execute("SELECT 1 FROM part WHERE speaks = ? LIMIT 1", (what,)).fetchone() is not None

    def opening(self, speaks: str) -> bytes:
        """Return the server's first bytes that all unplayed conversations have in common."""
        found = [row[0] for row in self._rows.execute(_OPENINGS, (speaks,))]
        if not found:
            return b""
        low, high = min(found), max(found)
        return bytes(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(low, high, strict=False)))

    def take(self, speaks: str, message: ClientMessage) -> ScriptPart | None:
        """Return the next unplayed conversation, and mark it as played: one whose client began with an equal message,
        as far as that was not redacted; else one that began with the same kind of message; else any of the same
        protocol. None if there is none."""
        conditions = ((" AND text = ?", [message.text]), (_ALIKE, [message.text]), (" AND kind = ?", [message.kind]))
        for condition, values in (*conditions, ("", [])):
            row = self._rows.execute(_NEXT.format(condition), [speaks, *values]).fetchone()
            if row is not None:
                self._rows.execute("UPDATE part SET played = 1 WHERE id = ?", (row[0],))
                return ScriptPart(*row)
        return None

    def remains(self, speaks: str) -> bool:
        """Return whether a conversation of the protocol was not played."""
        row = self._rows.execute("SELECT 1 FROM part WHERE NOT played AND speaks = ? LIMIT 1", (speaks,)).fetchone()
        return row is not None

    def again(self) -> None:
        """Mark all conversations as not played."""
        self._rows.execute("UPDATE part SET played = 0")

    def entries(self, part: ScriptPart) -> Iterator[Entry]:
        """Yield the entries of a conversation, in order."""
        place = 0
        while rows := self._rows.execute(_ENTRIES, (part.id, place, _ENTRIES_AT_ONCE)).fetchall():
            for time_ns, what, exchange, text, data in rows:
                if text is not None:
                    yield time_ns, ClientMessage(exchange, what, text, int(data))
                elif what == "bytes":
                    yield ServerBytes(time_ns, data)
                else:
                    yield ServerEnd(time_ns, what == "reset")
            place += len(rows)
