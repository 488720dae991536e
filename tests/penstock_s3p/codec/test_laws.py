"""The laws that every codec keeps, for both roles of S3P; a client wired to a server; the fast way against the strict.

The replies are also read by hiredis, which knows nothing of this code.
"""

from __future__ import annotations

from typing import Any

import hiredis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.model.records import RecordId
from penstock.wire import conformance
from penstock.wire.codec import NEED_DATA, Codec, Role, installed_codecs
from penstock_s3p.codec import (
    PLUGIN,
    AppendedId,
    AppendRecords,
    Create,
    Delete,
    ErrorReply,
    Ok,
    ReadRecords,
    Records,
    Reply,
    S3PClient,
    S3PServer,
    TrimRecords,
    encode_command,
    encode_reply,
)
from penstock_s3p.codec.limits import S3PLimits

U64 = st.integers(0, 2**64 - 1) | st.integers(0, 3)
IDS = st.builds(RecordId, U64, U64)
NAMES = st.binary(min_size=1, max_size=12)
BODIES = st.binary(min_size=1, max_size=30) | st.sampled_from([b"\r\n", b"$5\r\nhello\r\n", b"x" * 192, b"y" * 300])
"""Among them those that look like framing, and both sides of the length where the parser changes its way."""
COMMANDS = st.one_of(
    st.builds(Create, NAMES),
    st.builds(Delete, NAMES),
    st.builds(TrimRecords, NAMES, IDS),
    st.builds(ReadRecords, NAMES, st.integers(1, 1000), st.integers(0, 10_000), IDS),
    st.builds(AppendRecords, NAMES, st.lists(BODIES, min_size=1, max_size=20), st.none() | U64),
)
RECORDS = st.lists(st.tuples(IDS, BODIES), max_size=12, unique_by=lambda pair: pair[0]).map(
    lambda pairs: Records.of(sorted(pairs))
)
MESSAGES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=40)
ERRORS = st.builds(ErrorReply, st.sampled_from(["ERR_UNKNOWN_STREAM", "ERR_STREAM_EXISTS", "ERR_9"]), MESSAGES)
REPLIES = st.one_of(st.just(Ok()), st.builds(AppendedId, IDS), RECORDS, ERRORS)

SPOKEN = {
    Role.SERVER: st.lists(COMMANDS, min_size=1, max_size=4).map(
        lambda commands: b"".join(piece for command in commands for piece in encode_command(command))
    ),
    Role.CLIENT: st.lists(REPLIES, min_size=1, max_size=6).map(lambda replies: b"".join(map(encode_reply, replies))),
}
CUTS = st.lists(st.integers(0, 2**16), max_size=30)
TOKENS = [b"\r\n", b"\r", b"\n", b"*", b"$", b"+", b"-", b":", b"0", b"1", b"2", b"00", b"*3", b"*4", b"*-1", b"$-1"]
TOKENS += [b"$6\r\nAPPEND\r\n", b"$4\r\nread\r\n", b"$1\r\ns\r\n", b"*0\r\n", b"*2\r\n", b"$5\r\nCOUNT\r\n", b"$0\r\n"]
GARBAGE = st.lists(st.sampled_from(TOKENS) | st.binary(max_size=8), max_size=25).map(b"".join)
ROLES = pytest.mark.parametrize("role", Role)


def maker(role: Role) -> Any:
    return lambda: PLUGIN.make(role, "0.2.0")


@st.composite
def near_misses(draw: st.DrawFn, role: Role) -> bytes:
    """A good conversation with a few bytes changed, put in, or taken out."""
    data = bytearray(draw(SPOKEN[role]))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 2))] = draw(st.sampled_from(TOKENS) | st.binary(max_size=2))
    return bytes(data)


def test_the_plug_in_is_registered() -> None:
    assert installed_codecs()["s3p"] is PLUGIN
    with pytest.raises(ValueError, match=r"0\.1\.0"):
        PLUGIN.make(Role.SERVER, "0.1.0")


@ROLES
def test_the_sample_is_good_wherever_it_is_cut(role: Role) -> None:
    data = PLUGIN.sample(role, "0.2.0")
    events, ending = conformance.trace(maker(role), [data])
    assert len(events) == 6 and ending == "Pull.PAUSED"
    for cut in range(len(data)):
        conformance.cut_anywhere(maker(role), data, [cut])
        conformance.prefix(maker(role), data, cut)
    conformance.cut_anywhere(maker(role), data, range(len(data)))


@ROLES
@given(data=st.data())
def test_cut_anywhere(role: Role, data: st.DataObject) -> None:
    spoken = data.draw(SPOKEN[role])
    conformance.cut_anywhere(maker(role), spoken, data.draw(CUTS))
    conformance.cut_anywhere(maker(role), spoken, range(len(spoken)))


@ROLES
@given(data=st.data())
def test_near_misses(role: Role, data: st.DataObject) -> None:
    spoken = data.draw(near_misses(role))
    conformance.no_surprise(maker(role), spoken)
    conformance.cut_anywhere(maker(role), spoken, range(len(spoken)))
    conformance.prefix(maker(role), spoken, data.draw(st.integers(0, len(spoken))))


@ROLES
@given(garbage=GARBAGE, cuts=CUTS)
def test_garbage(role: Role, garbage: bytes, cuts: list[int]) -> None:
    conformance.no_surprise(maker(role), garbage)
    conformance.cut_anywhere(maker(role), garbage, cuts)


