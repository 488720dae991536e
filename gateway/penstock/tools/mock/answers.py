"""The exchanges of recordings, in a temporary database, so that a large recording takes no more memory than a small
one."""

from __future__ import annotations

import json
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec

from penstock.capture.pcapng import CaptureEvent, Closed, Conversation, Sender
from penstock.model.expressions import compile_expression
from penstock.net.listeners import MANAGEMENT
from penstock.tools.mock.exchanges import ExchangeReader, Part, PartKind, exchange_reader
from penstock.tools.replay.recorded import protocol_of

__all__ = ["AnswerBook", "RecordedAnswer", "Undecided", "alike", "same_bytes"]

_SCHEMA: Final = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE exchange (id INTEGER PRIMARY KEY, test TEXT, protocol TEXT, head TEXT, before INTEGER DEFAULT 0,
                       answered INTEGER DEFAULT 0, given INTEGER DEFAULT 0);
CREATE INDEX by_head ON exchange (head, given);
CREATE TABLE part (exchange INTEGER, place INTEGER, kind TEXT, data BLOB, text TEXT, PRIMARY KEY (exchange, place))
  WITHOUT ROWID;
"""
_FOUND: Final = """
SELECT id, head, before FROM exchange
WHERE {} AND given <= ? AND answered AND test IN (?, '') AND protocol IN (?, '') ORDER BY test = '', id {}
"""
_EXACT: Final = "head = ?"
_REDACTED: Final = "head GLOB '*[*][*][*]*' AND alike(head, ?)"
_PARTS_AT_ONCE: Final = 32
_BLANKED: Final = re.compile(r"\*{3,}")
"""The recorder's replacement for a secret."""
_ANYTHING: Final = rb'(?:[^"\\]|\\(?s:.))*'
"""Pattern for any text in its place, within one string of JSON."""
MOST_WAITING: Final = 1000
"""Events of a conversation after which its protocol is taken to be unknown."""


class Undecided(Enum):
    """The reason for which a request has no answer yet."""

    MORE = "more"
    """More of it must come."""
    MISS = "miss"
    """It was not recorded."""


class RecordedAnswer(NamedTuple):
    """An exchange that answers a request. `title`: names the request."""

    id: int
    title: str


class _Open(msgspec.Struct):
    """An exchange that is being loaded. `before`: the parts before the first one of the answer."""

    id: int
    place: int = 0
    before: int | None = None


class _Loading(msgspec.Struct):
    """A conversation that is being loaded. `waiting`: its events until its protocol is known; `closed`: the sides that
    have ended."""

    waiting: list[CaptureEvent] = msgspec.field(default_factory=list)
    protocol: str | None = None
    reader: ExchangeReader | None = None
    exchanges: dict[int, _Open] = msgspec.field(default_factory=dict)
    closed: set[Sender] = msgspec.field(default_factory=set)


def alike(recorded: str, live: str) -> bool:
    """Return whether two texts are equal, apart from redacted parts of the recorded one."""
    if recorded == live:
        return True
    first, *parts = (part.encode("utf-8", "surrogatepass") for part in _BLANKED.split(recorded))
    text = live.encode("utf-8", "surrogatepass")
    if not parts or not text.startswith(first) or not text[len(first) :].endswith(parts[-1]):
        return False
    between = _ANYTHING.join((b"", *map(re.escape, parts[:-1]), b""))
    return compile_expression(between).fullmatch(text[len(first) : len(text) - len(parts[-1])]) is not None


def same_bytes(recorded: bytes, live: bytes) -> bool:
    """Return whether bytes are equal, apart from redacted parts of the recorded ones."""
    return recorded == live or (b"***" in recorded and alike(recorded.decode("latin-1"), live.decode("latin-1")))


