"""Server-sent events: the reader of both dialects, with limits so narrow that short inputs reach them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fuzz.laws import chosen, keeps_the_laws, pull

from penstock.model.records import RecordBatch
from penstock.wire.codec import Role
from penstock_s2.codec.formats import BytesFormat
from penstock_s2.codec.sse import DIALECTS, PLUGIN, BatchEvent, Done, EventStreamClient, EventStreamServer, Ping

LIMIT: Final = 700
"""Most bytes of an event: more than those of the samples."""
FORMS: Final = tuple((dialect, form) for dialect in DIALECTS.values() for form in BytesFormat)

WORDS: Final = (
    b"event: batch\n",
    b"event: ping\n",
    b"event: error\n",
    b"event: done\n",
    b"data: ",
    b"id: ",
    b"data: [DONE]\n\n",
    b"retry: 10\n",
    b"\r\n",
    b"\xef\xbb\xbf",
    b'{"records":[{"seq_num":',
    b',"timestamp":',
    b',"body":"',
    b'"tail":{"seq_num":1,"timestamp":1}',
)


def seeds() -> Iterator[bytes]:
    """Yield the sample of each dialect."""
    for index, (dialect, _) in enumerate(FORMS):
        yield bytes([index]) + PLUGIN.sample(Role.CLIENT, dialect.name)
    yield b"\x00retry: 10\r\n: comment\r\nevent: error\r\ndata: {\r\ndata: }\r\n\r\n"


def check(data: bytes) -> None:
    """Check the laws of codecs, and that batches and pings are encoded to events that give them again."""
    (dialect, form), said = chosen(FORMS, data)

    def make() -> EventStreamClient:
        return EventStreamClient(dialect, form, max_event_bytes=LIMIT)

    keeps_the_laws(make, said, LIMIT)
    for event in pull(make(), said):
        if isinstance(event, Ping) and dialect.ping_data and event.timestamp is None:
            continue  # one without the data that this dialect has
        server = EventStreamServer(dialect, form)
        # Ids are counted by each server, numbers written shorter: the bytes may be more than those of the event.
        (again, *_) = pull(EventStreamClient(dialect, form), b"".join(server.send(event)))
        assert _plain(again) == _plain(event), f"{event} became {again}"


def _plain(event: Any) -> Any:
    if isinstance(event, BatchEvent):
        batch: RecordBatch = event.batch
        return list(batch.records()), batch.tail
    return event if isinstance(event, Done) else type(event)
