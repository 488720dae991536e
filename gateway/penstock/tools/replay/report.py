"""The report of a replay, and the count of what the live server has given, compared with the recording."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import trio

from penstock.capture.assigned_ids import AssignedIds
from penstock.capture.dialogue import APPENDED, Dialogue, Message, Problem
from penstock.capture.pcapng import CaptureEvent, Conversation, Opened, Sender
from penstock.capture.plugin import layers_over_http
from penstock.observe.taps.sink import Sink
from penstock.observe.taps.tap import Tap, Use
from penstock.recorder.captures.text import counted
from penstock.tools.replay.items import NewRecords, ServerGave, given_by

__all__ = ["MOST_SHOWN", "AnswerDifference", "ReplaySummary", "ReplayTally", "Report"]

MOST_SHOWN: Final = 20
"""Differences, waits and losses that are kept and shown for a conversation; a line says that there were more."""
_MORE: Final = "and there is more that was not carried"
MOST_KEPT: Final = 1000
"""Conversations whose reports are kept."""
_COMPARED: Final = ("answers", "appended", "refused", "delivered")
_COUNTS: Final = ("said", "answers", "appended", "refused", "delivered", "different", "ran_out")
_WORTH_SAYING: Final = 0.5
_COLUMNS: Final = ("connection", "protocol", "way", "said", "answers", "appended", "delivered", "different", "ran out")
_WORDS: Final = frozenset({"protocol", "way"})
_TOTALS: Final = (
    ("said", "messages said"),
    ("answers", "answers"),
    ("appended", "records appended"),
    ("delivered", "delivered"),
    ("different", "answers different"),
    ("ran_out", "waits ran out"),
)
MOST_ROWS: Final = 50
"""Conversations shown in the text; JSON has all that are kept."""
MOST_UNPAIRED: Final = 50_000
"""Answers, recorded or live, that wait for their counterpart to be compared with."""
_TOO_MANY: Final = f"not all answers were compared: the client had not waited for more than {MOST_UNPAIRED}"
Key = int | None
"""The recorded exchange; None if the conversation is counted as a whole."""


class AnswerDifference(msgspec.Struct):
    """An answer that differs from the recorded one. `exchange`: as `penstock show` numbers it, None if it belongs to
    none; later occurrences, also in other exchanges, are only counted in `times`."""

    exchange: int | None
    recorded: str
    live: str
    times: int = 1

    def __str__(self) -> str:
        where = "" if self.exchange is None else f"exchange {self.exchange}: "
        often = "" if self.times == 1 else f", {self.times} times"
        return f"{where}{self.recorded} was recorded, and {self.live} came{often}"


class Report(msgspec.Struct):
    """The report of one conversation. `said`: messages of the client; `answers`: first answers to requests; `appended`,
    `refused`, `delivered`: records; `ran_out`: waits that ended without what they waited for."""

    conversation: Conversation
    protocol: str
    way: str = ""
    """The way it was played: `direct` or `translated`."""
    said: int = 0
    answers: int = 0
    appended: int = 0
    refused: int = 0
    delivered: int = 0
    different: int = 0
    ran_out: int = 0
    differences: list[AnswerDifference] = msgspec.field(default_factory=list)
    waits: list[str] = msgspec.field(default_factory=list)
    not_carried: list[str] = msgspec.field(default_factory=list)

    def differs(self, exchange: int | None, recorded: str, live: str) -> None:
        """Record an answer that differs."""
        self.different += 1
        for difference in self.differences:
            if (difference.recorded, difference.live) == (recorded, live):
                difference.times += 1
                return
        if len(self.differences) < MOST_SHOWN:
            self.differences.append(AnswerDifference(exchange, recorded, live))

    def waited(self, reason: str) -> None:
        """Record a wait that ran out."""
        self.ran_out += 1
        if len(self.waits) < MOST_SHOWN:
            self.waits.append(reason)

    def leave_out(self, reason: str) -> None:
        """Record something that could not be played."""
        if reason in self.not_carried:
            return
        self.not_carried.append(reason if len(self.not_carried) < MOST_SHOWN else _MORE)
        del self.not_carried[MOST_SHOWN + 1 :]

    @property
    def same(self) -> bool:
        """True if nothing differed from the recording."""
        return not (self.different or self.ran_out or self.not_carried)

    def as_json(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            "connection": self.conversation.number,
            "client": str(self.conversation.client),
            "protocol": self.protocol,
            "way": self.way,
            **{name: getattr(self, name) for name in _COUNTS},
            "differences": [
                {
                    "exchange": difference.exchange,
                    "recorded": difference.recorded,
                    "live": difference.live,
                    "times": difference.times,
                }
                for difference in self.differences
            ],
            "waits": self.waits,
            "not_carried": self.not_carried,
        }


class ReplaySummary(msgspec.Struct):
    """The report of a whole replay. `left_out`: conversations that were not played, by reason; `late_seconds`: the
    largest delay behind the pace; `damage`: what is wrong with the capture. Of many conversations the first are kept,
    and those that differed; the totals count all."""

    conversations: list[Report] = msgspec.field(default_factory=list)
    left_out: dict[str, int] = msgspec.field(default_factory=dict)
    missed: bool = False
    """True if a conversation that was selected could not be played."""
    late_seconds: float = 0.0
    damage: str | None = None
    reached: bool = False
    """True if the server received a request; False if this process refused all of them."""
    interrupted: bool = False
    """True if the replay was stopped before its end."""
    count: int = 0
    differs: bool = False
    """True if a conversation that was played differed."""
    totals: Counter[str] = msgspec.field(default_factory=Counter)

    @property
    def same(self) -> bool | None:
        """True if nothing differed from the recording; None if nothing was compared, as the server received no
        request."""
        if self.differs or self.missed or self.interrupted:
            return False
        return True if self.reached and any(self.totals[name] for name in _COMPARED) else None

    def count_left_out(self, reason: str, *, wanted: bool) -> None:
        """Count a conversation that is not played. `wanted`: although it was selected."""
        self.missed = self.missed or wanted
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def add(self, report: Report) -> None:
        """Add the report of a conversation that is done."""
        self.count += 1
        self.differs = self.differs or not report.same
        self.reached = self.reached or (report.way == "direct" and report.said > 0)
        for name in _COUNTS:
            self.totals[name] += getattr(report, name)
        if len(self.conversations) < MOST_KEPT:
            self.conversations.append(report)
        elif not report.same:
            place = next(
                (place for place, conversation_report in enumerate(self.conversations) if conversation_report.same),
                None,
            )
            if place is not None:
                self.conversations[place] = report

    def stop(self) -> None:
        """Record that the replay was stopped before its end."""
        self.interrupted = True

    @property
    def vain(self) -> bool:
        """True if nothing at all was as recorded: the server could not be reached, or refused everything."""
        answered_otherwise = 0 < self.totals["answers"] <= self.totals["different"]
        return (bool(self.count) or self.missed) and (not self.totals["said"] or answered_otherwise)

    def as_json(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            "conversations": [report.as_json() for report in self.conversations],
            "total": {"conversations": self.count, **{name: self.totals[name] for name in _COUNTS}},
            "left_out": self.left_out,
            "late_seconds": round(self.late_seconds, 3),
            "damage": self.damage,
            "interrupted": self.interrupted,
            "same": self.same,
        }

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text."""
        reports = sorted(self.conversations, key=lambda report: report.conversation.number)
        yield from _table(reports, self.count)
        for report in reports:
            yield from _remarks(report)
        for reason, count in self.left_out.items():
            yield f"not played: {count} {'conversation' if count == 1 else 'conversations'}: {reason}"
        if self.damage is not None:
            yield f"the capture is damaged: {self.damage}"
        if self.late_seconds >= _WORTH_SAYING:
            yield f"up to {self.late_seconds:.1f} s behind the pace"
        totals = ", ".join(f"{self.totals[name]} {words}" for name, words in _TOTALS)
        yield f"{self.count} {'conversation' if self.count == 1 else 'conversations'}: {totals}"
        if self.same is None:
            yield "nothing was compared: the server was asked nothing that it answered in the recording"