TIGHT = S3PLimits(
    max_name_bytes=20, max_records_per_append=5, max_record_bytes=400, max_append_bytes=500, max_option_pairs=4
)
MOST_HELD = 2000
"""Five records of 500 bytes together, eight options of up to 256 bytes, and framing; nowhere near what is announced."""


@given(
    st.integers(1, 10**20),
    st.sampled_from([b"*4\r\n$6\r\nAPPEND\r\n$1\r\ns\r\n*0\r\n*%d\r\n", b"*%d\r\n", b"*3\r\n$%d\r\n"]),
)
def test_what_is_announced_costs_nothing(number: int, announcement: bytes) -> None:
    """Law 3: followed by as many bytes as it likes, the announcement is never believed beyond the limits."""
    data = announcement % number + b"$300\r\n" + b"x" * 10_000
    conformance.bounded(lambda: S3PServer(TIGHT), data, MOST_HELD, piece=100)


@given(st.data())
def test_a_server_holds_one_command_at_most(data: st.DataObject) -> None:
    spoken = data.draw(SPOKEN[Role.SERVER] | GARBAGE)
    conformance.bounded(lambda: S3PServer(TIGHT), spoken, MOST_HELD, piece=data.draw(st.integers(1, 100)))


@given(st.data())
def test_a_client_holds_one_reply_at_most(data: st.DataObject) -> None:
    spoken = data.draw(SPOKEN[Role.CLIENT])
    make = lambda: S3PClient(TIGHT, max_reply_bytes=600, observer=True)  # noqa: E731
    conformance.bounded(make, spoken, 5000, piece=data.draw(st.integers(1, 100)))


def test_small_pieces_are_not_kept_one_by_one() -> None:
    """A large record in pieces of two bytes: time in proportion to its size, and nothing is lost."""
    body = bytes(range(256)) * 2048
    spoken = b"".join(encode_command(AppendRecords(b"s", [body])))
    server = S3PServer()
    events = []
    for at in range(0, len(spoken), 2):
        server.receive(spoken[at : at + 2])
        if (event := server.next_event()) is not NEED_DATA:
            events.append(event)
    assert events == [AppendRecords(b"s", [body])]


def pull(codec: Codec[Any, Any]) -> list[Any]:
    events = []
    while (event := codec.next_event()) is not NEED_DATA:
        events.append(event)
    return events


@given(
    st.lists(st.tuples(COMMANDS, st.none() | ERRORS, st.lists(st.tuples(IDS, BODIES), max_size=5)), max_size=5), CUTS
)
def test_client_wired_to_server(turns: list[Any], cuts: list[int]) -> None:
    """Each end receives exactly what the other sends, pipelined and cut anywhere."""
    client, server = S3PClient(), S3PServer()
    said = b"".join(piece for command, _, _ in turns for piece in client.send(command))
    heard: list[Any] = []
    for piece in conformance.pieces_of(said, cuts):
        server.receive(piece)
        heard += pull(server)
    assert heard == [command for command, _, _ in turns]
    replies = [error or _success(command, pairs) for command, error, pairs in turns]
    answered = b"".join(piece for reply in replies for piece in server.send(reply))
    got: list[Any] = []
    for piece in conformance.pieces_of(answered, cuts):
        client.receive(piece)
        got += pull(client)
    assert got == replies


def _success(command: Any, pairs: list[tuple[RecordId, bytes]]) -> Reply:
    match command:
        case ReadRecords():
            return Records.of(sorted(dict(pairs).items()))
        case AppendRecords():
            return AppendedId(RecordId(len(pairs), 0))
        case _:
            return Ok()


ODD_LENGTHS = st.tuples(BODIES, st.integers(0, 3))


@given(st.lists(ODD_LENGTHS, min_size=1, max_size=40))
@example([(b"x", 0)] * 20 + [(b"a\r\n$1\r\nb", 0)] + [(b"x", 0)] * 20)
@example([(b"x", 0)] * 20 + [(b"x", 1)] + [(b"x" * 1000, 0)])
def test_the_fast_way_finds_what_the_strict_way_finds(records: list[tuple[bytes, int]]) -> None:
    """Bodies that contain framing, and lengths with leading zeros, among plain ones."""
    spoken = b"*4\r\n$6\r\nAPPEND\r\n$1\r\ns\r\n*0\r\n*%d\r\n" % len(records) + b"".join(
        b"$%b%d\r\n%b\r\n" % (b"0" * zeros, len(body), body) for body, zeros in records
    )
    server = S3PServer()
    server.receive(spoken * 2)
    assert pull(server) == [AppendRecords(b"s", [body for body, _ in records])] * 2


@given(st.lists(REPLIES, min_size=1, max_size=6))
def test_hiredis_reads_our_replies(replies: list[Reply]) -> None:
    reader = hiredis.Reader()
    reader.feed(b"".join(map(encode_reply, replies)))
    for reply in replies:
        got = reader.gets()
        match reply:
            case Ok():
                assert got == b"OK"
            case AppendedId(record_id):
                assert got == str(record_id).encode()
            case Records():
                assert got == [part for i, body in reply.pairs() for part in (str(i).encode(), body)]
            case ErrorReply(code, message):
                assert isinstance(got, hiredis.ReplyError) and str(got) == f"{code} {message}"
    assert reader.gets() is False
