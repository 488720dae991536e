"""A count of what the live server has given, compared with the recording."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Final

import trio

from penstock.observe.taps.sink import Sink
from penstock.observe.taps.tap import Tap, Use
from penstock.recorder.captures.text import counted
from penstock.tools.replay.items import NewRecords, ServerGave, given_by
from penstock.tools.replay.report import Report
from penstock_analysis.assigned_ids import AssignedIds
from penstock_analysis.capture import CaptureEvent, Opened, Sender
from penstock_analysis.dialogue import APPENDED, Dialogue, Message, Problem
from penstock_analysis.plugin import layers_over_http

__all__ = ["ReplayTally"]

MOST_UNPAIRED: Final = 50_000
"""Answers, recorded or live, that wait for their counterpart to be compared with."""
_TOO_MANY: Final = f"not all answers were compared: the client had not waited for more than {MOST_UNPAIRED}"

Key = int | None
"""The recorded exchange; None if the conversation is counted as a whole."""


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
        asked = self._key_of(item.exchange)
        given = given_by(item, asked if self._by_exchange else None, NewRecords() if self._by_exchange else self._new)
        if given is None or (self._by_exchange and asked is None):
            return
        self._got[given.exchange, "answers"] += given.answers
        self._got[given.exchange, "records"] += given.records
        if self._by_exchange:
            self._live_records[asked] += given.delivered
        if given.outcome:
            self._pair(asked, given, self._live, self._recorded)

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

    def end(self, why: str) -> None:
        """Record why nothing more will be received."""
        self.over = self.over or why
        self.changed.unpark_all()

    # ---- the recorded server ---------------------------------------------------------------------------------------

    def want(self, given: ServerGave) -> None:
        """Add what the recorded server gave to what is waited for."""
        self._wanted[given.exchange, "answers"] += given.answers
        self._wanted[given.exchange, "records"] += given.records
        if self._by_exchange:
            self._recorded_records[given.exchange] += given.delivered
        if given.outcome:
            self._pair(given.asked, given, self._recorded, self._live)

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
        asked: int | None,
        given: ServerGave,
        own: dict[int | None, deque[ServerGave]],
        others: dict[int | None, deque[ServerGave]],
    ) -> None:
        """Compare an answer with its counterpart, or keep it until that is there."""
        waiting = others.get(asked)
        if not waiting:
            if own is self._recorded and self._dropped:
                self._dropped -= 1
            elif len(own) < MOST_UNPAIRED:
                own.setdefault(asked, deque(maxlen=MOST_UNPAIRED)).append(given)
            elif own is self._live:
                self._dropped += 1
                self._report.leave_out(_TOO_MANY)
            return
        other = waiting.popleft()
        if not waiting:
            del others[asked]
        recorded, live = (given, other) if own is self._recorded else (other, given)
        self._ids.learn(recorded.ids, live.ids)
        if recorded.outcome != live.outcome:
            self._report.differs(asked, recorded.outcome, live.outcome)
            if self._by_exchange:
                self._differing.add(asked)
        elif not self._by_exchange and recorded.alone:
            self._recorded_records[None] += recorded.delivered
            self._live_records[None] += live.delivered

    def unanswered(self) -> Iterator[tuple[int | None, str]]:
        """Yield recorded answers that the live server never gave."""
        for asked, answers in self._recorded.items():
            for answer in answers:
                yield asked, answer.outcome