class AnswerBook:
    """The exchanges of recordings. A context manager that deletes the database at its end."""

    def __init__(
        self, *, repeats: bool = False, without: Callable[[str, str], bool] = lambda _kind, _name: False
    ) -> None:
        """`repeats`: the last of equal exchanges is given again when all were given. `without`: whether exchanges of a
        protocol about a stream are left out."""
        self._repeats = repeats
        self._without = without
        self.unplayable = 0
        """Number of conversations that cannot be taken apart."""

    def __enter__(self) -> Self:
        """Create the database."""
        self._file = tempfile.NamedTemporaryFile(prefix="penstock-mock-")
        self._rows = sqlite3.connect(self._file.name, isolation_level=None)
        self._rows.executescript(_SCHEMA)
        self._rows.create_function("alike", 2, alike, deterministic=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete the database."""
        self._rows.close()
        self._file.close()

    # ---- from recordings -----------------------------------------------------------------------------------------

    def load(self, events: Iterable[CaptureEvent], test: str) -> None:
        """Add the exchanges of a recording. `test`: the one that they answer, "" for all."""
        loading: dict[Conversation, _Loading] = {}
        self._rows.execute("BEGIN")
        for event in events:
            conversation = event.conversation
            if conversation.protocol == MANAGEMENT:
                continue
            conversation_state = loading.setdefault(conversation, _Loading())
            self._take(conversation_state, event, test)
            if isinstance(event, Closed):
                conversation_state.closed.add(event.sender)
                if event.reset or len(conversation_state.closed) == len(Sender):
                    self.unplayable += conversation_state.reader is None
                    del loading[conversation]
        self.unplayable += sum(conversation_state.reader is None for conversation_state in loading.values())
        self._rows.execute("COMMIT")

    def _take(self, loading: _Loading, event: CaptureEvent, test: str) -> None:
        if loading.protocol is not None:
            self._put(loading, event, test)
            return
        loading.waiting.append(event)
        loading.protocol = protocol_of(event.conversation, loading.waiting)
        if loading.protocol is None and len(loading.waiting) < MOST_WAITING:
            return
        loading.protocol = loading.protocol or ""
        loading.reader = exchange_reader(event.conversation, loading.protocol)
        for waiting in loading.waiting:
            self._put(loading, waiting, test)
        loading.waiting = []

    def _put(self, loading: _Loading, event: CaptureEvent, test: str) -> None:
        if loading.reader is None:
            return
        for part in loading.reader.receive(event):
            if part.kind is PartKind.REQUEST:
                if self._without(loading.protocol or "", part.stream):
                    continue
                row = test, loading.protocol, part.text
                made = self._rows.execute("INSERT INTO exchange (test, protocol, head) VALUES (?, ?, ?)", row)
                assert made.lastrowid is not None
                loading.exchanges[part.exchange] = _Open(made.lastrowid)
            elif (opened := loading.exchanges.get(part.exchange)) is not None:
                self._add(opened, part)
                if part.kind in (PartKind.END, PartKind.RESET):
                    del loading.exchanges[part.exchange]

    def _add(self, opened: _Open, part: Part) -> None:
        if opened.before is None and part.kind not in (PartKind.ASKED, PartKind.ASKED_ALL):
            opened.before = opened.place
            row = opened.before, opened.id
            self._rows.execute("UPDATE exchange SET answered = 1, before = ? WHERE id = ?", row)
        row_of_part = opened.id, opened.place, part.kind.value, part.data, part.text
        self._rows.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?)", row_of_part)
        opened.place += 1

    # ---- for a mock ----------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of exchanges."""
        return int(self._rows.execute("SELECT count(*) FROM exchange WHERE answered").fetchone()[0])

    def choose(
        self, test: str, protocol: str, head: str, request_bytes: bytes, whole: bool
    ) -> RecordedAnswer | Undecided:
        """Return the answer to a request, and mark it as given: of those that were recorded for the test the first,
        then of those for all. `request_bytes`: the client's bytes so far; `whole`: no more will come."""
        may_follow = False
        for times_given in (0, 1) if self._repeats else (0,):
            for condition in (_EXACT, _REDACTED):
                query = _FOUND.format(condition, "DESC" if times_given else "")
                for number, recorded, before in self._rows.execute(query, (head, times_given, test, protocol)):
                    verdict = self._compare(number, before, request_bytes, whole)
                    if verdict is None:
                        self._rows.execute("UPDATE exchange SET given = 1 WHERE id = ?", (number,))
                        return RecordedAnswer(number, recorded.partition("\n")[0])
                    may_follow = may_follow or verdict is Undecided.MORE
        return Undecided.MORE if may_follow else Undecided.MISS

    def _compare(self, number: int, before: int, request_bytes: bytes, whole: bool) -> Undecided | None:
        """Compare a request with what was asked before an answer began; return None if they are the same."""
        query = "SELECT kind, data FROM part WHERE exchange = ? AND place < ? ORDER BY place"
        rows = self._rows.execute(query, (number, before)).fetchall()
        wanted = b"".join(data for _, data in rows)
        ended = any(kind == PartKind.ASKED_ALL.value for kind, _ in rows)
        if ended:
            if whole:
                return None if same_bytes(wanted, request_bytes) else Undecided.MISS
        elif len(request_bytes) >= len(wanted):
            return None if same_bytes(wanted, request_bytes[: len(wanted)]) else Undecided.MISS
        begins = b"***" in wanted or wanted.startswith(request_bytes)
        return Undecided.MORE if begins and not whole else Undecided.MISS

    def parts(self, answer: RecordedAnswer) -> Iterator[Part]:
        """Yield the parts of an exchange behind its head, in order."""
        query = "SELECT kind, data, text FROM part WHERE exchange = ? AND place >= ? ORDER BY place LIMIT ?"
        place = 0
        while rows := self._rows.execute(query, (answer.id, place, _PARTS_AT_ONCE)).fetchall():
            for kind, data, text in rows:
                yield Part(answer.id, PartKind(kind), data, text)
            place += len(rows)

    def never_asked(self, tests: Iterable[str]) -> list[tuple[str, str]]:
        """Return the exchanges of these tests that were not given: each test, and the request."""
        query = (
            "SELECT test, head FROM exchange WHERE NOT given AND answered "
            "AND test IN (SELECT value FROM json_each(?)) ORDER BY id"
        )
        rows = self._rows.execute(query, (json.dumps(list(tests)),))
        return [(test, head.partition("\n")[0]) for test, head in rows]
