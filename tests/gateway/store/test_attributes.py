"""Attributes of streams: numbers by name, which survive whatever the records survive (segment fact sheet, 1.3)."""

import trio
from support.store import BASIN, STREAM, Blocked, Fails, FullDisk, Wall, acknowledged, appending, sending

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.byte_operations import NO_ATTRIBUTE, Attribute, GetAttribute, Seal, UpdateAttribute
from penstock.model.failures import FailureCode
from penstock.model.operations import CreateBasin, CreateStream, DeleteStream, Operation
from penstock.model.records import StreamRef
from penstock.store.attributes import StoreAttributes
from penstock.store.sweeps import ATTRIBUTES_AT_ONCE, purge_chunk

NAME, OTHER = bytes(range(16)), bytes(16)
LEAST, MOST = NO_ATTRIBUTE + 1, 2**63 - 1


def setting(value: int, expected: int, attribute: Attribute = NAME) -> UpdateAttribute:
    return UpdateAttribute(STREAM, attribute, value, expected)


async def value(back: EmbeddedBack, attribute: Attribute = NAME) -> int:
    return await back.perform(GetAttribute(STREAM, attribute))


async def test_one_is_set_where_it_is_what_was_expected(back: EmbeddedBack) -> None:
    assert await value(back) == NO_ATTRIBUTE
    assert not await back.perform(setting(1, expected=0))
    assert await back.perform(setting(1, expected=NO_ATTRIBUTE))
    assert not await back.perform(setting(2, expected=NO_ATTRIBUTE))
    assert not await back.perform(setting(2, expected=5))
    assert await value(back) == 1
    for before, after in ((1, LEAST), (LEAST, MOST), (MOST, 0)):
        assert await back.perform(setting(after, expected=before))
        assert await value(back) == after
    assert await value(back, OTHER) == NO_ATTRIBUTE


async def test_one_can_be_removed(back: EmbeddedBack) -> None:
    await back.perform(setting(1, expected=NO_ATTRIBUTE))
    assert await back.perform(setting(NO_ATTRIBUTE, expected=1))
    assert await value(back) == NO_ATTRIBUTE
    assert back._store._look_ups.execute("SELECT count(*) FROM attributes").fetchone() == (0,)
    assert await back.perform(setting(7, expected=NO_ATTRIBUTE))


async def test_writers_and_attributes_have_one_space(back: EmbeddedBack) -> None:
    await back.perform(sending(b"x", writer=NAME, position=5))
    assert await back.perform(setting(9, expected=5))
    with Fails(FailureCode.STALE_WRITER_POSITION):
        await back.perform(sending(b"x", writer=NAME, position=9))


async def test_a_sealed_stream_still_has_them(back: EmbeddedBack) -> None:
    await back.perform(Seal(STREAM))
    assert await back.perform(setting(1, expected=NO_ATTRIBUTE))
    assert await value(back) == 1


async def test_they_survive_a_restart(settings: EmbeddedSettings, wall: Wall) -> None:
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        await back.perform(setting(-5, expected=NO_ATTRIBUTE))
    async with open_embedded(settings, wall) as back:
        assert await value(back) == -5
        assert await back.perform(setting(6, expected=-5))


async def test_a_stream_that_is_not_there(back: EmbeddedBack) -> None:
    for stream in (StreamRef(BASIN, "other"), StreamRef("no-basin", "s")):
        missing: list[Operation[object]] = [GetAttribute(stream, NAME), UpdateAttribute(stream, NAME, 1, 1)]
        for operation in missing:
            with Fails(FailureCode.STREAM_NOT_FOUND):
                await back.perform(operation)


async def test_a_value_beyond_64_bits_is_refused_and_harms_no_other(back: EmbeddedBack) -> None:
    """SQLite would refuse it in the middle of everybody's transaction."""
    async with back.append_session(STREAM) as session:
        await session.send(appending(b"x"))
        with Fails(FailureCode.INVALID, "64 bits"):
            await back.perform(setting(2**63, expected=NO_ATTRIBUTE))
        await acknowledged(session, 1)
    assert await value(back) == NO_ATTRIBUTE


async def test_updates_on_their_way_are_seen_and_answers_wait_for_them(back: EmbeddedBack) -> None:
    found: dict[str, object] = {}

    async def perform(name: str, operation: Operation[object]) -> None:
        found[name] = await back.perform(operation)

    async with trio.open_nursery() as nursery, Blocked(back):
        for name, operation in (
            ("first", setting(1, expected=NO_ATTRIBUTE)),
            ("second", setting(2, expected=1)),
            ("late", setting(3, expected=1)),
            ("asked", GetAttribute(STREAM, NAME)),
        ):
            nursery.start_soon(perform, name, operation)
            await trio.testing.wait_all_tasks_blocked()
        assert not found
    assert found == {"first": True, "second": True, "late": False, "asked": 2}


