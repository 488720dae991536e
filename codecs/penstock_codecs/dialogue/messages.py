"""What was said in a conversation: messages with their places, times, and what they mean.

A *dialogue* hears both sides of one conversation and tells its messages apart. It judges nothing twice: the codecs
read, so what they refuse is a `Problem` here, with the bytes and the rule. All protocols share these shapes, so that
`penstock show`, the dissectors' tests, replay, diff and Spark need to know none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock_codecs.capture import CaptureEvent, Conversation, Sender
from penstock_codecs.model import Headers

__all__ = ["APPENDED", "DELIVERED", "Dialogue", "Message", "Problem", "SeenRecord"]

APPENDED = "appended"
"""A client gave it to a server."""
DELIVERED = "delivered"
"""A server gave it to a client."""


@dataclass(slots=True)
class SeenRecord:
    """One record that went by, in whatever protocol, with what that protocol says of it; None: it does not say.

    `action`: APPENDED or DELIVERED. `stream`: `basin/stream` for S2, the name for S3P (its bytes as UTF-8, escaped
    where they are none), the segment's full name for the segment protocol. `seq_num`, `timestamp` (ms),
    `record_id` (S3P, `ms-seq`), `offset` (segments, bytes): its position. Appended records get theirs from the
    acknowledgement; `acknowledged` False: none was recorded. Delivered ones are always True. `failure`: what the
    server said instead of acknowledging.
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
    """When the message that brought it was complete."""
    conversation: Conversation | None = None


@dataclass(slots=True)
class Message:
    """One message of one side.

    `layer`: `http`, `s2s`, `sse`, `grpc`, `s3p` or `segment`; `tcp` (and kind `data`) for what nobody here speaks.
    `kind`: the message's name in that protocol's terms, as `APPEND`, `AppendInput`, `SegmentRead`, `POST`, `200`.
    `start_ns`, `end_ns`: when its first and last byte went by. `offset`, `length`: where it stands in what its sender
    sent; with compression or HTTP/2 between, the frames that carried it. `exchange`: what joins a request and its
    answers: HTTP/2 stream, count of HTTP/1.1 exchanges or S3P commands from 1, segment request id; None where nothing
    does. `answers`: the time from the request's last byte to this message's, in ns, where this is the first answer to
    one; else None.
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
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Its fields for people and JSON: text, numbers, bools, None, lists and mappings of these; bodies only as sizes."""
    records: Sequence[SeenRecord] = ()
    """Records that this message makes known: delivered by it, or appended earlier and acknowledged (or refused) by it.
    Appends that are never answered come with the last message of the conversation, or its end, from `Dialogue.end`."""
    state: str = ""
    """What the conversation, or the exchange, is in after it, in the protocol's terms, as `open`, `appending`,
    `half-closed`."""
    failure: str = ""
    """What an error message says, `CODE: message`; "" for what is none."""
    event: Any = None
    """The codec's own event, for those who know the protocol."""
    answers: int | None = None


@dataclass(slots=True)
class Problem:
    """Bytes that break the protocol, or that cannot be understood, or that are not there.

    Requests that a server refuses as broken or too large are Problems of the client, also where they look right here.

    `offset`: of the first byte that is wrong, in what `sender` sent; `context`: bytes around it, at most 256, of which
    the first stands at `context_offset`. `rule`: what was expected there; `clause`: document and section, as
    `S3P 0.2.0, section 4.1`, "" where none says so. `fatal`: nothing more of this side (or exchange) can be read.
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


class Dialogue(Protocol):
    """Hears one conversation. Memory is bounded by the codecs' limits, and by 100,000 unanswered requests with 64 MiB
    of records: the oldest of more are given up, and their records come as not acknowledged."""

    def receive(self, event: CaptureEvent) -> Iterator[Message | Problem]:
        """What an event of this conversation completes. Conversations that are recorded from their middle are heard
        from the first chunk that begins with a message; what is skipped is a Problem that is not fatal."""

    def end(self) -> Iterator[Message | Problem]:
        """The recording has ended: what was left half said is a Problem that is not fatal, and records that nobody
        acknowledged come as a last Message of kind `end` and length 0."""
