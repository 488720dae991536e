"""The fronts of `support.bridges.fronts` whose protocols know bodies alone: S3P, and segments in both dialects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar
from uuid import uuid4

from support.bridges.fronts import (
    LOOPBACK,
    Front,
    JsonFront,
    NotCarried,
    ProtobufFront,
    Record,
    S2SFront,
    Seen,
    SseFront,
    Take,
)
from support.process import BASIN, GatewayProcess
from support.s3p.client import S3PClient, S3PError, following, parse_id
from support.segment.client import UNKNOWN_WRITER, DraftSocket, ReleasedSocket, SegmentSocket

from penstock.model.byte_events import EVENT_HEADER_BYTES
from penstock.model.envelope import unwrap
from penstock_pravega.codec import append_messages, draft, join_events, released

__all__ = ["FRONTS", "DraftFront", "ReleasedFront", "S3PFront", "SegmentFront"]


def opened(body: bytes) -> Record:
    """Return the record in an event: the content of its envelope, or the event itself if it is none (docs/loss.md)."""
    try:
        headers, inside = unwrap(body)
    except ValueError:
        return Record(body)
    return Record(inside, tuple((header.name, header.value) for header in headers))


class S3PFront(Front):
    """S3P: positions are identifiers, as pairs of numbers."""

    name = "S3P"
    plain = True

    def __init__(self, gateway: GatewayProcess, stream: str) -> None:
        super().__init__(gateway, stream)
        self.client = S3PClient((LOOPBACK, gateway.s3p_port), timeout=30)
        self._last = -1, -1

    def create(self) -> None:
        assert self.client.create(self.stream) == "OK"

    def append(self, records: Sequence[Record]) -> None:
        reply = self.client.append(self.stream, *(record.body for record in records))
        assert isinstance(reply, bytes), reply
        ms, seq = parse_id(reply)
        assert (ms, seq - len(records) + 1) > self._last, reply
        self._last = ms, seq

    def start(self) -> tuple[int, int]:
        return 0, 0

    def read(self, at: tuple[int, int]) -> list[Seen]:
        found: list[Seen] = []
        while page := self.client.read(self.stream, MIN_ID=b"%d-%d" % at):
            assert not isinstance(page, S3PError), page
            found += seen(page)
            at = found[-1].at[0], found[-1].at[1] + 1
        return found

    @contextmanager
    def follow(self, at: tuple[int, int]) -> Iterator[Take]:
        with S3PClient((LOOPBACK, self.gateway.s3p_port), timeout=30) as client:

            def wait(place: bytes) -> None:
                client.send("READ", self.stream, ["MIN_ID", place, "BLOCK", 5000])

            wait(b"%d-%d" % at)

            def take(count: int) -> list[Seen]:
                found: list[Seen] = []
                while len(found) < count:
                    reply = client.reply()
                    assert isinstance(reply, list), reply
                    assert reply, "the wait ended with nothing"
                    found += seen(list(zip(reply[::2], reply[1::2], strict=True)))
                    wait(following(reply[-2]))
                return found

            yield take

    def tail(self) -> tuple[int, int]:
        found = self.read(self.start())
        return (found[-1].at[0], found[-1].at[1] + 1) if found else (0, 0)

    def trim(self, at: tuple[int, int]) -> None:
        reply = self.client.call("TRIM", self.stream, ["MIN_ID", b"%d-%d" % at])
        if isinstance(reply, S3PError) and reply.code == "ERR_NOT_IMPLEMENTED":
            raise NotCarried(reply.code)
        assert reply == "OK"

    def append_if(self, holds: bool, record: Record) -> bool:
        """ID must not lie before the last record's."""
        last = self.tail()[0]
        reply = self.client.append(self.stream, record.body, ID=last if holds else last - 1)
        if isinstance(reply, S3PError):
            if reply.code in ("ERR_NOT_IMPLEMENTED", "ERR_NOT_REPRESENTABLE"):
                raise NotCarried(reply.code)
            assert reply.code == "ERR_NON_MONOTONIC_ID", reply
            return False
        assert parse_id(reply)[0] == last
        return True

    def close(self) -> None:
        self.client.close()


def seen(page: list[tuple[bytes, bytes]]) -> list[Seen]:
    """Return the records of a READ reply's page."""
    return [Seen(parse_id(identifier), opened(body), parse_id(identifier)[0]) for identifier, body in page]


