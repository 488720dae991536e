"""The report of a replay, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from penstock_analysis.capture import Conversation

__all__ = ["MOST_SHOWN", "AnswerDifference", "ReplaySummary", "Report"]

MOST_SHOWN: Final = 20
"""Differences, waits and losses that are kept and shown for a conversation; a line says that there were more."""
_MORE: Final = "and there is more that was not carried"


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
        for one in self.differences:
            if (one.recorded, one.live) == (recorded, live):
                one.times += 1
                return
        if len(self.differences) < MOST_SHOWN:
            self.differences.append(AnswerDifference(exchange, recorded, live))

    def waited(self, why: str) -> None:
        """Record a wait that ran out."""
        self.ran_out += 1
        if len(self.waits) < MOST_SHOWN:
            self.waits.append(why)

    def leave_out(self, why: str) -> None:
        """Record something that could not be played."""
        if why in self.not_carried:
            return
        self.not_carried.append(why if len(self.not_carried) < MOST_SHOWN else _MORE)
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
                {"exchange": one.exchange, "recorded": one.recorded, "live": one.live, "times": one.times}
                for one in self.differences
            ],
            "waits": self.waits,
            "not_carried": self.not_carried,
        }


MOST_KEPT: Final = 1000
"""Conversations whose reports are kept."""
_COMPARED: Final = ("answers", "appended", "refused", "delivered")
_COUNTS: Final = ("said", "answers", "appended", "refused", "delivered", "different", "ran_out")


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

    def count_left_out(self, why: str, *, wanted: bool) -> None:
        """Count a conversation that is not played. `wanted`: although it was selected."""
        self.missed = self.missed or wanted
        self.left_out[why] = self.left_out.get(why, 0) + 1

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
            place = next((place for place, one in enumerate(self.conversations) if one.same), None)
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
        for why, count in self.left_out.items():
            yield f"not played: {count} {'conversation' if count == 1 else 'conversations'}: {why}"
        if self.damage is not None:
            yield f"the capture is damaged: {self.damage}"
        if self.late_seconds >= _WORTH_SAYING:
            yield f"up to {self.late_seconds:.1f} s behind the pace"
        totals = ", ".join(f"{self.totals[name]} {words}" for name, words in _TOTALS)
        yield f"{self.count} {'conversation' if self.count == 1 else 'conversations'}: {totals}"
        if self.same is None:
            yield "nothing was compared: the server was asked nothing that it answered in the recording"


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


def _table(reports: Sequence[Report], count: int) -> Iterator[str]:
    rows = [
        (
            str(one.conversation.number),
            one.protocol,
            one.way,
            *(str(getattr(one, name)) for name in ("said", "answers", "appended", "delivered", "different", "ran_out")),
        )
        for one in reports[:MOST_ROWS]
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
    for why in report.waits:
        yield f"{name}: {why}"
    if report.ran_out > len(report.waits):
        yield f"{name}: and {report.ran_out - len(report.waits)} more waits ran out"
    for why in report.not_carried:
        yield f"{name}: {why}"
