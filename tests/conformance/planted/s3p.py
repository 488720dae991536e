"""Planted faults for the suite of S3P."""

from __future__ import annotations

from conformance.planted.faults import Faults, asked, replaced, replied, respelled
from support.rewriting_relay import Fault

__all__ = ["S3P"]

_BEYOND_A_LIMIT = {
    *("read-count-zero", "read-block-negative", "read-count-beyond-the-limit", "read-block-beyond-the-limit"),
    *("name-beyond-the-limit", "record-beyond-the-limit", "records-beyond-the-limit"),
}
"""Cases whose command must be answered with ERR_LIMITS."""

S3P: Faults = {
    "malformed commands are answered with +OK": (
        respelled(rb"-ERR_BAD_FORMAT [^\r]*", b"+OK"),
        "3 4 7 8.1 8.2 8.3 8.4 13 14 15",
        {
            *("null-bulk-string", "negative-array", "integer", "line-feed-alone", "carriage-return-alone"),
            *("bulk-string-without-its-end", "empty-name", "empty-record", "empty-option-value"),
            *("simple-string-as-command", "inline-command", "record-as-simple-string", "name-as-array"),
            *("command-name-as-array", "odd-number-of-options", "array-as-option"),
            *(f"unknown-option-of-{command}" for command in ("create", "append", "read", "trim", "delete")),
            *("create-with-an-element-too-many", "append-without-records", "trim-without-min-id"),
            *(
                f"append-id-{value}"
                for value in ("whole-identifier", "decimal", "sign", "negative", "word", "beyond-64-bits")
            ),
            *(
                f"{command}-min-id-{value}"
                for command in ("read", "trim")
                for value in (
                    *("without-sequence", "without-milliseconds", "empty-sequence", "three-parts"),
                    *("beyond-64-bits", "word"),
                )
            ),
            *(f"read-{option}-{value}" for option in ("count", "block") for value in ("decimal", "sign", "word")),
            *("unknown-command", "command-of-redis", "array-length-of-20-digits", "signed-length"),
            *("bytes-without-a-separator", "pipeline-with-an-unrecoverable-error"),
        },
    ),
    "limits are only bad formats": (
        replied(b"-ERR_LIMITS", b"-ERR_BAD_FORMAT"),
        "8.3 11",
        _BEYOND_A_LIMIT,
    ),
    "signs are taken": (
        asked(rb"\$2\r\n\+1\r\n", b"$1\r\n1\r\n"),
        "8.2 15",
        {"append-id-sign", "read-count-sign", "read-block-sign"},
    ),
    "unknown options are ignored": (
        asked(rb"\*2\r\n\$\d\r\n(MAX_SIZE|TTL|FROM|FORCE)\r\n\$\d\r\n[^\r]+\r\n", b"*0\r\n"),
        "7",
        {f"unknown-option-of-{command}" for command in ("create", "append", "read", "delete")},
    ),
    "unrecoverable errors leave the connection open": (
        Fault(holds_open=True),
        "14",
        {"unknown-command", "command-of-redis"},
    ),
    "commands must come at once": (
        Fault(request=lambda piece: piece if len(piece) > 1 else b""),
        "3",
        {"bytes-one-by-one"},
    ),
    "NUL ends a string": (
        asked(rb"\x00\xff", b""),
        "4 6",
        {"records-of-any-bytes", "names-of-any-bytes"},
    ),
    "the first of equal options counts": (
        asked(rb"count\r\n\$1\r\n3\r\n(.*)1\r\n", rb"count\r\n$1\r\n1\r\n\g<1>3\r\n"),
        "7",
        {"last-of-equal-options"},
    ),
    "commands are case-sensitive": (replaced(b"CrEaTe", b"??????"), "10", {"command-names-of-any-case"}),
    "errors quote names as they are": (
        replied(b"-ERR_UNKNOWN_STREAM ", b"-ERR_UNKNOWN_STREAM \r\n"),
        "9",
        {"errors-of-one-line"},
    ),
    "unknown streams are known": (
        respelled(rb"-ERR_UNKNOWN_STREAM [^\r]*", b"+OK"),
        "6 8.2 8.3 8.4 8.5 9 13",
        {
            *("names-differ-by-case", "append-to-an-unknown-stream", "read-of-an-unknown-stream"),
            *("trim-of-an-unknown-stream", "delete", "delete-of-an-unknown-stream", "errors-of-one-line"),
            *("pipeline-with-an-unrecoverable-error",),
        },
    ),
    "a known stream is said to be unknown": (
        replied(b"-ERR_STREAM_EXISTS", b"-ERR_UNKNOWN_STREAM"),
        "8.1",
        {"create-again"},
    ),
    "an empty answer is a null array": (
        replied(b"*0\r\n", b"*-1\r\n"),
        "6 10 create read-from-the-greatest-id read-that-waits-in-vain read-that-waits-for-an-id trim",
        {
            *("names-of-any-bytes", "command-names-of-any-case", "create", "read-from-the-greatest-id"),
            *("read-that-waits-in-vain", "read-that-waits-for-an-id", "trim"),
        },
    ),
    "records get lost": (
        respelled(rb"\*[1-9]\d*\r\n.*", b"*0\r\n"),
        "4 5 7 8.1 8.5 12 13 append-with-an-id trim "
        "read-from-an-id read-at-most read-that-need-not-wait read-that-waits-for-a-record",
        {
            *("records-of-any-bytes", "least-and-greatest-id", "last-of-equal-options", "unknown-option-of-trim"),
            *("unknown-option-of-delete", "create-again", "append-with-an-id", "smaller-id", "ids-compare-as-numbers"),
            *("concurrent-appends", "pipeline", "read-from-an-id", "read-at-most", "read-that-need-not-wait"),
            *("read-that-waits-for-a-record", "trim", "delete"),
        },
    ),
    "APPEND answers with the first record's identifier": (
        respelled(rb"\A(\$\d+\r\n\d+)-[1-9]\d*\r\n\Z", rb"\1-0\r\n"),
        "append-with-the-clock append-with-an-id equal-id greater-id smaller-id clock-behind-the-last-id 13",
        {
            *("append-with-the-clock", "append-with-an-id", "equal-id", "greater-id", "smaller-id"),
            *("clock-behind-the-last-id",),
        },
    ),
    "identifiers may fall": (
        respelled(rb"-ERR_NON_MONOTONIC_ID [^\r]*", b"+OK"),
        "12 13",
        {"smaller-id", "trim-keeps-the-last-id", "pipeline"},
    ),
    "identifiers fall after a trim": (
        replied(b"100-1", b"100-0"),
        "trim-keeps-the-last-id",
        {"trim-keeps-the-last-id"},
    ),
    "MIN_ID is exclusive": (replaced(b"$5\r\n100-1\r\n", b"$5\r\n100-2\r\n"), "read-from-an-id", {"read-from-an-id"}),
    "COUNT counts elements": (replaced(b"COUNT\r\n$1\r\n3", b"COUNT\r\n$1\r\n1"), "read-at-most", {"read-at-most"}),
    "BLOCK does not wait": (
        asked(rb"BLOCK\r\n\$\d\r\n\d+", b"BLOCK\r\n$1\r\n0"),
        "read-at-most read-that-need-not-wait "
        "read-that-waits-in-vain read-that-waits-for-a-record read-that-waits-for-an-id",
        {"read-that-waits-in-vain", "read-that-waits-for-a-record", "read-that-waits-for-an-id"},
    ),
}
