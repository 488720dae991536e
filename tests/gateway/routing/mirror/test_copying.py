"""A mirror copies what is appended, in order and whole, and says how far it is."""

from __future__ import annotations

import hashlib

import pytest
import trio
import trio.testing
from support.bridges.mirror import Two, append, running, settled
from support.store import BASIN, STREAM, appending, fence, sending, stored_bytes

from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import AppendBytes, Merge
from penstock.model.operations import CreateBasin, CreateStream, DeleteStream, FromSeqNum, GetStreamConfig, Trim
from penstock.model.records import Header, Record, StreamRef
from penstock.model.streams import Retention, StreamConfig, TimestampingMode
from penstock.routing.mirror.hashing import NO_RECORDS, HashedParts, chain

HEADERS = {0: (Header(b"name", b"value"), Header(b"name", b""))}


async def test_records_are_the_same_on_both_sides(two: Two) -> None:
    mirror = two.mirror()
    async with running(mirror):
        await append(mirror.tap, b"one", b"", b"three", headers=HEADERS, timestamps=[10, None, 30])
        await append(mirror.tap, bytes(700_000), bytes(300_000))
        async with mirror.tap.append_session(STREAM) as session:
            await session.send(appending(b"in a session"))
            assert [one.end.seq_num for one in await session.receive()] == [6]
        await append(mirror.tap, b"another", stream=StreamRef(BASIN, "other"))
        await settled(mirror)
    ours, theirs = await two.both()
    assert len(ours) == 6
    assert theirs == ours
    state = await two.state()
    assert (state.compared, state.hashed, state.equal, state.faults) == (6, 6, True, [])
    assert state.primary_hash == state.secondary_hash != NO_RECORDS.hex()
    assert (await two.state(StreamRef(BASIN, "other"))).equal
    status = mirror.status()
    assert (status["state"], status["streams"], status["records_compared"], status["lag_records"]) == ("equal", 2, 7, 0)


async def test_the_hash_can_be_computed_by_others(two: Two) -> None:
    """As docs/management.md says it."""
    mirror = two.mirror()
    async with running(mirror):
        await append(mirror.tap, b"one", b"two", headers=HEADERS, timestamps=[10, 11])
        await settled(mirror)
    expected = bytes(32)
    for timestamp, headers, body in ((10, HEADERS[0], b"one"), (11, (), b"two")):
        said = timestamp.to_bytes(8, "big") + len(headers).to_bytes(4, "big")
        for header in headers:
            for text in header:
                said += len(text).to_bytes(4, "big") + text
        expected = hashlib.sha256(expected + said + len(body).to_bytes(4, "big") + body).digest()
    assert (await two.state()).secondary_hash == expected.hex()


def test_the_hash_tells_fields_apart() -> None:
    def of(*records: Record, timestamps: bool = True, headers: bool = True) -> bytes:
        return chain(NO_RECORDS, records, HashedParts(timestamps, headers))

    plain = Record(0, 1, (), b"ab")
    others = [
        Record(0, 2, (), b"ab"),
        Record(0, 1, (Header(b"a", b"b"),), b""),
        Record(0, 1, (Header(b"", b"ab"),), b""),
        Record(0, 1, (Header(b"", b""),), b"ab"),
    ]
    assert len({of(plain), *(of(other) for other in others), of(plain, plain), NO_RECORDS}) == 7
    assert of(plain, timestamps=False) == of(others[0], timestamps=False)
    assert of(plain, headers=False) == of(Record(0, 1, (Header(b"a", b"b"),), b"ab"), headers=False)
    assert of(*others) == chain(of(*others[:2]), others[2:], HashedParts(timestamps=True, headers=True))


async def test_it_goes_on_where_it_stood(two: Two) -> None:
    """Across restarts: nothing is copied or counted twice."""
    for number in range(3):
        mirror = two.mirror()
        async with running(mirror):
            await append(mirror.tap, b"a%d" % number, b"b%d" % number)
            await settled(mirror)
            assert mirror.status()["records_compared"] == 2 * number + 2
    ours, theirs = await two.both()
    assert theirs == ours
    assert (await two.state()).hashed == 6


