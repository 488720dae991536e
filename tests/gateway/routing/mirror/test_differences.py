"""Every difference between the two sides is found, counted by its cause, and named by its place."""

from __future__ import annotations

import base64

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from support.bridges.mirror import Two, append, running, settled
from support.store import BASIN, STREAM, Unwritable, appending

from penstock.core.encryption import EncryptionKey
from penstock.core.identity import CLIENT
from penstock.model.operations import Capability, CreateBasin, CreateStream, DeleteStream
from penstock.model.records import Header, Record, StreamRef
from penstock.model.streams import BasinConfig, Cipher
from penstock.routing.mirror.comparison import compare_records
from penstock.routing.mirror.hashing import HashedParts
from penstock.routing.mirror.settings import OnRefused
from penstock.routing.mirror.state import MirrorDifference, MirroredStream

Clock = trio.testing.MockClock
FRESH = MirroredStream.fresh("here", "there", HashedParts(timestamps=True, headers=True))


def records(*bodies: bytes, timestamp: int = 5) -> list[Record]:
    return [Record(number, timestamp, (), body) for number, body in enumerate(bodies)]


def test_each_cause_is_told_from_the_others() -> None:
    ours = records(b"a", b"b", b"c", b"d")
    theirs = [ours[0], Record(1, 5, (), b"B"), Record(2, 5, (Header(b"k", b"v"),), b"c"), Record(3, 6, (), b"d")]
    found = compare_records(FRESH, ours, theirs)
    assert found.differences == {"body": 1, "headers": 1, "timestamp": 1}
    assert found.first_difference == MirrorDifference("body", 1, 1)
    assert (found.compared, found.hashed) == (4, 4)
    assert found.primary_hash != found.secondary_hash


def test_records_in_another_order() -> None:
    ours = records(b"a", b"b", b"c")
    found = compare_records(FRESH, ours, records(b"a", b"c", b"b"))
    assert found.differences == {"order": 2}
    assert found.first_difference == MirrorDifference("order", 1, 1)


def test_timestamps_count_only_where_both_sides_carry_them() -> None:
    without = MirroredStream.fresh("here", "there", HashedParts(timestamps=False, headers=True))
    found = compare_records(without, records(b"a"), records(b"a", timestamp=6))
    assert found.differences == {}
    assert found.primary_hash == found.secondary_hash


def test_headers_and_timestamps_that_a_side_does_not_keep_are_no_differences() -> None:
    """But readers could not continue there, so they are counted."""
    bare = MirroredStream.fresh("here", "there", HashedParts(timestamps=False, headers=False))
    ours = [Record(0, 5, (Header(b"k", b"v"),), b"a"), *records(b"-", b"-", b"b", b"c")[1:]]
    theirs = [Record(0, 5, (), b"a"), Record(1, 6, (), b"-"), *records(b"-", b"-", b"B", b"c")[2:]]
    state = compare_records(bare, ours, theirs)
    assert (state.differences, state.unkept, state.primary_hash == state.secondary_hash) == ({"body": 1}, 2, False)
    same = compare_records(bare, ours[:2], [Record(0, 6, (), b"a"), ours[1]], given_timestamps=False)
    assert (same.faults, same.unkept, same.primary_hash) == ([], 1, same.secondary_hash)
    assert same.obstacles == ["1 records have other headers or timestamps, which one of the backs does not keep"]


async def test_a_secondary_that_drops_headers_is_equal_and_cannot_take_over(two: Two) -> None:
    two.secondary.lacking = frozenset({Capability.HEADERS})
    route, _holder = two.route()
    await route.open()
    async with running(route):
        await append(two.primary, b"one", headers={0: (Header(b"k", b"v"),)})
        done = await route.cut_over()
        assert (done.swapped, len(done.reasons)) == (False, 1)
        assert done.reasons[0].endswith(
            "1 records have other headers or timestamps, which one of the backs does not keep"
        )
        assert route.status()["state"] == "equal"
        assert not any(route.status()["differences"].values())
    ours, theirs = await two.both()
    assert [(record.headers, record.body) for record in theirs] == [((), b"one")]
    assert [record.body for record in ours] == [b"one"]


def test_once_apart_the_hashes_stay_apart() -> None:
    apart = compare_records(FRESH, records(b"a"), records(b"A"))
    later = compare_records(apart, records(b"b"), records(b"b"))
    assert later.differences == {"body": 1}
    assert later.primary_hash != later.secondary_hash


async def test_a_changed_record_is_found(two: Two) -> None:
    two.secondary.changes = lambda body: b"changed" if body == b"two" else body
    mirror = two.mirror()
    async with running(mirror):
        await append(mirror.tap, b"one", b"two", b"three")
        await append(mirror.tap, b"four")
        await settled(mirror)
        assert mirror.status()["differences"]["body"] == 1
        assert mirror.status()["state"] == "differing"
    state = await two.state()
    assert (state.compared, state.first_difference) == (4, MirrorDifference("body", 1, 1))
    assert state.faults == ["1 records differ: body"]


