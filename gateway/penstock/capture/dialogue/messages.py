"""Messages of a conversation with their offsets, times and meanings.

A *dialogue* takes the bytes of both sides of one conversation and splits them into messages. It judges nothing twice:
the codecs read, so bytes that they refuse are a `Problem` here, with the bytes and the rule. All protocols share these
shapes, so that `penstock show`, Wireshark, replay, diff and Spark need not know any protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from penstock.capture.pcapng import CaptureEvent, Conversation, Sender
from penstock.model.records import Headers

__all__ = ["APPENDED", "DELIVERED", "Dialogue", "Message", "Problem", "SeenRecord"]

APPENDED = "appended"
"""A client gave it to a server."""
DELIVERED = "delivered"
"""A server gave it to a client."""


class SeenRecord(msgspec.Struct):
    """One record that was transferred, in any protocol, with the fields that this protocol has; None: it has no such
    field.

    `action`: APPENDED or DELIVERED. `stream`: `basin/stream` for S2, the name for Durable Streams and S3P (its
    bytes as UTF-8, escaped where they are not), the segment's full name for the segment protocol. `seq_num`,
    `timestamp` (ms), `record_id` (S3P, `ms-seq`), `offset` (segments, bytes): its position. Appended records get theirs
    from the acknowledgement; `acknowledged` False: none was recorded. Delivered ones are always True. `failure`: the
    error that the server sent instead of an acknowledgement.
    """

    action: str
    stream: str
    body: bytes
    headers: Headers = ()
    seq_num: int | None = None
    timestamp: int | None = None
    record_id: str | None = None
    offset: int | None = None
    acknowledged: bool = True
    failure: str = ""
    time_ns: int = 0
    """Time at which the message with the record was complete."""
    conversation: Conversation | None = None


class Message(msgspec.Struct):
    """One message of one side.

    `layer`: `http`, or that of a protocol, such as `s2s`; `tcp` (and kind `data`) for unknown protocols. `kind`:
    the message's name in that protocol's terms, as `APPEND`, `AppendInput`, `SegmentRead`, `POST`, `200`. `start_ns`,
    `end_ns`: times of its first and last byte. `offset`, `length`: its place in its sender's bytes; with compression or
    HTTP/2 between, that of the frames that carried it. `exchange`: the id that joins a request and its responses:
    HTTP/2 stream, count of HTTP/1.1 exchanges or S3P commands from 1, segment request id; None if there is none.
    `answers`: the time from the request's last byte to this message's, in ns, if this is the first response to a
    request; else None.
    """

    conversation: Conversation
    sender: Sender
    start_ns: int
    end_ns: int
    offset: int
    length: int
    layer: str
    kind: str
    exchange: int | None = None
    stream: str = ""
    """The stream that it is about, spelled as in `SeenRecord`."""
    fields: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Its fields for people and JSON: text, numbers, bools, None, lists and mappings of these; bodies only as sizes."""
    records: Sequence[SeenRecord] = ()
    """Records that this message makes known: delivered by it, or appended earlier and acknowledged (or refused) by it.
    Appends that are never answered come with the last message of the conversation, or its end, from `Dialogue.end`."""
    state: str = ""
    """State of the conversation, or of the exchange, after it, in the protocol's terms, as `open`, `appending`,
    `half-closed`."""
    failure: str = ""
    """Text of an error message, `CODE: message`; "" for other messages."""
    event: Any = None
    """The codec's own event, for callers that know the protocol."""
    answers: int | None = None
    body_bytes: int | None = None
    """Of the last message of a body over HTTP: how many bytes the whole body has, without framing."""
    withheld: int = 0
    """Bytes of it that redaction withheld, since it could not look for secrets in them: what they held is not known."""
    carried: Sequence[SeenRecord] = ()
    """Records that a client's message carries, which are in `records` of the message that settles them, too. Their
    positions are known once that has come, over HTTP never."""

    @property
    def own_records(self) -> Sequence[SeenRecord]:
        """Records to list beside it: those that it carries itself, and at the end those that were not settled."""
        if self.sender is Sender.CLIENT and self.length:
            return self.carried
        is_answer = self.length and self.records and self.records[0].action == APPENDED
        return () if is_answer else self.records


class Problem(msgspec.Struct):
    """Bytes that break the protocol, that cannot be parsed, or that are missing.

    Requests that a server refuses as malformed or too large are Problems of the client, even if they look valid here.

    `offset`: of the first wrong byte in `sender`'s bytes; `context`: bytes around it, at most 256, of which the first
    is at `context_offset`. `rule`: the expected form; `clause`: document and section, as `S3P 0.2.0, section 4.1`, ""
    if there is none. `fatal`: nothing more of this side (or exchange) can be read.
    """

    conversation: Conversation
    sender: Sender
    time_ns: int
    offset: int
    rule: str
    clause: str = ""
    context: bytes = b""
    context_offset: int = 0
    exchange: int | None = None
    fatal: bool = True
    withheld: int = 0
    """Bytes that redaction withheld at this place: this is no fault of the sender, and there is no message of them."""


class Dialogue(Protocol):
    """Decoder of one conversation. Memory is bounded by the codecs' limits, and by 100,000 unanswered requests with 64
    MiB of records: beyond that the oldest are given up, and their records are reported as not acknowledged."""

    def receive(self, event: CaptureEvent) -> Iterator[Message | Problem]:
        """Yield the items that an event of this conversation completes. Conversations recorded from their middle are
        read from the first chunk that begins with a message; skipped bytes are a Problem that is not fatal."""

    def end(self) -> Iterator[Message | Problem]:
        """Yield the last items at the end of the recording: incomplete messages are Problems that are not fatal, and
        unacknowledged records come as a last Message of kind `end` and length 0."""