async def test_what_was_there_before_is_copied_too(two: Two) -> None:
    await append(two.primary, *(b"%d" % number for number in range(1000)))
    await two.primary.perform(CreateStream(StreamRef(BASIN, "empty")))
    mirror = two.mirror()
    async with running(mirror):
        await settled(mirror)
    ours, theirs = await two.both()
    assert theirs == ours and len(ours) == 1000
    assert (await two.state(StreamRef(BASIN, "empty"))).equal


async def test_streams_of_other_routes_are_left_alone(two: Two) -> None:
    """But streams mirrored before are not forgotten, even if the filter of the listing excludes them."""
    other = StreamRef(BASIN, "other")
    await append(two.primary, b"one")
    await append(two.primary, b"one", stream=other)
    for count in (1, 2):
        mirror = two.mirror(lambda stream: stream == STREAM)
        async with running(mirror):
            await settled(mirror)
            assert mirror.status()["streams"] == count
            await append(mirror.tap, b"two", stream=other)
            await settled(mirror)
            assert (await two.state(other)).compared == count + 1


async def test_what_segment_clients_append(two: Two) -> None:
    """Events and merged transactions: their clients read the same bytes on both sides."""
    await append(two.primary, b"first")
    transaction = StreamRef(INTERNAL_BASIN, "transaction")
    await two.primary.perform(CreateBasin(INTERNAL_BASIN))
    mirror = two.mirror()
    async with running(mirror):
        await mirror.tap.perform(sending(b"event", b"another"))
        await mirror.tap.perform(CreateStream(transaction))
        await mirror.tap.perform(sending(b"in a transaction", stream=transaction))
        await mirror.tap.perform(Merge(STREAM, (transaction,)))
        await settled(mirror)
        assert mirror.status()["streams"] == 1
    ours, theirs = await two.both()
    assert theirs == ours and theirs[-1].body == b"in a transaction"
    assert stored_bytes(two.secondary.back) == stored_bytes(two.primary)
    state = await two.state()
    assert (state.by_bytes, state.byte_shift, state.faults) == (True, 0, [])


@pytest.mark.parametrize("data", [b"no event at all", join_events([bytes(3_000_000)]), join_events([b"a", b"", b"b"])])
async def test_bytes_that_are_others_on_the_secondary_are_told(two: Two, data: bytes) -> None:
    await append(two.primary, b"first")
    mirror = two.mirror()
    async with running(mirror):
        async with mirror.tap.append_session(STREAM) as session:
            await session.send(AppendBytes(STREAM, data))
            await session.receive()
        await settled(mirror)
    ours, theirs = await two.both()
    assert theirs == ours
    shift = len(stored_bytes(two.primary)) - len(stored_bytes(two.secondary.back))
    state = await two.state()
    assert (state.equal, state.byte_shift) == (True, shift)
    assert shift and state.faults == [f"clients append bytes to it, and its length in bytes differs by {abs(shift)}"]


async def test_many_streams_take_turns(two: Two) -> None:
    """More than are followed at once, all of them appended to again and again."""
    mirror = two.mirror(streams_at_once=2)
    streams = [StreamRef(BASIN, f"stream-{number}") for number in range(7)]
    async with running(mirror):
        for _ in range(3):
            for stream in streams:
                await append(mirror.tap, b"x", b"y", stream=stream)
        await settled(mirror)
        assert mirror.status()["records_compared"] == 7 * 6
        for stream in streams:
            ours, theirs = await two.both(stream)
            assert theirs == ours and len(ours) == 6


async def test_streams_that_found_no_room_are_listed_again(two: Two, clock: trio.testing.MockClock) -> None:
    mirror = two.mirror(most_waiting=4, streams_at_once=2)
    streams = [StreamRef(BASIN, f"stream-{number}") for number in range(12)]
    two.secondary.down = True
    async with running(mirror):
        for stream in streams:
            await append(mirror.tap, b"x", stream=stream)
        await trio.sleep(20)
        two.secondary.down = False
        await trio.sleep(60)
        assert mirror.status()["records_compared"] == 12
        assert mirror.status()["state"] == "equal"


