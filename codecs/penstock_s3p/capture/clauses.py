"""Clauses of S3P 0.2.0 behind rules, and meanings of its error replies."""

from __future__ import annotations

from typing import Final

from penstock.capture.dialogue.clauses import Clauses, ErrorMeaning

__all__ = ["S3P_ERRORS", "s3p_clause"]

S3P: Final = "S3P 0.2.0, section"
_COMMAND_SECTIONS: Final = {"CREATE": "8.1", "APPEND": "8.2", "READ": "8.3", "TRIM": "8.4", "DELETE": "8.5"}
_OF_COMMANDS: Final = [
    (rf"^{word} is an array of|unknown option .* of {word}$", clause) for word, clause in _COMMAND_SECTIONS.items()
]

_CLAUSES: Final = Clauses(
    S3P,
    # Framing of any value.
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
s3p_clause: Final = _CLAUSES.of
"""Clause of a fault that the codec or the dialogue of S3P describes, or '' if there is none."""
S3P_ERRORS: Final[dict[str, ErrorMeaning]] = {
    "ERR_BAD_FORMAT": ErrorMeaning(
        "The command is malformed, or a value in it is invalid. The server closes the connection.", f"{S3P} 9"
    ),
    "ERR_LIMITS": ErrorMeaning(
        "The command is larger than the server is configured to take. The server closes the connection.", f"{S3P} 11"
    ),
    "ERR_STREAM_EXISTS": ErrorMeaning("There is a stream with this name already. Nothing was done.", f"{S3P} 8.1"),
    "ERR_UNKNOWN_STREAM": ErrorMeaning("There is no stream with this name. Nothing was done.", f"{S3P} 9"),
    "ERR_NON_MONOTONIC_ID": ErrorMeaning(
        "The timestamp lies before that of the stream's last record. Nothing was appended.", f"{S3P} 12"
    ),
    "ERR_UNAVAILABLE": ErrorMeaning("The server does not know whether the command was executed.", ""),
    "ERR_INTERNAL": ErrorMeaning("Something went wrong in the server, or behind it.", ""),
}
"""The codes of the specification, and the two most frequent of Penstock's own (it leaves codes open)."""
