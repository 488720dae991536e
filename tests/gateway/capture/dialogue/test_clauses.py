"""Every sentence that the codecs say about broken bytes has its clause, or is known to have none."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from penstock_pravega.capture.clauses import SEGMENT_ERRORS, segment_clause
from penstock_pravega.codec import (
    TYPE_TABLE,
    Dialect,
    Direction,
    appends,
    blocks,
    draft_order,
    frames,
    lists,
    partials,
    released_order,
    wire,
)
from penstock_pravega.codec import (
    decoder as hearing,
)
from penstock_s3p.capture.clauses import S3P_ERRORS, s3p_clause
from penstock_s3p.codec import commands, replies, source
from penstock_s3p.codec import errors as s3p_errors

RAISERS = {"bad_format", "over_limit", "bad_message", "S3PFault", "FrameFault", "Violation", "MalformedValue"}
WORDS = {
    "name": "an array",
    "expected": "element 1",
    "what": "element 1",
    "key": "COUNT",
    "MAX_DIGITS": "20",
    "self._direction": "client",
    "self.state": "inside a block",
    "type(": "KeepAlive",
    "cls.": "KeepAlive",
    "mark": "*",
    "bound": "the limit of 9 bytes",
    "word": "READ",
    "message.part": "Begin",
    "self.name": "name",
}
"""Values for some placeholders of the sentences; all others are numbers."""
NO_CLAUSE = {
    "element 1 is longer than 7 bytes",  # no line of the protocol has a longest
    "a list of 7, at most 7 are allowed",
    "more than 7 writers are set up on one connection",
    "AppendSetup for connection 7, which did not ask for it",  # said to ourselves, where we are the server
}
"""Limits of our own."""


def sentences(*modules: ModuleType) -> Iterator[str]:
    """The texts of all faults that are raised in these modules, with their places filled in."""
    for module in modules:
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            text = node.args[0]
            if name in RAISERS and isinstance(text, (ast.JoinedStr, ast.Constant)):
                yield filled(text)


def filled(text: ast.JoinedStr | ast.Constant) -> str:
    if isinstance(text, ast.Constant):
        return str(text.value)
    parts = []
    for part in text.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        elif isinstance(part, ast.FormattedValue):
            said = ast.unparse(part.value)
            parts.append(next((word for key, word in WORDS.items() if said.startswith(key)), "7"))
    return "".join(parts)


@pytest.mark.parametrize("sentence", sorted(set(sentences(commands, replies, source))))
def test_s3p(sentence: str) -> None:
    assert s3p_clause(sentence) or sentence in NO_CLAUSE


SEGMENT_MODULES = (appends, blocks, draft_order, frames, hearing, lists, partials, released_order, wire)


@pytest.mark.parametrize("sentence", sorted(set(sentences(*SEGMENT_MODULES))))
def test_segment(sentence: str) -> None:
    """Values of fields are said behind the name of the field."""
    said = sentence.replace("a element 1 of", "a length of -")
    assert segment_clause(said) or segment_clause(f"Hello.x: {said}") or sentence in NO_CLAUSE


@pytest.mark.parametrize("clause", [s3p_clause, segment_clause])
def test_other_sentences_have_none(clause: Callable[[str], str]) -> None:
    assert clause("the recording ends 7 bytes into a message") == clause("") == ""


def test_enough_sentences_are_found() -> None:
    """The search for them works."""
    assert len(set(sentences(commands, replies, source))) > 25
    assert len(set(sentences(*SEGMENT_MODULES))) > 40


def test_errors_of_s3p_are_explained() -> None:
    """Those of the specification, and what clients of Penstock meet."""
    for code in ("ERR_BAD_FORMAT", "ERR_LIMITS", "ERR_STREAM_EXISTS", "ERR_UNKNOWN_STREAM", "ERR_NON_MONOTONIC_ID"):
        assert S3P_ERRORS[code].clause.startswith("S3P 0.2.0, section")
    assert set(s3p_errors._CODES.values()) <= S3P_ERRORS.keys()


def test_errors_of_segments_are_explained() -> None:
    """All replies of the error table, and those of tables and conditional appends that refuse something."""
    replies = {cls for table in TYPE_TABLE.values() for cls in table.values() if cls.direction is Direction.REPLY}
    errors = {cls.__name__ for cls in replies if 50 <= cls.type_id <= 61 and cls.type_id not in (58, 59)}
    assert errors | {"ConditionalCheckFailed"} <= SEGMENT_ERRORS.keys()
    assert SEGMENT_ERRORS.keys() <= {cls.__name__ for cls in TYPE_TABLE[Dialect.RELEASED].values()}
    assert all(meaning.text and meaning.clause for meaning in SEGMENT_ERRORS.values())