async def test_records_that_another_client_appended_to_the_secondary(two: Two) -> None:
    mirror = two.mirror()
    async with running(mirror):
        await append(mirror.tap, b"one")
        await settled(mirror)
        await append(two.secondary.back, b"alien", b"alien")
        await settled(mirror)
        state = await two.state()
        assert state.differences == {"extra": 2}
        assert state.first_difference == MirrorDifference("extra", 1, 1)
        assert not state.equal
        await settled(mirror)  # they are counted once
        assert (await two.state()).differences == {"extra": 2}
        await append(mirror.tap, b"two", b"three", b"four")
        await settled(mirror)
    assert (await two.state()).differences == {"extra": 2, "body": 2}
    _ours, theirs = await two.both()
    assert [record.body for record in theirs] == [b"one", b"alien", b"alien", b"four"]


async def test_a_secondary_that_had_other_records_before(two: Two) -> None:
    await two.secondary.back.perform(CreateBasin(BASIN))
    await two.secondary.back.perform(CreateStream(STREAM))
    await append(two.secondary.back, b"old", b"old", b"old")
    mirror = two.mirror()
    async with running(mirror):
        await append(mirror.tap, b"new")
        await settled(mirror)
    assert (await two.state()).differences == {"extra": 2, "body": 1}


async def test_records_that_the_secondary_lost_are_counted_and_copied_again(two: Two) -> None:
    mirror = two.mirror(idle_seconds=1)
    async with running(mirror):
        await append(mirror.tap, b"one", b"two", b"three")
        await settled(mirror)
        await two.secondary.back.perform(DeleteStream(STREAM))
        await two.secondary.back.perform(CreateStream(STREAM))
        await append(two.secondary.back, b"one", timestamps=[(await two.both())[0][0].timestamp])
        await settled(mirror)
    state = await two.state()
    assert state.differences == {"missing": 2}
    assert state.first_difference == MirrorDifference("missing", 1, 1)
    assert (state.compared, state.hashed_from, state.hashed) == (3, 1, 2)
    ours, theirs = await two.both()
    assert theirs == ours


async def test_a_secondary_without_the_stream_begins_anew(two: Two) -> None:
    """This is how to repair differences: delete the stream on the secondary."""
    two.secondary.changes = lambda _body: b"changed"
    mirror = two.mirror(idle_seconds=1)
    async with running(mirror):
        await append(mirror.tap, b"one", b"two")
        await settled(mirror)
        assert mirror.status()["differences"]["body"] == 2
        two.secondary.changes = lambda body: body
        await two.secondary.back.perform(DeleteStream(STREAM))
        await settled(mirror)
        assert mirror.status()["differences"]["body"] == 0
        assert mirror.status()["state"] == "equal"
    state = await two.state()
    assert (state.restarts, state.hashed, state.faults) == (1, 2, [])


async def test_a_stream_that_was_created_anew_on_the_primary(two: Two) -> None:
    mirror = two.mirror(idle_seconds=1)
    async with running(mirror):
        await append(mirror.tap, b"one", b"two")
        await settled(mirror)
        await mirror.tap.perform(DeleteStream(STREAM))
        await append(mirror.tap, b"other")
        await settled(mirror)
    assert (await two.state()).differences == {"extra": 1, "body": 1}


@pytest.mark.parametrize("side", ["primary", "secondary"])
@pytest.mark.parametrize("more", [0, 1])
async def test_another_stream_of_the_same_name_and_length(two: Two, side: str, more: int) -> None:
    """It is seen by its last record that was compared."""
    async with running(mirror := two.mirror()):
        await append(mirror.tap, b"one", b"two")
        await settled(mirror)
    back = two.primary if side == "primary" else two.secondary.back
    await back.perform(DeleteStream(STREAM))
    await back.perform(CreateStream(STREAM))
    await append(back, b"uno", b"dos", *[b"tres"] * more)
    async with running(mirror := two.mirror()):
        await settled(mirror)
    state = await two.state()
    assert (state.restarts, state.differences["body"]) == (1, 2)
    assert not state.equal or state.faults
    async with running(mirror := two.mirror()):
        await settled(mirror)
    assert (await two.state()).restarts == 1


async def test_the_copy_stops_at_a_refused_record(two: Two, clock: Clock) -> None:
    """And goes on as soon as it is taken; the others around it are copied."""
    two.secondary.refuses = lambda body: body == b"bad"
    mirror = two.mirror()
    async with running(mirror):
        await append(mirror.tap, b"one", b"two", b"bad", b"four")
        await settled(mirror)
        state = await two.state()
        assert state.stopped == "the secondary refuses record 2: a record that it cannot carry"
        assert state.differences == {"refused": 1}
        assert state.first_difference == MirrorDifference("refused", 2, 2, "a record that it cannot carry")
        assert mirror.status()["streams_stopped"] == 1
        await append(mirror.tap, b"five")
        await trio.sleep(100)  # it is tried again and again, and counted once
        assert mirror.status()["differences"]["refused"] == 1
        two.secondary.refuses = lambda _body: False
        await trio.sleep(40)
        assert mirror.status()["streams_stopped"] == 0
    ours, theirs = await two.both()
    assert theirs == ours and len(ours) == 5


