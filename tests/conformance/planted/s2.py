"""Planted faults for the suite of S2: requests and answers over HTTP/1.1, as text and as frames."""

from __future__ import annotations

from conformance.planted.faults import Faults, asked, replaced, replied, respelled
from support.rewriting_relay import Fault

__all__ = ["S2"]

S2: Faults = {
    "bad requests are agreed to": (
        replied(b"HTTP/1.1 400", b"HTTP/1.1 200"),
        "tail append read events",
        {"invalid-basin-name", "append-without-json", "two-starts", "bad-last-event-id"},
    ),
    "unknown names are known": (
        replied(b"HTTP/1.1 404", b"HTTP/1.1 200"),
        "tail append-session delete-a-stream",
        {
            *("tail-of-an-unknown-stream", "tail-in-an-unknown-basin", "session-on-an-unknown-stream"),
            *("delete-a-stream",),
        },
    ),
    "conflicts are agreed to": (
        replied(b"HTTP/1.1 409", b"HTTP/1.1 200"),
        "streams",
        {"create-a-stream"},
    ),
    "invalid batches are taken": (
        replied(b"HTTP/1.1 422", b"HTTP/1.1 200"),
        "append read",
        {
            *("append-of-nothing", "most-records", "largest-record", "unknown-command", "append-as-base64"),
            *("two-starts",),
        },
    ),
    "conditions are not checked": (
        replied(b"HTTP/1.1 412", b"HTTP/1.1 200"),
        "append",
        {"append-at-a-position", "append-with-a-fencing-token", "both-conditions"},
    ),
    "unknown methods are unknown paths": (
        replied(b"HTTP/1.1 405", b"HTTP/1.1 404"),
        "tail",
        {"unknown-method"},
    ),
    "the tail is another": (
        respelled(rb'"tail":{"seq_num":\d+', b'"tail":{"seq_num":77'),
        "tail append-as-json read-at-the-tail events-beyond-the-tail session-beyond-the-tail",
        {
            *("tail-of-an-empty-stream", "names-with-a-slash", "append-as-json", "read-at-the-tail"),
            *("events-beyond-the-tail", "session-beyond-the-tail"),
        },
    ),
    "a mismatch tells another position": (
        replied(b'"seq_num_mismatch":1', b'"seq_num_mismatch":9'),
        "append condition-in-a-session",
        {"append-at-a-position", "condition-in-a-session"},
    ),
    "protobuf is said to be JSON": (
        replied(b"application/protobuf", b"application/json"),
        "append read",
        {"append-as-protobuf", "read-as-protobuf"},
    ),
    "timestamps fall": (
        replied(b'"seq_num":1,"timestamp":50', b'"seq_num":1,"timestamp":40'),
        "append",
        {"timestamps-never-fall"},
    ),
    "headers are sorted": (
        replaced(b'["b", "1"], ["a", "2"]', b'["a", "2"], ["b", "1"]'),
        "append",
        {"headers-of-records"},
    ),
    "trims remove a record too many": (replaced(b"AAAAAAAAAAI=", b"AAAAAAAAAAM="), "append", {"trim"}),
    "reads begin with the first record": (
        asked(rb"\?(seq_num|timestamp|tail_offset)=\d+", b"?seq_num=0"),
        "read events read-session",
        {
            *("read-from-a-number", "read-at-the-tail", "read-from-the-end", "read-from-a-time", "read-as-protobuf"),
            *("read-that-waits", "read-of-much", "events-at-the-tail", "events-beyond-the-tail"),
            *("reads-in-a-session", "session-that-follows", "session-beyond-the-tail"),
        },
    ),
    "reads have no bounds": (
        asked(rb"&(count|bytes)=\d+", b""),
        "read events read-session",
        {"read-with-bounds", "events-of-records", "last-event-id", "reads-in-a-session"},
    ),
    "a read at the tail is not found": (
        replied(b"HTTP/1.1 416", b"HTTP/1.1 404"),
        "read",
        {"read-at-the-tail", "read-from-a-time", "read-as-protobuf"},
    ),
    "events have no id": (
        replied(b"\nid: ", b"\nxx: "),
        "events",
        {"events-of-records", "events-at-the-tail"},
    ),
    "the last event's id is ignored": (
        replaced(b"last-event-id", b"lost-event-id"),
        "events",
        {"last-event-id", "bad-last-event-id"},
    ),
    "terminal frames have another status": (
        respelled(rb"\x01[\x90\x9c\xa6](?=\{)", b"\x01\xf4"),
        "append-session",
        {
            *("condition-in-a-session", "empty-input", "frame-that-is-too-long", "frame-that-is-cut-off"),
            *("frame-of-garbage",),
        },
    ),
    "acknowledgements have no end": (
        respelled(rb"\x12\x09\x08.", b"\x12\x09\x08\x00"),
        "append-session",
        {"appends-in-a-session", "frames-in-pieces"},
    ),
    "sessions must come in whole frames": (
        Fault(request=lambda piece: b"" if len(piece) < 10 else piece),
        "append-session",
        {"frames-in-pieces"},
    ),
    "listings begin at the beginning": (
        replaced(b"start_after=", b"start_beyond="),
        "streams",
        {"list-streams"},
    ),
    "the retention is another": (replied(b'"age":3600', b'"age":3601'), "streams", {"configure-a-stream"}),
}
