"""Segment conversations as bytes: at every cut, and the golden bytes of the segment fact sheet on a live server."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from msgspec.structs import replace
from support.segment.client import UNKNOWN_WRITER, Address, DraftSocket, ReleasedSocket, SegmentSocket, bytes_of
from support.segment.draft_blocks import READ
from support.segment.messages import WRITER

from penstock.model.limits import MIB
from penstock_pravega.codec import append_messages, draft, join_events, released

VECTORS = Path(__file__).parents[1] / "penstock_pravega/codec/segment_vectors.json"
TOGETHER = 500
"""Connections at once: the files that a process may have open are not many more, here and there."""


def settle(address: Address) -> None:
    """Returns when the server has read all that was sent to it before. It takes what is there in turns, so that
    the second echo comes from a later turn than the first, which began after we had sent."""
    with DraftSocket(address) as client:
        for _ in range(2):
            client.expect(draft.KeepAlive, draft.KeepAlive())


def released_conversation(writer: UUID, segment: str) -> list[Any]:
    """Every form of append, a failed condition, a read, a table."""
    bodies = [b"hello", b"worldwide"]
    return [
        released.Hello(16, 5),
        released.SetupAppend(1, writer, segment),
        *append_messages(writer, bodies, 2, 2),
        *append_messages(writer, bodies, 4, 3, block_size=20),
        released.KeepAlive(),
        *append_messages(writer, bodies, 6, 4, block_size=50),
        *append_messages(writer, bodies, 8, 5, block_size=30, room=False),
        released.ConditionalAppend(writer, 9, -1, b"no", 6),
        released.ReadSegment(segment, 0, 13, "", 7),
        released.ReadTable(8, segment, "", ()),
    ]


def test_a_released_conversation_at_every_cut(segment_address: Address, segment: str) -> None:
    """Each cut on a connection of its own; blocks of the draft at every cut are tests of the front."""
    content = join_events([b"hello", b"worldwide"] * 4)
    with ReleasedSocket(segment_address) as client:
        client.new(segment, b"hello")
        cuts = range(1, len(bytes_of(*released_conversation(WRITER, segment))))
        for group in (cuts[at : at + TOGETHER] for at in range(0, len(cuts), TOGETHER)):
            with ExitStack() as stack:
                talks = []
                for cut in group:
                    peer, writer = stack.enter_context(SegmentSocket(segment_address)), uuid4()
                    data = bytes_of(*released_conversation(writer, segment))
                    peer.send_bytes(data[:cut])
                    talks.append((peer, writer, data[cut:]))
                settle(segment_address)
                for peer, _, rest in talks:
                    peer.send_bytes(rest)
                for peer, writer, _ in talks:
                    check_released_replies(peer, writer, segment)
        # The appends of many connections lie between each other's: what is compared is how often each event is there.
        stored = client.content(segment)[13:]
        assert len(stored) == len(cuts) * len(content)
        assert stored.count(b"worldwide") == 4 * len(cuts)


def check_released_replies(client: SegmentSocket, writer: UUID, segment: str) -> None:
    last, others = UNKNOWN_WRITER, []
    while last < 8 or len(others) < 6:
        reply = client.reply()
        if isinstance(reply, released.DataAppended):
            assert (reply.writer_id, reply.previous_event_number) == (writer, last)
            assert reply.event_number == 2 * (reply.request_id - 1)
            last = reply.event_number
        else:
            others.append(reply)
    found = {type(reply): reply for reply in others}
    assert found[released.Hello] == others[0] == released.Hello(16, 5)
    assert found[released.AppendSetup] == released.AppendSetup(1, segment, writer, UNKNOWN_WRITER)
    assert released.KeepAlive in found
    assert found[released.ConditionalCheckFailed] == released.ConditionalCheckFailed(writer, 9, 6)
    assert found[released.SegmentRead].data == join_events([b"hello"])
    assert found[released.NoSuchSegment].request_id == 8


# ---- golden bytes ----------------------------------------------------------------------------------------------------

GOLDEN = {vector["name"]: bytes.fromhex(vector["hex"]) for vector in json.loads(VECTORS.read_text())}
NOT_SAID = {"auth-token-check-failed", "error-message", "partial-event"}
"""Messages that this server never sends, and one that occurs only inside other vectors."""
SEGMENT, TABLE = "s1/st/0.#epoch.0", "s1/rg_kvtable/0.#epoch.0"
HELLO, WORLDWIDE = join_events([b"hello"]), join_events([b"worldwide"])
WORLD = join_events([b"world"])


class Golden:
    """A connection on which vectors are sent and received, by their names."""

    def __init__(self, client: SegmentSocket) -> None:
        self.client = client

    def say(self, *names_or_messages: Any) -> Any:
        """Send; the reply."""
        self.client.send_bytes(b"".join(map(self._bytes, names_or_messages)))
        return self.client.reply()

    def hear(self, name: str, *names_or_messages: Any) -> None:
        """Send; the reply must be that vector, byte by byte."""
        self.client.send_bytes(b"".join(map(self._bytes, names_or_messages)))
        wanted, received = self._bytes(name), b""
        while len(received) < len(wanted):
            received += self.client.socket.recv(len(wanted) - len(received))
        assert received == wanted, name

    def _bytes(self, what: Any) -> bytes:
        return GOLDEN[what] if isinstance(what, str) else bytes_of(what)


def test_the_golden_bytes_of_appends(segment_address: Address) -> None:
    with SegmentSocket(segment_address) as client:
        golden = Golden(client)
        assert b"".join(client.codec.send(released.Hello(15, 5))) == GOLDEN["hello-python-0.3.8"]
        assert golden.say("hello-python-0.3.8") == released.Hello(16, 5)
        golden.hear("no-such-segment", released.SetupAppend(1, WRITER, SEGMENT))
        golden.hear("segment-created", released.CreateSegment(4, SEGMENT, 0, 0))
        assert golden.say(released.SetupAppend(1, WRITER, SEGMENT)).last_event_number == UNKNOWN_WRITER
        assert golden.say("append-block-end-alone") == released.DataAppended(WRITER, 1, UNKNOWN_WRITER, 2, 13)
        golden.hear("data-appended-next", released.AppendBlockEnd(WRITER, 13, WORLD, 1, 2, 3))
        appended = golden.say("append-block-with-partial", "append-block-end-completes-partial")
        assert appended == released.DataAppended(WRITER, 4, 2, 1, 56)
        appended = golden.say("append-block-with-padding", released.AppendBlockEnd(WRITER, 13, b"", 1, 5, 9))
        assert appended == released.DataAppended(WRITER, 5, 4, 9, 69)
        appended = golden.say("append-block-exact", released.AppendBlockEnd(WRITER, 26, b"", 2, 7, 9))
        assert appended == released.DataAppended(WRITER, 7, 5, 9, 95)
        read = golden.say("read-segment")
        content = HELLO + WORLD + HELLO + WORLDWIDE + HELLO + HELLO + WORLD
        assert (read.data, read.offset, read.request_id) == (content, 0, 16)
        assert golden.say("truncate-segment") == released.SegmentTruncated(10, SEGMENT)
        assert client.info(SEGMENT).start_offset == 13
        assert golden.say("delete-segment") == released.SegmentDeleted(9, SEGMENT)

        client.create(SEGMENT)
        assert golden.say(released.SetupAppend(1, WRITER, SEGMENT)).last_event_number == UNKNOWN_WRITER
        golden.say(released.AppendBlockEnd(WRITER, 13, HELLO, 1, 8, 2))
        golden.hear("segment-sealed", "seal-segment")
        read = golden.say(released.ReadSegment(SEGMENT, 13, 100, "", 17))
        assert bytes_of(replace(read, at_tail=False)) == GOLDEN["segment-read-end"]  # the tail is advisory
        client.delete(SEGMENT)
        client.create(SEGMENT)
        assert golden.say("modified-utf8-segment").request_id == 1

    for version, stale in ((15, "invalid-event-number-v15"), (16, "invalid-event-number-v16")):
        with ReleasedSocket(segment_address, version=version) as client:
            golden = Golden(client)
            client.setup(SEGMENT, WRITER)
            if version == 15:
                assert golden.say("conditional-append") == released.DataAppended(WRITER, 1, UNKNOWN_WRITER, 3, 9)
                golden.hear("conditional-check-failed", released.ConditionalAppend(WRITER, 2, 0, b"x", 6))
                client.setup(SEGMENT, WRITER)
            golden.hear(stale, "append-block-end-alone")
            assert client.ended()


def test_the_golden_bytes_of_tables(segment_address: Address) -> None:
    """Servers may choose the numbers of versions."""
    with ReleasedSocket(segment_address) as client:
        golden = Golden(client)
        assert golden.say("create-table-segment-python") == released.SegmentCreated(7, TABLE)
        (version,) = client.put(TABLE, (b"k", b"v", -1))
        reply = golden.say("read-table-entries-delta")
        assert isinstance(reply, released.TableEntriesDeltaRead)
        data, theirs = bytes_of(reply), GOLDEN["table-entries-delta-read"]
        # The same but for the version, and the position at the end.
        at = theirs.index(b"\0\0\0\1k") + 5
        assert data[:at] + theirs[at : at + 8] + data[at + 8 : -8] + theirs[-8:] == theirs
        assert int.from_bytes(data[at : at + 8], "big") == version < reply.last_position
        client.expect(released.SegmentDeleted, released.DeleteTableSegment(1, TABLE, False))


def test_the_golden_bytes_of_the_draft(segment_address: Address, segment: str) -> None:
    with DraftSocket(segment_address) as client:
        golden = Golden(client)
        client.create(READ.segment)
        client.setup(READ.segment, WRITER)
        client.append(WRITER, 0, [b"hello"])
        client.create(segment)
        client.setup(segment, WRITER)
        golden.hear(
            "draft-data-appended", "draft-begin-append-block", *[draft.Event(b"hello")] * 2, "draft-end-append-block"
        )
        golden.hear("draft-segment-read", draft.ReadSegment(READ.segment, 0, MIB))
        rest = draft.Partial(draft.PartialKind.END, WORLDWIDE[9:])
        begin, end = draft.BeginAppendBlock(WRITER, 26, 16 + 11 + 17), draft.EndAppendBlock(WRITER, 43, 17)
        assert golden.say(begin, "draft-partial-begin", "draft-partial-middle", rest, end) == draft.DataAppended(
            WRITER, 43
        )
        assert client.content(segment) == HELLO * 2 + WORLDWIDE
        other = f"{segment.split('/')[1]}-other"
        client.create(other)
        client.setup(other, WRITER)
        assert golden.say("draft-block-with-trailing-partial").connection_offset_ack_level in (13, 30)


def test_all_golden_bytes_are_used() -> None:
    tests = Path(__file__).read_text().partition("class Golden")[2]
    assert {name for name in GOLDEN if f'"{name}"' not in tests} == NOT_SAID
