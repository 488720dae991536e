"""Clauses of the segment fact sheet behind rules, and meanings of error replies."""

from __future__ import annotations

from typing import Final

from penstock.capture.dialogue.clauses import Clauses, ErrorMeaning

__all__ = ["SEGMENT_ERRORS", "segment_clause"]

SEGMENT: Final = "segment fact sheet,"
_CLAUSES: Final = Clauses(
    SEGMENT,
    # Frames and fields.
    (r"^unknown message type", "1.1: unknown type"),
    (r"^\w+ of -?\d+ bytes, at most", "1.1: the largest length of a message"),
    (r"is not for the (client|server) to send$", "1.3: who sends a message"),
    (r"bytes are needed and|message type -?\d+ where an Event", "1.3: the fields of a message"),
    (r": a (name|str) of \d+ bytes|not UTF-8", "0: str"),
    (r": a length of -|: a count of -", "0: bytes32"),
    (r": a (key|value) of \d+ bytes in", "1.3: Tables"),
    (r"is none of Begin \(0\)", "2, reading 4: Begin, Middle, End"),
    # The released protocol.
    (
        r"before Hello$|^Hello is not allowed|^a second Hello|^Hello with versions|^the peer speaks versions",
        "1.2: Hello and versions",
    ),
    (r"between AppendBlock and AppendBlockEnd$", "1.4: nothing else may come between"),
    (r"^AppendBlock(End)?[ .]", "1.4: AppendBlock and AppendBlockEnd"),
    (r"behind the whole events|^Padding or PartialEvent", "1.4: one trailing wrapper message"),
    (r"^event number ", "1.4: numbers must not go below the previous one"),
    (r"^an append of \d+ bytes", "1.1: the largest append"),
    (r"which was not set up$", "1.4: SetupAppend must precede data"),
    (r"not allowed outside an append$", "1.3: only inside an AppendBlock"),
    # The draft.
    (r"bytes where a message was expected$|^\w+ of \d+ bytes in \d+ bytes$", "2, reading 5: what Partials carry"),
    (r"Partials?\b", "2, readings 4 and 5: Partial"),
    (r"^BeginAppendBlock at", "2, reading 9: appending resumes where the server's level is"),
    (r"^BeginAppendBlock", "2, reading 6: BeginAppendBlock"),
    (r"^EndAppendBlock|of the block's length", "2, reading 7: EndAppendBlock"),
    (r"is not allowed (inside|outside|behind|before) ", "2, readings 6, 7 and 11: what may come when"),
    (r"in(side)? a block|at the end of a block|left in the block$", "2, reading 6: what stands in a block"),
    # Replies as answers.
    (r"^DataAppended of event number", "1.4: DataAppended"),
    (r"^SegmentRead from offset", "1.5: SegmentRead.offset must equal the request's offset"),
    (r"were read, and not the rest$|^the segment ends .* into the event", "1.5: events in a segment"),
)
segment_clause: Final = _CLAUSES.of
"""Clause of a fault that the segment codec or dialogue describes, or '' if there is none."""

_ERRORS_CLAUSE: Final = f"{SEGMENT} 1.3: error replies"
_TABLES_CLAUSE: Final = f"{SEGMENT} 1.3: Tables"
SEGMENT_ERRORS: Final[dict[str, ErrorMeaning]] = {
    "WrongHost": ErrorMeaning(
        "Another segment store serves the segment: correct_host, or ask the controller.", _ERRORS_CLAUSE
    ),
    "SegmentIsSealed": ErrorMeaning(
        "Nothing is ever appended to it again; writers go on with its successors.", _ERRORS_CLAUSE
    ),
    "SegmentAlreadyExists": ErrorMeaning("It was created before; most clients take that as success.", _ERRORS_CLAUSE),
    "NoSuchSegment": ErrorMeaning("It was never created, or it was deleted.", _ERRORS_CLAUSE),
    "InvalidEventNumber": ErrorMeaning(
        "The event number is not above the writer's last one that is stored. The server closes.",
        f"{SEGMENT} 1.4: idempotence",
    ),
    "SegmentIsTruncated": ErrorMeaning(
        "What was asked for lies before start_offset, where it begins now.", _ERRORS_CLAUSE
    ),
    "OperationUnsupported": ErrorMeaning("The server does not do that.", _ERRORS_CLAUSE),
    "AuthTokenCheckFailed": ErrorMeaning(
        "The delegation token was refused: error_code 0 failed, 1 expired, -1 not specified.", _ERRORS_CLAUSE
    ),
    "ErrorMessage": ErrorMeaning("Anything else: error_code 0 an illegal argument, -1 not specified.", _ERRORS_CLAUSE),
    "ConditionalCheckFailed": ErrorMeaning(
        "The segment did not end at the expected offset. Nothing was stored.", f"{SEGMENT} 1.4: conditional"
    ),
    "TableSegmentNotEmpty": ErrorMeaning("It has entries and was to be deleted only without.", _TABLES_CLAUSE),
    "TableKeyDoesNotExist": ErrorMeaning("A key that was to have some version is not there.", _TABLES_CLAUSE),
    "TableKeyBadVersion": ErrorMeaning(
        "A key has another version than was expected. Nothing was changed.", _TABLES_CLAUSE
    ),
}
"""Every reply that refuses something, of both dialects, by name."""
