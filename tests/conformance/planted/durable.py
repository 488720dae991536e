"""Planted faults for the suite of Durable Streams."""

from __future__ import annotations

from conformance.planted.faults import Faults, later, replaced, replied, respelled

__all__ = ["DURABLE"]

DURABLE: Faults = {
    "conflicts are agreed to": (
        replied(b"HTTP/1.1 409", b"HTTP/1.1 200"),
        "5.1 5.2 5.2.1 closing",
        {"create-again", "append-of-another-type", "writer-sequence", "producer-with-a-gap", "append-after-the-close"},
    ),
    "bad requests are agreed to": (
        replied(b"HTTP/1.1 400", b"HTTP/1.1 200"),
        "5 7.1",
        {
            *("invalid-time-to-live", "invalid-expiry", "append-without-a-type", "append-of-nothing"),
            *("epoch-that-begins-late", "invalid-producer", "malformed-offset", "live-without-an-offset"),
            *("append-of-no-messages", "append-that-is-not-json"),
        },
    ),
    "unknown streams are known": (
        replied(b"HTTP/1.1 404", b"HTTP/1.1 200"),
        "5",
        {
            *("expiry", "append-to-an-unknown-stream", "delete", "metadata-of-an-unknown-stream"),
            *("read-of-an-unknown-stream",),
        },
    ),
    "a new stream was there already": (replied(b"HTTP/1.1 201", b"HTTP/1.1 200"), "create", {"create"}),
    "content gets lost": (
        respelled(rb"\r\n\r\n(onetwo|begun|xy)\Z", rb"\r\n\r\n"),
        "create-with-content append append-in-pieces close-with-the-last-bytes",
        {"create-with-content", "append", "append-in-pieces", "close-with-the-last-bytes"},
    ),
    "producers are not known": (
        replaced(b"producer-", b"pxoducer-"),
        "5.2.1",
        {
            *("producer-that-repeats", "producer-with-a-gap", "producer-that-was-replaced", "epoch-that-begins-late"),
            *("producers-apart", "invalid-producer"),
        },
    ),
    "the content type is always another": (
        replied(b"content-type: text/plain", b"content-type: text/xhtml"),
        "create metadata",
        {"create", "metadata"},
    ),
    "reads begin with the tail": (
        replaced(b"offset=-1", b"offset=now"),
        "5.5 5.6 5.7",
        {
            *("read-from-the-beginning", "read-of-another-type", "poll-for-what-is-there"),
            *("events-of-what-is-there", "events-of-lines", "events-of-json"),
        },
    ),
    "reads never reach the tail": (
        replied(b"stream-up-to-date: true", b"stream-up-to-date: nope"),
        "5.5 6",
        {
            *("read-from-the-beginning", "read-from-an-offset", "read-at-the-tail", "read-of-another-type"),
            *("offsets-stay", "read-from-now"),
        },
    ),
    "long polls do not wait": (
        replaced(b"live=long-poll", b"leve=long-poll"),
        "5.6 6 8.1 closing",
        {
            *("poll-for-what-is-there", "poll-for-what-comes", "live-without-an-offset", "poll-from-now"),
            *("cursors-rise", "close-ends-reads"),
        },
    ),
    "events are no events": (
        replaced(b"live=sse", b"leve=sse"),
        "5.7 6 closing",
        {
            *("events-of-what-is-there", "events-of-what-comes", "events-of-lines", "events-of-json"),
            *("events-from-now", "close-ends-reads"),
        },
    ),
    "all offsets are the same": (
        respelled(rb"stream-next-offset: [0-9]+_", rb"stream-next-offset: 0000000000000000_"),
        "5.5 6 7.1",
        {
            *("read-from-an-offset", "read-at-the-tail", "offsets-rise", "offsets-stay", "events-from-now"),
            *("read-within-messages",),
        },
    ),
    "arrays are not taken apart": (
        replied(b'{"b":2},"c"', b'[{"b":2},"c"'),
        "messages-of-arrays",
        {"messages-of-arrays"},
    ),
    "entity tags never match": (respelled(rb"etag: ", rb"etax: "), "8.1", {"entity-tag"}),
    "a closed stream cannot be closed again": (later(b"HTTP/1.1 204", b"HTTP/1.1 409"), "close-again", {"close-again"}),
    "a read does not tell that the stream is closed": (
        respelled(rb"\A(?=.*\r\netag: )(.*\r\n)stream-closed", rb"\1stream-clogged"),
        "closing",
        {"end-of-a-closed-stream"},
    ),
}
