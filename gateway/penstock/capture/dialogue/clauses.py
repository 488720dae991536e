"""Rules of a protocol and the clauses of its specification behind them, and meanings of error replies.

Codecs describe faults in sentences; a table of rules maps each sentence to its clause. A sentence without an entry has
no clause: a limit that Penstock sets for itself, for instance.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Clauses", "ErrorMeaning"]


class ErrorMeaning(NamedTuple):
    """Meaning of an error reply, and the clause that defines it."""

    text: str
    clause: str


class Clauses:
    """The clauses of one document: rows of a regular expression for sentences, and the clause. The first that is found
    in a sentence counts."""

    def __init__(self, document: str, *rows: tuple[str, str]) -> None:
        self._rules = [(re.compile(pattern), f"{document} {clause}") for pattern, clause in rows]

    def of(self, rule: str) -> str:
        """Return the clause of a fault that the codec or the dialogue describes, or "" if there is none."""
        return next((clause for pattern, clause in self._rules if pattern.search(rule)), "")