async def test_what_could_not_be_written_never_was(back: EmbeddedBack) -> None:
    await back.perform(setting(1, expected=NO_ATTRIBUTE))

    async def fails(operation: Operation[object]) -> None:
        with Fails(FailureCode.STORAGE):
            await back.perform(operation)

    with FullDisk(back):
        async with trio.open_nursery() as nursery, Blocked(back):
            for operation in (
                appending(b"x" * 300_000),
                setting(2, expected=1),
                setting(3, expected=2),
                GetAttribute(STREAM, NAME),
                setting(4, expected=1),  # it is not 1 now, but only because of what fails
            ):
                nursery.start_soon(fails, operation)
                await trio.testing.wait_all_tasks_blocked()
    assert await value(back) == 1
    assert await back.perform(setting(2, expected=1))


async def test_the_newest_goes_back_first(back: EmbeddedBack) -> None:
    attributes = StoreAttributes(back._store._look_ups)
    stream = back._store.registry.stream(STREAM)
    assert stream is not None
    first, second, third = (attributes.decide(stream, {NAME: number}) for number in (1, 2, 3))
    first.commit()
    third.undo()
    assert attributes.value(stream, NAME) == 2
    second.undo()
    assert attributes.value(stream, NAME) == 1


async def test_memory_holds_what_is_on_its_way_and_a_bounded_number_of_others(back: EmbeddedBack) -> None:
    attributes = StoreAttributes(back._store._look_ups, capacity=10)
    back._store.attributes._attributes = back._store.appends._attributes = attributes
    writers = [bytes(15) + bytes([number]) for number in range(50)]
    async with back.append_session(STREAM) as session:
        async with Blocked(back):
            for number, writer in enumerate(writers):
                await session.send(sending(b"x", writer=writer, position=number))
            assert len(attributes._decided) == 50
        received = 0
        while received < 50:
            received += len(await session.receive())
    assert (len(attributes._decided), len(attributes._durable)) == (0, 10)
    assert [await value(back, writer) for writer in writers] == list(range(50))
    assert len(attributes._durable) == 10
    with Fails(FailureCode.STALE_WRITER_POSITION):
        await back.perform(sending(b"x", writer=writers[0], position=0))


async def test_a_failing_look_up_fails_its_operation_and_nothing_else(back: EmbeddedBack) -> None:
    look_ups = back._store._look_ups
    look_ups.execute("PRAGMA query_only=OFF")
    look_ups.execute("CREATE TEMP TABLE attributes (x)")
    operations: list[Operation[object]] = [
        GetAttribute(STREAM, NAME),
        setting(1, expected=NO_ATTRIBUTE),
        sending(b"x", writer=NAME, position=1),
    ]
    for operation in operations:
        with Fails(FailureCode.STORAGE, "could not read"):
            await back.perform(operation)
    assert (await back.perform(sending(b"x"))).offset == 9
    look_ups.execute("DROP TABLE temp.attributes")
    assert await value(back) == NO_ATTRIBUTE


async def test_they_are_purged_with_their_stream_in_pieces(back: EmbeddedBack) -> None:
    other = StreamRef(BASIN, "other")
    await back.perform(CreateStream(other))
    await back.perform(sending(b"x", stream=other, position=1))
    await back.perform(sending(b"x", position=1))
    stream = back._store.registry.stream(STREAM)
    assert stream is not None
    many = ((stream.id, index.to_bytes(16, "big"), index) for index in range(1, 2 * ATTRIBUTES_AT_ONCE))
    db = back._store._writer
    db.execute("BEGIN")
    db.executemany("INSERT INTO attributes VALUES (?, ?, ?)", many)
    db.execute("COMMIT")
    await back.perform(DeleteStream(STREAM))
    left = []
    while (chunk := purge_chunk(back._store._look_ups, 0)) is not None:
        for statement in chunk[0]:
            db.execute(*statement)
        left.append(db.execute("SELECT count(*) FROM attributes").fetchone()[0])
    assert left == [ATTRIBUTES_AT_ONCE, 1]
    assert db.execute("SELECT name FROM streams").fetchall() == [("other",)]
    assert await back.perform(GetAttribute(other, OTHER)) == 1
