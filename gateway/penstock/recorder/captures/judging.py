"""Judgements of a capture: the clauses of its specification that each side of a protocol broke, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from penstock.capture.dialogue import Message, Problem
from penstock.capture.pcapng import Sender

__all__ = ["BrokenClause", "Judgement", "judged"]

UNKNOWN: Final = "unknown protocol"


class BrokenClause(msgspec.Struct):
    """The violations of one clause: the first, and their number."""

    first: Problem
    count: int = 0


class Judgement(msgspec.Struct):
    """One side of a protocol. `messages`: how many there are of each kind. `violations`: by clause. `others`: the
    number of problems that are no violation: missing bytes, and limits that Penstock sets for itself."""

    protocol: str
    sender: Sender
    messages: Counter[str] = msgspec.field(default_factory=Counter)
    violations: dict[str, BrokenClause] = msgspec.field(default_factory=dict)
    others: int = 0

    def take(self, item: Message | Problem) -> None:
        """Count a message or a problem of this side."""
        if isinstance(item, Message):
            if item.length:  # else it is the end of a conversation
                self.messages[item.kind] += 1
        elif item.clause:
            violation = self.violations.setdefault(item.clause, BrokenClause(item))
            violation.count += 1
        else:
            self.others += 1

    def as_line(self) -> dict[str, Any]:
        """Return the judgement for JSON; the bytes at the first wrong one as hexadecimal digits."""
        violations = [
            {
                "clause": clause,
                "count": found.count,
                "rule": found.first.rule,
                "connection": found.first.conversation.number,
                "offset": found.first.offset,
                "context": found.first.context.hex(),
                "context_offset": found.first.context_offset,
            }
            for clause, found in sorted(self.violations.items())
        ]
        return {
            "protocol": self.protocol,
            "sender": self.sender.value,
            "outcome": "fail" if violations else "pass",
            "messages": dict(sorted(self.messages.items())),
            "violations": violations,
            "others": self.others,
        }


def judged(items: Iterable[Message | Problem], sender: Sender | None = None) -> list[Judgement]:
    """Return the judgements of all messages and problems, in order of protocol; None: of both senders. Those of
    connections whose protocol is not known, as in foreign captures, are one."""
    judgements: dict[tuple[str, Sender], Judgement] = {}
    for item in items:
        protocol = item.conversation.protocol or UNKNOWN
        if sender in (None, item.sender):
            judgements.setdefault((protocol, item.sender), Judgement(protocol, item.sender)).take(item)
    return [judgements[key] for key in sorted(judgements, key=lambda key: (key[0], key[1].value))]
