"""Clauses of the specifications behind rules, and meanings of error replies.

Codecs describe faults in sentences; `s3p_clause` and `segment_clause` map each sentence to its clause. A sentence
without an entry has no clause: a limit that Penstock sets for itself, for instance.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["S3P_ERRORS", "SEGMENT_ERRORS", "Meaning", "s3p_clause", "segment_clause"]

S3P: Final = "S3P 0.2.0, section"
SEGMENT: Final = "segment fact sheet,"


class Meaning(NamedTuple):
    """Meaning of an error reply, and the clause that defines it."""

    text: str
    clause: str


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    clause: str


def _rules(document: str, *rows: tuple[str, str]) -> tuple[_Rule, ...]:
    return tuple(_Rule(re.compile(pattern), f"{document} {clause}" if clause else "") for pattern, clause in rows)


def _clause(rules: tuple[_Rule, ...], text: str) -> str:
    return next((rule.clause for rule in rules if rule.pattern.search(text)), "")


_COMMAND_SECTIONS: Final = {"CREATE": "8.1", "APPEND": "8.2", "READ": "8.3", "TRIM": "8.4", "DELETE": "8.5"}
_OF_COMMANDS: Final = [
    (rf"^{word} is an array of|unknown option .* of {word}$", clause) for word, clause in _COMMAND_SECTIONS.items()
]

_S3P_RULES: Final = _rules(
    S3P,
    # Framing, whatever it is that is framed.
    (r"not by CRLF$", "3: CRLF is the only line separator"),
    (r"^zero-length bulk string", "3: zero-length bulk strings are not allowed"),
    (r"^expected a decimal digit|more than 20 digits$", "3: the length is the number of raw bytes"),
    # Commands.
    (r"^expected an array \(\*\) as a command", "4: commands are sent as a top-level array"),
    (r"^a command is an array of", "4: according to the command's schema"),
    (r"^unknown command", "7: the commands that are defined"),
    *_OF_COMMANDS,
    (r"^expected .* as (command name|stream name)", "4: according to the command's schema"),
    (r"^expected .* as option|^options are pairs", "7: options are an array of pairs"),
    (r"^unknown option", "7: unknown option keys must be rejected"),
    (r"^expected .* as record|^APPEND needs at least", "8.2: an array of at least one record"),
    (r"^ID '", "8.2: the timestamp part as an unsigned integer"),
    (r"^MIN_ID '", "5: <ms>-<seq> of unsigned integers"),
    (r"^(COUNT|BLOCK) ", "8.3: its range, or its digits"),
    (r"^TRIM needs option", "8.4: MIN_ID is mandatory"),
    (r"^records? .* exceeds? |^\d+ records exceed .* per APPEND", "8.2: limits of an append"),
    (r"^stream name of .* exceeds", "6: names that exceed the configured limit"),
    (r"^(command name|option key|option value) of .* exceeds|^\d+ options exceed", "11: limits"),
    # Replies.
    (r"^expected a reply", "4: replies are a simple string, an error, a bulk string or an array"),
    (r"is neither \+OK nor an error", "9: -<ERROR_CODE> <message>, in one line"),
    (r"is not an identifier$|^identifier of .* exceeds", "5: <ms>-<seq> of unsigned integers"),
    (r"not increasing$", "8.3: in strictly increasing order of their identifiers"),
    (r"^a READ reply is|^expected .* as (element|a READ reply)|^element .* exceeds", "8.3: pairs of id and record"),
    (r"per READ$", "8.3: at most COUNT records"),
    (r"^expected .* as identifier", "8.2: a bulk string with the last appended identifier"),
    (r"came where .* was expected$", "13: servers must reply in order"),
    (r"after an error that ends the connection$", "9: the server must close the connection"),
)


def s3p_clause(rule: str) -> str:
    """Return the clause of a fault that the S3P codec or dialogue describes, or "" if there is none."""
    return _clause(_S3P_RULES, rule)


S3P_ERRORS: Final[dict[str, Meaning]] = {
    "ERR_BAD_FORMAT": Meaning(
        "The command is malformed, or a value in it is invalid. The server closes the connection.", f"{S3P} 9"
    ),
    "ERR_LIMITS": Meaning(
        "The command is larger than the server is configured to take. The server closes the connection.", f"{S3P} 11"
    ),
    "ERR_STREAM_EXISTS": Meaning("There is a stream with this name already. Nothing was done.", f"{S3P} 8.1"),
    "ERR_UNKNOWN_STREAM": Meaning("There is no stream with this name. Nothing was done.", f"{S3P} 9"),
    "ERR_NON_MONOTONIC_ID": Meaning(
        "The timestamp lies before that of the stream's last record. Nothing was appended.", f"{S3P} 12"
    ),
    "ERR_UNAVAILABLE": Meaning("The server could not say whether the command was carried out.", ""),
    "ERR_INTERNAL": Meaning("Something went wrong in the server, or behind it.", ""),
}
"""The codes of the specification, and the two most frequent of Penstock's own (it leaves codes open)."""


_SEGMENT_RULES: Final = _rules(
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


def segment_clause(rule: str) -> str:
    """Return the clause of a fault that the segment codec or dialogue describes, or "" if there is none."""
    return _clause(_SEGMENT_RULES, rule)


_ERRORS_CLAUSE: Final = f"{SEGMENT} 1.3: error replies"
_TABLES_CLAUSE: Final = f"{SEGMENT} 1.3: Tables"
SEGMENT_ERRORS: Final[dict[str, Meaning]] = {
    "WrongHost": Meaning(
        "Another segment store serves the segment: correct_host, or ask the controller.", _ERRORS_CLAUSE
    ),
    "SegmentIsSealed": Meaning(
        "Nothing is ever appended to it again; writers go on with its successors.", _ERRORS_CLAUSE
    ),
    "SegmentAlreadyExists": Meaning("It was created before; most clients take that as success.", _ERRORS_CLAUSE),
    "NoSuchSegment": Meaning("It was never created, or it was deleted.", _ERRORS_CLAUSE),
    "InvalidEventNumber": Meaning(
        "The event number is not above the writer's last one that is stored. The server closes.",
        f"{SEGMENT} 1.4: idempotence",
    ),
    "SegmentIsTruncated": Meaning("What was asked for lies before start_offset, where it begins now.", _ERRORS_CLAUSE),
    "OperationUnsupported": Meaning("The server does not do that.", _ERRORS_CLAUSE),
    "AuthTokenCheckFailed": Meaning(
        "The delegation token was refused: error_code 0 failed, 1 expired, -1 not specified.", _ERRORS_CLAUSE
    ),
    "ErrorMessage": Meaning("Anything else: error_code 0 an illegal argument, -1 not specified.", _ERRORS_CLAUSE),
    "ConditionalCheckFailed": Meaning(
        "The segment did not end at the expected offset. Nothing was stored.", f"{SEGMENT} 1.4: conditional"
    ),
    "TableSegmentNotEmpty": Meaning("It has entries and was to be deleted only without.", _TABLES_CLAUSE),
    "TableKeyDoesNotExist": Meaning("A key that was to have some version is not there.", _TABLES_CLAUSE),
    "TableKeyBadVersion": Meaning("A key has another version than was expected. Nothing was changed.", _TABLES_CLAUSE),
}
"""Every reply that refuses something, of both dialects, by name."""