async def test_an_idle_stream_is_followed_no_longer_and_then_again(two: Two, clock: trio.testing.MockClock) -> None:
    mirror = two.mirror(idle_seconds=5)
    async with running(mirror):
        await append(mirror.tap, b"one")
        await trio.sleep(3)
        assert mirror.status()["streams_followed"] == 1
        await trio.sleep(30)
        assert mirror.status()["streams_followed"] == 0
        await append(mirror.tap, b"two")
        await trio.sleep(3)
        assert mirror.status()["records_compared"] == 2


async def test_the_copy_keeps_timestamps_whatever_the_primary_does(two: Two) -> None:
    config = StreamConfig(
        timestamping_mode=TimestampingMode.ARRIVAL, retention=Retention(3600), retention_bytes=1 << 30
    )
    await two.primary.perform(CreateStream(STREAM, config))
    mirror = two.mirror()
    async with running(mirror):
        await append(mirror.tap, b"one", timestamps=[1])
        await settled(mirror)
    ours, theirs = await two.both()
    assert theirs == ours and ours[0].timestamp > 1
    copied = await two.secondary.back.perform(GetStreamConfig(STREAM))
    assert (copied.timestamping_uncapped, copied.retention) == (True, Retention(3600))
    assert copied.retention_bytes == 1 << 30


async def test_commands_are_copied(two: Two) -> None:
    mirror = two.mirror()
    async with running(mirror):
        await append(mirror.tap, b"one")
        await mirror.tap.perform(fence(b"token"))
        await append(mirror.tap, b"two", token="token")
        await settled(mirror)
    ours, theirs = await two.both()
    assert theirs == ours and len(ours) == 3


async def test_a_primary_that_was_trimmed_before_shifts_the_numbers(two: Two) -> None:
    await append(two.primary, b"0", b"1", b"2", b"3")
    await two.primary.perform(Trim(STREAM, FromSeqNum(2)))
    mirror = two.mirror()
    async with running(mirror):
        await append(mirror.tap, b"4")
        await settled(mirror)
        assert mirror.status()["state"] == "differing"
    ours, theirs = await two.both()
    assert [record.body for record in ours] == [record.body for record in theirs] == [b"2", b"3", b"4"]
    assert theirs[0].seq_num == 0
    state = await two.state()
    assert (state.compared, state.shift, state.hashed_from, state.hashed, state.uncompared) == (5, 2, 2, 3, 2)
    assert state.faults == ["its sequence numbers are smaller by 2"]


async def test_records_that_are_trimmed_on_both_sides_are_no_difference(two: Two) -> None:
    await append(two.primary, b"0", b"1")
    mirror = two.mirror()
    async with running(mirror):
        await settled(mirror)
    await append(two.primary, b"2", b"3")
    await append(two.secondary.back, b"2", b"3")
    await two.primary.perform(Trim(STREAM, FromSeqNum(3)))
    await two.secondary.back.perform(Trim(STREAM, FromSeqNum(4)))
    mirror = two.mirror()
    async with running(mirror):
        await append(mirror.tap, b"4")
        await settled(mirror)
    state = await two.state()
    assert (state.compared, state.hashed, state.uncompared, state.faults) == (5, 3, 2, [])


async def test_a_stream_that_is_deleted_is_forgotten(two: Two) -> None:
    mirror = two.mirror(idle_seconds=1)
    async with running(mirror):
        await append(mirror.tap, b"one")
        await settled(mirror)
        await mirror.tap.perform(DeleteStream(STREAM))
        await settled(mirror)
        assert mirror.status()["streams"] == 0
        assert await two.states.load(STREAM) is None


async def test_a_stream_of_which_all_records_were_trimmed(two: Two) -> None:
    """Its last record cannot be looked at any more; it goes on."""
    async with running(mirror := two.mirror()):
        await append(mirror.tap, b"one", b"two")
        await settled(mirror)
    for back in (two.primary, two.secondary.back):
        await back.perform(Trim(STREAM, FromSeqNum(2)))
    async with running(mirror := two.mirror()):
        await append(mirror.tap, b"three")
        await settled(mirror)
    state = await two.state()
    assert (state.compared, state.restarts, state.faults, state.equal) == (3, 0, [], True)
