"""What a replay did, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock_codecs.capture import Conversation

__all__ = ["MOST_SHOWN", "Difference", "Report", "Summary"]

MOST_SHOWN: Final = 20
"""So many differences, waits and things that were not carried are kept and shown; that there were more is told."""
_MORE: Final = "and there is more that was not carried"


@dataclass(slots=True)
class Difference:
    """An answer that was another one. `exchange`: as `penstock show` numbers it; None: it belongs to none. `times`: how
    often that happened, there and then in other exchanges."""

    exchange: int | None
    recorded: str
    live: str
    times: int = 1

    def __str__(self) -> str:
        where = "" if self.exchange is None else f"exchange {self.exchange}: "
        often = "" if self.times == 1 else f", {self.times} times"
        return f"{where}{self.recorded} was recorded, and {self.live} came{often}"


@dataclass(slots=True)
class Report:
    """Of one conversation. `said`: messages of the client; `answers`: first answers to requests; records that were
    acknowledged, refused and delivered; `ran_out`: waits that ended without what they waited for."""

    conversation: Conversation
    protocol: str
    way: str = ""
    """How it was played: `direct` or `translated`."""
    said: int = 0
    answers: int = 0
    appended: int = 0
    refused: int = 0
    delivered: int = 0
    different: int = 0
    ran_out: int = 0
    differences: list[Difference] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    not_carried: list[str] = field(default_factory=list)

    def differs(self, exchange: int | None, recorded: str, live: str) -> None:
        """An answer was another one."""
        self.different += 1
        for one in self.differences:
            if (one.recorded, one.live) == (recorded, live):
                one.times += 1
                return
        if len(self.differences) < MOST_SHOWN:
            self.differences.append(Difference(exchange, recorded, live))

    def waited(self, why: str) -> None:
        """A wait ran out."""
        self.ran_out += 1
        if len(self.waits) < MOST_SHOWN:
            self.waits.append(why)

    def leave_out(self, why: str) -> None:
        """Something could not be played."""
        if why in self.not_carried:
            return
        self.not_carried.append(why if len(self.not_carried) < MOST_SHOWN else _MORE)
        del self.not_carried[MOST_SHOWN + 1 :]

    @property
    def same(self) -> bool:
        """Whether nothing was different from the recording."""
        return not (self.different or self.ran_out or self.not_carried)

    def as_json(self) -> dict[str, Any]:
        """For JSON."""
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
"""Of conversations so many are kept."""
_COUNTS: Final = ("said", "answers", "appended", "refused", "delivered", "different", "ran_out")


@dataclass(slots=True)
class Summary:
    """Of a whole replay. `left_out`: conversations that were not played, by why; `late_seconds`: how far it fell behind
    its pace at the most; `damage`: what is wrong with the capture. Of many conversations the first are kept, and those
    that differed: the totals are of all."""

    conversations: list[Report] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    late_seconds: float = 0.0
    damage: str | None = None
    interrupted: bool = False
    """Not all was played: it was told to stop."""
    count: int = 0
    same: bool = True
    """Whether nothing was different from the recording."""
    totals: Counter[str] = field(default_factory=Counter)

    def count_left_out(self, why: str) -> None:
        """A conversation is not played."""
        self.left_out[why] = self.left_out.get(why, 0) + 1

    def add(self, report: Report) -> None:
        """A conversation is done."""
        self.count += 1
        self.same = self.same and report.same
        for name in _COUNTS:
            self.totals[name] += getattr(report, name)
        if len(self.conversations) < MOST_KEPT:
            self.conversations.append(report)
        elif not report.same:
            place = next((place for place, one in enumerate(self.conversations) if one.same), None)
            if place is not None:
                self.conversations[place] = report

    def stop(self) -> None:
        """Nothing more is played, though there was more."""
        self.interrupted, self.same = True, False

    @property
    def vain(self) -> bool:
        """Whether nothing at all was as it was recorded: the server was not there, or wanted nothing of it."""
        answered_otherwise = 0 < self.totals["answers"] <= self.totals["different"]
        return bool(self.count) and (not self.totals["said"] or answered_otherwise)

    def as_json(self) -> dict[str, Any]:
        """For JSON."""
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
        """For people."""
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
"""Of conversations so many are shown to people; JSON has all."""


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