class SegmentFront(Front):
    """Base of the fronts of both segment dialects: positions are byte offsets."""

    plain = True
    socket_class: ClassVar[type[SegmentSocket]]

    def __init__(self, gateway: GatewayProcess, stream: str) -> None:
        super().__init__(gateway, stream)
        self.segment = f"{BASIN}/{stream}/0.#epoch.0"
        self.client: Any = self.connect()

    def connect(self) -> Any:
        """Open another connection."""
        return self.socket_class((LOOPBACK, self.gateway.segment_port), timeout=30)

    def create(self) -> None:
        self.client.create(self.segment)

    def start(self) -> int:
        offset = self.client.info(self.segment).start_offset
        assert isinstance(offset, int)
        return offset

    def tail(self) -> int:
        offset = self.client.info(self.segment).write_offset
        assert isinstance(offset, int)
        return offset

    def read(self, at: int) -> list[Seen]:
        return events(at, self.client.read_bytes(self.segment, at, self.tail() - at))

    @contextmanager
    def follow(self, at: int) -> Iterator[Take]:
        with self.connect() as client:
            ask(client, self.segment, at)
            end = at

            def take(count: int) -> list[Seen]:
                nonlocal at, end
                data = b""
                while True:
                    reply = client.reply()
                    assert isinstance(reply, released.SegmentRead | draft.SegmentRead), reply
                    assert reply.offset == end
                    data += reply.data
                    end += len(reply.data)
                    ask(client, self.segment, end)
                    whole = whole_events(data)
                    if len(found := events(at, data[:whole])) >= count:
                        assert whole == len(data)
                        at = end
                        return found

            yield take

    def trim(self, at: int) -> None:
        self.client.send(released.TruncateSegment(self.client.next_id(), self.segment, at))
        reply = self.client.reply()
        if isinstance(reply, released.OperationUnsupported):
            raise NotCarried("OperationUnsupported")
        assert isinstance(reply, released.SegmentTruncated), reply

    def close(self) -> None:
        self.client.close()


def ask(client: SegmentSocket, segment: str, offset: int) -> None:
    """Send a read request, without waiting for its reply."""
    if isinstance(client, DraftSocket):
        client.send(draft.ReadSegment(segment, offset, 1 << 20))
    else:
        client.send(released.ReadSegment(segment, offset, 1 << 20, "", client.next_id()))


def whole_events(data: bytes) -> int:
    """Return the length of the whole events at the beginning of `data`, in bytes."""
    at = 0
    while at + EVENT_HEADER_BYTES <= len(data):
        end = at + EVENT_HEADER_BYTES + int.from_bytes(data[at + 4 : at + 8], "big")
        if end > len(data):
            break
        at = end
    return at


def events(at: int, data: bytes) -> list[Seen]:
    """Return the events in bytes that begin at an offset."""
    assert whole_events(data) == len(data)
    found, place = [], 0
    while place < len(data):
        assert data[place : place + 4] == bytes(4), "no event begins here"
        end = place + EVENT_HEADER_BYTES + int.from_bytes(data[place + 4 : place + 8], "big")
        found.append(Seen(at + place, opened(data[place + EVENT_HEADER_BYTES : end])))
        place = end
    return found


class ReleasedFront(SegmentFront):
    """Segments, released dialect."""

    name = "segment released"
    socket_class = ReleasedSocket

    def __init__(self, gateway: GatewayProcess, stream: str) -> None:
        super().__init__(gateway, stream)
        self._writer = uuid4()
        self._number: int | None = None

    def append(self, records: Sequence[Record]) -> None:
        if self._number is None:
            assert self.client.setup(self.segment, self._writer) == UNKNOWN_WRITER
            self._number = 0
        self._number += len(records)
        bodies = [record.body for record in records]
        before = self.tail()
        self.client.send(*append_messages(self._writer, bodies, self._number, self.client.next_id()))
        reply = self.client.reply()
        if isinstance(reply, released.OperationUnsupported):
            raise NotCarried("OperationUnsupported")
        assert isinstance(reply, released.DataAppended), reply
        assert reply.event_number == self._number
        assert reply.current_segment_write_offset == before + len(join_events(bodies))

    def append_if(self, holds: bool, record: Record) -> bool:
        """Append on the condition that the segment ends at an offset."""
        data, offset = join_events([record.body]), self.tail() + (0 if holds else 8)
        writer = self.client.writer(self.segment)
        self.client.send(released.ConditionalBlockEnd(writer, 1, offset, data, self.client.next_id()))
        reply = self.client.reply()
        if isinstance(reply, released.OperationUnsupported):
            raise NotCarried("OperationUnsupported")
        assert isinstance(reply, released.DataAppended | released.ConditionalCheckFailed), reply
        return isinstance(reply, released.DataAppended)


class DraftFront(SegmentFront):
    """Segments, draft dialect."""

    name = "segment draft"
    socket_class = DraftSocket

    def __init__(self, gateway: GatewayProcess, stream: str) -> None:
        super().__init__(gateway, stream)
        self._writer = uuid4()
        self._offset: int | None = None

    def append(self, records: Sequence[Record]) -> None:
        if self._offset is None:
            self._offset = self.client.setup(self.segment, self._writer)
            assert self._offset == 0
        bodies = [record.body for record in records]
        before = self.tail()
        self._offset = self.client.append(self._writer, self._offset, bodies)
        assert self.tail() == before + len(join_events(bodies))


FRONTS: dict[str, type[Front]] = {
    front.name: front for front in (S2SFront, SseFront, JsonFront, ProtobufFront, S3PFront, DraftFront, ReleasedFront)
}
"""All of them, by name."""