def _table(reports: Sequence[Report], count: int) -> Iterator[str]:
    rows = [
        (
            str(report.conversation.number),
            report.protocol,
            report.way,
            *(
                str(getattr(report, name))
                for name in ("said", "answers", "appended", "delivered", "different", "ran_out")
            ),
        )
        for report in reports[:MOST_ROWS]
    ]
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    for row in (_COLUMNS, *rows):
        sized = [
            cell.ljust(width) if column in _WORDS else cell.rjust(width)
            for column, cell, width in zip(_COLUMNS, row, widths, strict=True)
        ]
        yield "  ".join(sized).rstrip()
    if count > len(rows):
        yield f"and {count - len(rows)} more"


def _remarks(report: Report) -> Iterator[str]:
    name = f"connection {report.conversation.number}"
    for difference in report.differences:
        yield f"{name}: {difference}"
    rest = report.different - sum(one.times for one in report.differences)
    if rest:
        yield f"{name}: and {rest} more answers were different"
    for reason in report.waits:
        yield f"{name}: {reason}"
    if report.ran_out > len(report.waits):
        yield f"{name}: and {report.ran_out - len(report.waits)} more waits ran out"
    for reason in report.not_carried:
        yield f"{name}: {reason}"


class ReplayTally:
    """Counts what the live connection gives (as a Sink of its tap), and what the recorded one had given by the same
    point.

    `make`: returns a dialogue for a connection; there may be several, one after the other. `key_of`: maps an exchange
    of the live dialogue to the recorded one. `changed` is unparked whenever something was received.
    """

    def __init__(
        self,
        make: Callable[[], Dialogue],
        report: Report,
        key_of: Callable[[int | None], int | None],
        by_exchange: bool,
        ids: AssignedIds,
    ) -> None:
        self._make = make
        self._dialogue = make()
        self._report = report
        self._key_of = key_of
        self._by_exchange = by_exchange
        self._ids = ids
        self._got: Counter[tuple[Key, str]] = Counter()
        self._wanted: Counter[tuple[Key, str]] = Counter()
        self._recorded: dict[int | None, deque[ServerGave]] = {}
        self._live: dict[int | None, deque[ServerGave]] = {}
        self._new = NewRecords()
        self._recorded_records: Counter[Key] = Counter()
        self._live_records: Counter[Key] = Counter()
        self._forgiven: set[Key] = set()
        self._dropped = 0  # live answers that are not compared
        self._differing: set[int | None] = set()  # exchanges whose answers differ
        self.changed = trio.lowlevel.ParkingLot()
        self.over = ""
        """The reason why nothing more will be received; "" while more may be."""

    # ---- the live server -------------------------------------------------------------------------------------------

    generation = 0

    def put(self, event: CaptureEvent) -> bool:
        """See `penstock.observe.taps.sink.Sink`."""
        if isinstance(event, Opened):
            self._dialogue = self._make()
        for item in self._dialogue.receive(event):
            self._add(item)
        self.changed.unpark_all()
        return True

    def used(self, tap: Tap, use: Use) -> None:
        """See `penstock.observe.taps.tap.Watcher`."""

    def dropped(self, tap: Tap, sink: Sink, generation: int) -> None:
        """Ignore dropped events: this sink drops none."""

    def ended(self, tap: Tap) -> None:
        """See `penstock.observe.taps.tap.Watcher`."""

    def _add(self, item: Message | Problem) -> None:
        if isinstance(item, Problem):
            if item.sender is Sender.CLIENT:
                self._report.said += item.fatal
            elif item.fatal:
                self.end(f"the server broke the protocol: {item.rule}")
            return
        self._count(item)
        if item.sender is Sender.CLIENT:
            return
        exchange = self._key_of(item.exchange)
        response = given_by(
            item, exchange if self._by_exchange else None, NewRecords() if self._by_exchange else self._new
        )
        if response is None or (self._by_exchange and exchange is None):
            return
        self._got[response.exchange, "answers"] += response.answers
        self._got[response.exchange, "records"] += response.records
        if self._by_exchange:
            self._live_records[exchange] += response.delivered
        if response.outcome:
            self._pair(exchange, response, self._live, self._recorded)

    def _count(self, message: Message) -> None:
        report = self._report
        if message.sender is Sender.CLIENT:
            report.said += message.layer != "http" or message.exchange is not None
        elif message.answers is not None or (message.failure and message.layer not in layers_over_http()):
            report.answers += 1
        if count := len(message.records):
            first = message.records[0]
            if first.action != APPENDED:
                report.delivered += count
            elif first.acknowledged:
                report.appended += count
            else:
                report.refused += count

    def end(self, reason: str) -> None:
        """Record why nothing more will be received."""
        self.over = self.over or reason
        self.changed.unpark_all()

    # ---- the recorded server ---------------------------------------------------------------------------------------

    def want(self, response: ServerGave) -> None:
        """Add what the recorded server gave to what is waited for."""
        self._wanted[response.exchange, "answers"] += response.answers
        self._wanted[response.exchange, "records"] += response.records
        if self._by_exchange:
            self._recorded_records[response.exchange] += response.delivered
        if response.outcome:
            self._pair(response.asked, response, self._recorded, self._live)

    def has(self, exchange: Key) -> bool:
        """Return whether the live server has given as much as the recorded one in this exchange."""
        return all(self._got[exchange, what] >= self._wanted[exchange, what] for what in ("answers", "records"))

    def missing(self, exchange: Key) -> str:
        """Return what the live server has not given yet, in words."""
        return " and ".join(filter(None, (self._lacking(exchange, what) for what in ("answers", "records"))))

    def _lacking(self, exchange: Key, what: str) -> str:
        wanted, got = self._wanted[exchange, what], self._got[exchange, what]
        return f"{wanted - got} of {wanted} {what}" if got < wanted else ""

    def lost(self, exchange: Key) -> str:
        """Return the records that the live server has not given, in words; "" if a differing answer is reported for the
        exchange."""
        return "" if exchange is not None and exchange in self._differing else self._lacking(exchange, "records")

    def forgive(self, exchange: Key) -> None:
        """Stop waiting for what is missing, which is reported."""
        self._forgiven.add(exchange)
        for what in ("answers", "records"):
            self._got[exchange, what] = max(self._got[exchange, what], self._wanted[exchange, what])

    def forget(self, exchange: Key) -> None:
        """Drop the counts of an exchange that is over on both sides."""
        for what in ("answers", "records"):
            self._got.pop((exchange, what), None)
            self._wanted.pop((exchange, what), None)
        self._differing.discard(exchange)
        self._forgiven.discard(exchange)
        self._recorded_records.pop(exchange, None)
        self._live_records.pop(exchange, None)

    def compare_records(self, exchange: Key) -> None:
        """Report how many records a whole answer delivered (None: all answers of the conversation), if the recorded one
        delivered another number and nothing else is reported of it."""
        recorded, live = self._recorded_records[exchange], self._live_records[exchange]
        if recorded != live and exchange not in self._forgiven and exchange not in self._differing:
            totals = (f"a total of {counted(number, 'record')}" for number in (recorded, live))
            self._report.differs(exchange, *totals)

    # ---- answers, side by side -------------------------------------------------------------------------------------

    def _pair(
        self,
        exchange: int | None,
        response: ServerGave,
        own: dict[int | None, deque[ServerGave]],
        others: dict[int | None, deque[ServerGave]],
    ) -> None:
        """Compare an answer with its counterpart, or keep it until that is there."""
        waiting = others.get(exchange)
        if not waiting:
            if own is self._recorded and self._dropped:
                self._dropped -= 1
            elif len(own) < MOST_UNPAIRED:
                own.setdefault(exchange, deque(maxlen=MOST_UNPAIRED)).append(response)
            elif own is self._live:
                self._dropped += 1
                self._report.leave_out(_TOO_MANY)
            return
        other = waiting.popleft()
        if not waiting:
            del others[exchange]
        recorded, live = (response, other) if own is self._recorded else (other, response)
        self._ids.learn(recorded.ids, live.ids)
        if recorded.outcome != live.outcome:
            self._report.differs(exchange, recorded.outcome, live.outcome)
            if self._by_exchange:
                self._differing.add(exchange)
        elif not self._by_exchange and recorded.alone:
            self._recorded_records[None] += recorded.delivered
            self._live_records[None] += live.delivered

    def unanswered(self) -> Iterator[tuple[int | None, str]]:
        """Yield recorded answers that the live server never gave."""
        for exchange, answers in self._recorded.items():
            for answer in answers:
                yield exchange, answer.outcome