async def test_the_copy_goes_past_refused_records(two: Two) -> None:
    two.secondary.refuses = lambda body: body.startswith(b"bad")
    for bodies in ([b"0", b"bad", b"2", b"bad"], [b"bad", b"5"]):
        mirror = two.mirror(on_refused=OnRefused.SKIP)  # a restart goes on with the shift
        async with running(mirror):
            await append(mirror.tap, *bodies)
            await settled(mirror)
    state = await two.state()
    assert (state.compared, state.shift, state.hashed, state.equal) == (6, 3, 3, True)
    assert state.differences == {"refused": 3}
    assert state.primary_hash == state.secondary_hash
    _ours, theirs = await two.both()
    assert [record.body for record in theirs] == [b"0", b"2", b"5"]


async def test_a_stream_that_cannot_be_there_stops_no_other(two: Two, clock: Clock) -> None:
    bad = StreamRef(BASIN, "bad")
    two.secondary.refused_streams.add(bad)
    mirror = two.mirror()
    async with running(mirror):
        await append(mirror.tap, b"one", stream=bad)
        await trio.sleep(1)
        await append(mirror.tap, b"one")
        await trio.sleep(1)
        assert (await two.state()).compared == 1
        assert (await two.state(bad)).stopped == "no name for stream basin-one/bad"
        assert (mirror.status()["streams_stopped"], mirror.status()["last_failure"]) == (1, "")
        two.secondary.refused_streams.clear()
        await trio.sleep(40)
        assert (await two.state(bad)).compared == 1
        assert mirror.status()["state"] == "equal"


async def test_a_secondary_that_is_down_keeps_no_client_waiting(two: Two, clock: Clock) -> None:
    two.secondary.down = True
    mirror = two.mirror()
    async with running(mirror):
        with trio.fail_after(1):
            for number in range(20):
                await append(mirror.tap, b"%d" % number, stream=StreamRef(BASIN, f"stream-{number % 3}"))
        await trio.sleep(45)
        status = mirror.status()
        assert (status["state"], status["last_failure"]) == ("interrupted", "back there: connection refused")
        assert status["streams_waiting"] + status["streams_followed"] <= 3
        assert status["lag_ms"] >= 45_000
        two.secondary.down = False
        await trio.sleep(60)
        status = mirror.status()
        assert (status["state"], status["last_failure"], status["lag_ms"]) == ("equal", "", 0)
        assert status["records_compared"] == 20


async def test_a_lost_acknowledgement_makes_no_duplicate(two: Two, clock: Clock) -> None:
    two.secondary.acknowledgements_to_lose = 3
    mirror = two.mirror()
    async with running(mirror):
        for number in range(6):
            await append(mirror.tap, b"%d" % number)
            await trio.sleep(10)
        await settled(mirror)
    ours, theirs = await two.both()
    assert theirs == ours and len(ours) == 6
    assert (await two.state()).faults == []


async def test_what_failed_on_the_primary_is_looked_at_all_the_same(two: Two) -> None:
    """It may have been appended, so the mirror must know the stream."""
    mirror = two.mirror()
    await append(two.primary, b"one")
    async with running(mirror):
        await settled(mirror)
        with Unwritable(two.primary):
            try:
                await mirror.tap.perform(appending(b"two"))
            except Exception as error:
                assert "storage" in str(error)
        assert mirror._queue.waiting or STREAM in mirror._queue.working
        await settled(mirror)
    assert (await two.state()).equal


async def test_an_encrypted_stream_stops_and_no_other(two: Two) -> None:
    """The mirror has no key, and the secondary gets nothing in plain text."""
    mirror = two.mirror()
    secret = StreamRef("basin-secret", "stream")
    key = EncryptionKey(base64.b64encode(bytes(32)).decode())
    async with running(mirror):
        await mirror.tap.perform(CreateBasin(secret.basin, BasinConfig(stream_cipher=Cipher.AES_256_GCM)))
        await mirror.tap.perform(CreateStream(secret))
        before = CLIENT.set(replace(CLIENT.get(), encryption_key=key))
        await append(mirror.tap, b"in private", stream=secret)
        CLIENT.reset(before)
        await append(mirror.tap, b"for all")
        await settled(mirror)
        assert (await two.state()).equal
        assert "missing encryption key for stream cipher 'aes-256-gcm'" in (await two.state(secret)).stopped
        assert (mirror.status()["streams_stopped"], mirror.status()["last_failure"]) == (1, "")
