"""Planted faults for the suite of S2: requests and answers over HTTP/1.1, as text and as frames."""

from __future__ import annotations

from conformance.planted.faults import Faults, asked, replaced, replied, respelled

__all__ = ["S2"]


def _cases(names: str) -> set[str]:
    return set(names.split())


S2: Faults = {
    "health is denied": (respelled(rb"OK$", b"NO"), "tail", {"health"}),
    "bad requests are agreed to": (
        replied(b"HTTP/1.1 400", b"HTTP/1.1 200"),
        "tail append read events streams basins encryption",
        _cases(
            "invalid-stream-names compressed-requests body-of-another-type append-without-json "
            "append-without-protobuf largest-batch longest-token unknown-format two-starts bad-last-event-id "
            "configuration-of-a-stream-that-is-created list-with-bad-bounds invalid-configurations configure-a-basin "
            "invalid-basins keys-of-plain-streams missing-and-malformed-keys-aegis-256 "
            "missing-and-malformed-keys-aes-256-gcm wrong-keys-aegis-256 wrong-keys-aes-256-gcm"
        ),
    ),
    "a missing basin is another fault": (
        replied(b'"bad_header","message":"Missing', b'"bad_query_","message":"Missing'),
        "tail",
        {"missing-basin"},
    ),
    "unknown names are known": (
        replied(b"HTTP/1.1 404", b"HTTP/1.1 200"),
        "tail append-session delete-a-stream",
        _cases(
            "tail-of-an-unknown-stream unknown-basin unknown-paths names-with-a-slash session-on-an-unknown-stream "
            "delete-a-stream"
        ),
    ),
    "conflicts are agreed to": (
        replied(b"HTTP/1.1 409", b"HTTP/1.1 200"),
        "streams basins",
        _cases("create-a-stream repeated-creation create-a-basin"),
    ),
    "invalid batches are taken": (
        replied(b"HTTP/1.1 422", b"HTTP/1.1 200"),
        "append read streams",
        _cases(
            "append-of-nothing most-records largest-batch longest-token unknown-command invalid-base64 "
            "modes-of-timestamps two-starts read-until-a-time invalid-configurations"
        ),
    ),
    "conditions are not checked": (
        replied(b"HTTP/1.1 412", b"HTTP/1.1 200"),
        "append transports",
        _cases(
            "append-at-a-position append-with-a-fencing-token both-conditions media-types append-creates-a-stream "
            "one-winner-per-position"
        ),
    ),
    "unknown methods are unknown paths": (replied(b"HTTP/1.1 405", b"HTTP/1.1 404"), "tail", {"unknown-method"}),
    "HTTP/2 is not understood": (replaced(b"PRI * HTTP/2.0", b"PRI * HTTP/9.9"), "tail", {"both-versions-of-http"}),
    "other codings are agreed to": (replied(b"HTTP/1.1 415", b"HTTP/1.1 200"), "tail", {"compressed-requests"}),
    "gzip is asked for and zstd comes": (
        replaced(b"accept-encoding: gzip\r\n", b"accept-encoding: zstd\r\n"),
        "tail read-session",
        {"compressed-responses", "compressed-batches"},
    ),
    "the tail is another": (
        respelled(rb'"tail":{"seq_num":\d', b'"tail":{"seq_num":7'),
        "tail append-as-json read-at-the-tail beyond-the-tail-as-events beyond-the-tail-in-a-session "
        "acknowledged-records-are-visible",
        _cases(
            "tail-of-an-empty-stream unknown-basin invalid-stream-names names-with-a-slash both-versions-of-http "
            "append-as-json read-at-the-tail beyond-the-tail-as-events beyond-the-tail-in-a-session "
            "acknowledged-records-are-visible"
        ),
    ),
    "a mismatch tells another position": (
        replied(b'"seq_num_mismatch":1', b'"seq_num_mismatch":9'),
        "append condition-in-a-session",
        {"append-at-a-position", "condition-in-a-session"},
    ),
    "protobuf is said to be JSON": (
        replied(b"application/protobuf", b"application/json"),
        "append read",
        _cases("append-as-protobuf media-types bytes-that-are-no-text read-as-protobuf read-of-many-bytes"),
    ),
    "timestamps fall": (
        replied(b'"seq_num":1,"timestamp":50', b'"seq_num":1,"timestamp":40'),
        "append",
        {"timestamps-never-fall"},
    ),
    "streams are never uncapped": (
        replaced(b'"uncapped": true', b'"uncapped":false'),
        "append",
        {"timestamps-of-the-future"},
    ),
    "headers are sorted": (
        replaced(b'["b", "1"], ["a", "2"]', b'["a", "2"], ["b", "1"]'),
        "append",
        {"headers-of-records"},
    ),
    "trims remove a record too many": (
        replaced(b"AAAAAAAAAAI=", b"AAAAAAAAAAM="),
        "append",
        {"trim", "bounds-of-trims"},
    ),
    "appends create no stream": (
        replaced(b'"create_stream_on_append": true', b'"create_stream_on_append":false'),
        "append basins",
        _cases("append-creates-a-stream configuration-of-a-stream-that-is-created create-a-basin configure-a-basin"),
    ),
    "reads create no stream": (
        replaced(b'"create_stream_on_read": true', b'"create_stream_on_read":false'),
        "read basins",
        _cases("read-creates-a-stream create-a-basin configure-a-basin"),
    ),
    "reads begin with the first record": (
        asked(rb"\?(seq_num|timestamp|tail_offset)=\d+", b"?seq_num=0"),
        "read events read-session transports",
        _cases(
            "read-from-a-number read-at-the-tail read-from-the-end read-from-a-time read-until-a-time "
            "read-as-protobuf two-starts read-of-much read-of-many-bytes events-of-records follow-as-events "
            "follow-in-a-session follow-during-appends-as-events follow-during-appends-in-a-session "
            "beyond-the-tail-as-events beyond-the-tail-in-a-session acknowledged-records-are-visible"
        ),
    ),
    "reads have no bounds": (
        asked(rb"&(count|bytes|until)=\d+", b""),
        "read events read-session",
        _cases(
            "read-with-bounds reads-of-nothing read-until-a-time read-as-protobuf events-of-records bounds-as-events "
            "bounds-in-a-session beyond-the-tail-as-events beyond-the-tail-in-a-session media-type-of-events "
            "last-event-id last-event-of-all"
        ),
    ),
    "reads do not wait": (
        asked(rb"&wait=[1-9]", b"&wait=0"),
        "wait",
        _cases("read-that-waits wait-as-events wait-in-a-session"),
    ),
    "reads wait": (
        asked(rb"&wait=0", b"&wait=1"),
        "events bounds-in-a-session",
        _cases("bounds-as-events bounds-in-a-session"),
    ),
    "a read at the tail is not found": (
        replied(b"HTTP/1.1 416", b"HTTP/1.1 404"),
        "read",
        _cases("read-at-the-tail read-from-a-time read-as-protobuf read-creates-a-stream"),
    ),
    "bytes are questioned": (replied(b"\xef\xbf\xbd", b"???"), "read", {"bytes-that-are-no-text"}),
    "events have no id": (
        replied(b"\nid: ", b"\nxx: "),
        "events",
        _cases(
            "events-of-records follow-as-events follow-during-appends-as-events bounds-as-events "
            "beyond-the-tail-as-events last-event-id last-event-of-all"
        ),
    ),
    "events do not end": (
        replied(b"[DONE]", b"[GONE]"),
        "read events",
        _cases("reads-of-nothing events-of-records bounds-as-events last-event-id last-event-of-all"),
    ),
    "responses may be kept": (
        replied(b"no-cache, no-transform", b"no-cache, to-transform"),
        "events append-session read-session",
        _cases("events-of-records appends-in-a-session media-type-of-a-session"),
    ),
    "events do not fail": (replied(b"event: error", b"event: other"), "events", {"deletion-as-events"}),
    "the last media type counts": (
        replaced(b"application/json, text/event-stream", b"text/event-stream, application/json"),
        "events",
        {"media-type-of-events"},
    ),
    "the last event's id is ignored": (
        replaced(b"last-event-id", b"lost-event-id"),
        "events",
        _cases("last-event-id last-event-of-all bad-last-event-id"),
    ),
    "terminal frames have another status": (
        respelled(rb"\x01[\x90\x94\x9c\xa6](?=\{)", b"\x01\xf4"),
        "append-session read-session",
        _cases(
            "condition-in-a-session empty-input frame-that-is-too-long frame-that-is-cut-off frame-of-garbage "
            "deletion-in-a-session"
        ),
    ),
    "acknowledgements have no end": (
        respelled(rb"\x12\x09\x08.", b"\x12\x09\x08\x00"),
        "append-session",
        _cases(
            "appends-in-a-session answers-while-the-request-goes-on frames-in-pieces compressed-frames "
            "condition-in-a-session empty-input frame-that-is-too-long frame-that-is-cut-off frame-of-garbage"
        ),
    ),
    "sessions must come in whole frames": (
        asked(rb"\A1\r\n.\r\n\Z", b""),
        "append-session",
        {"frames-in-pieces"},
    ),
    "a body is another": (
        respelled(rb"(\x22\x027)7", rb"\g<1>8"),
        "read-session",
        {"follow-during-appends-in-a-session"},
    ),
    "a large record is damaged": (replied(b"klmnopqrst", b"KLMNOPQRST"), "read-session", {"session-of-a-large-record"}),
    "base64 is damaged": (
        respelled(rb"dmFsdWU=|AP8NCg==", b"AAAAAAA="),
        "append transports",
        {"append-as-base64", "same-records-by-every-way"},
    ),
    "a batch is torn": (replied(b"json-2 3 1", b"json-2 3 9"), "transports", {"writers-of-every-kind"}),
    "listings begin at the beginning": (
        replaced(b"start_after=", b"start_beyond="),
        "streams basins",
        _cases("list-streams list-with-bad-bounds list-basins"),
    ),
    "nothing is ever new": (
        replied(b"s2-provision-result: created", b"s2-provision-result: changed"),
        "streams basins",
        _cases("create-a-stream repeated-creation delete-a-stream create-a-basin"),
    ),
    "deletions are done": (
        replied(b"HTTP/1.1 202", b"HTTP/1.1 200"),
        "streams basins",
        _cases("delete-a-stream delete-a-basin"),
    ),
    "the retention is another": (
        respelled(rb'"age":(360|9)0', rb'"age":\g<1>1'),
        "streams basins",
        _cases("configure-a-stream defaults-of-a-basin"),
    ),
    "streams have no cipher": (
        respelled(rb'"cipher":"a', b'"cipher":"b'),
        "encryption",
        _cases(
            "ciphers-of-streams-aegis-256 ciphers-of-streams-aes-256-gcm appends-and-reads-with-the-key-aegis-256 "
            "appends-and-reads-with-the-key-aes-256-gcm missing-and-malformed-keys-aegis-256 "
            "missing-and-malformed-keys-aes-256-gcm wrong-keys-aegis-256 wrong-keys-aes-256-gcm"
        ),
    ),
    "keys are lost": (
        replaced(b"s2-encryption-key", b"s2-encryption-kez"),
        "encryption",
        _cases(
            "appends-and-reads-with-the-key-aegis-256 appends-and-reads-with-the-key-aes-256-gcm wrong-keys-aegis-256 "
            "wrong-keys-aes-256-gcm keys-of-plain-streams"
        ),
    ),
}
