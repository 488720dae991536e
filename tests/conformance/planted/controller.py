"""Planted faults for the suite of Pravega's controller: gRPC messages have their length before them."""

from __future__ import annotations

import struct

from conformance.planted.faults import Faults, replaced, replied, respelled

__all__ = ["CONTROLLER"]

CONTROLLER: Faults = {
    "yes is no": (
        replied(b"\0\0\0\0\2\x08\1", b"\0\0\0\0\2\x08\0"),
        "scopes streams segments transactions",
        {
            *("create-a-scope", "create-a-stream", "valid-segments", "valid-cuts"),
            *("commit-a-transaction", "abort-a-transaction", "ping-a-transaction"),
        },
    ),
    "known and unknown names fail": (
        replied(b"\0\0\0\0\2\x08\2", b"\0\0\0\0\2\x08\1"),
        "scopes streams",
        {
            *("create-a-scope", "delete-a-scope", "create-a-stream", "delete-a-stream"),
            *("update-an-unknown-stream",),
        },
    ),
    "a state that does not fit is only a failure": (
        replied(b"\0\0\0\0\2\x08\3", b"\0\0\0\0\2\x08\1"),
        "scopes streams transactions",
        {
            *("scope-of-an-invalid-name", "delete-a-scope", "stream-in-an-unknown-scope", "delete-a-stream"),
            *("commit-a-transaction", "unknown-transaction"),
        },
    ),
    "names of streams are not checked": (
        replied(b"\0\0\0\0\2\x08\4", b"\0\0\0\0\2\x08\0"),
        "streams",
        {"stream-of-an-invalid-name"},
    ),
    "other names are listed": (replied(b"conform-", b"conferm-"), "scopes streams", {"list-scopes", "list-streams"}),
    "policies and tags are lost": (
        replaced(b"\x20\2", b"\x20\1"),
        "streams segments",
        {"configuration-of-a-stream", "head-of-a-stream", "valid-cuts"},
    ),
    "keys are missing": (
        replied(struct.pack("<d", 1.0), struct.pack("<d", 0.75)),
        "segments scaling",
        {"segments-of-a-stream", "split-a-segment"},
    ),
    "segments have no store": (replied(b"\x0a\x09127", b"\x1a\x09127"), "segments", {"store-of-a-segment"}),
    # A frame of HTTP/2 with an empty message gets one with an empty segment. Its SETTINGS look alike, but for an 8.
    "sealed streams have a segment": (
        respelled(rb"\x00\x00\x05(\x00[\x00\x01]\x00{3}[^\x08])\x00{5}", b"\0\0\7\\1\0\0\0\0\2\x0a\0"),
        "segments",
        {"segments-of-a-sealed-stream"},
    ),
    "scalings always start": (
        replied(b"\0\0\0\0\2\x08\2", b"\0\0\0\0\2\x08\0"),
        "scaling",
        {"split-with-a-gap"},
    ),
}
