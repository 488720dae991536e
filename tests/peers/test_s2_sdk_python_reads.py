"""The official Python client, `s2-sdk`, unmodified: read sessions, the control plane, errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import s2_sdk as s2
from s2_sdk import AppendInput, Compression, ReadLimit, Record, SeqNum, TailOffset
from support.peers import finish, unique
from support.s2.sdk import EVERY_COMPRESSION, Connect, bodies

# ---- read sessions -------------------------------------------------------------------------------------------


@EVERY_COMPRESSION
def test_a_read_session_catches_up_says_so_and_follows(
    connect: Connect, basin: str, stream: str, compression: Compression
) -> None:
    async def main() -> None:
        async with connect(compression) as client:
            events = client.basin(basin).stream(stream)
            await events.append(AppendInput([Record(b"before %d " % n * 200) for n in range(100)]))
            read: list[s2.SequencedRecord] = []
            async with events.read_session(start=SeqNum(0)) as session:
                complete = asyncio.Event()

                async def collect() -> None:
                    async for batch in session:
                        read.extend(batch.records)
                        if len(read) == 105:
                            complete.set()

                collecting = asyncio.create_task(collect())
                assert (await session.caught_up()).seq_num == 100
                assert [record.seq_num for record in read] == list(range(100))
                for n in range(5):
                    await events.append(AppendInput([Record(b"after %d" % n)]))
                await complete.wait()
                assert [record.body for record in read[100:]] == [b"after %d" % n for n in range(5)]
            await collecting

    finish(main())


def test_an_empty_stream_is_caught_up_at_once(connect: Connect, basin: str, stream: str) -> None:
    async def main() -> None:
        async with (
            connect() as client,
            client.basin(basin).stream(stream).read_session(start=SeqNum(0)) as session,
        ):
            assert await session.caught_up() == s2.StreamPosition(0, 0)
            assert session.is_caught_up()

    finish(main(), 10)


def test_a_bounded_read_session_ends(connect: Connect, basin: str, stream: str) -> None:
    async def main() -> None:
        async with connect() as client:
            events = client.basin(basin).stream(stream)
            await events.append(AppendInput([Record(b"%d" % n) for n in range(2500 // 3)]))

            async def count(**how: object) -> int:
                total = 0
                async with events.read_session(**how) as session:  # type: ignore[arg-type]
                    async for batch in session:
                        total += len(batch.records)
                return total

            assert await count(start=SeqNum(0), limit=ReadLimit(count=700)) == 700
            assert await count(start=TailOffset(10), wait=0) == 10
            assert await count(start=SeqNum(0), limit=ReadLimit(bytes=9 * 10)) == 10
            assert await count(start=SeqNum(0), limit=ReadLimit(count=5000)) == 2500 // 3

    finish(main())


def test_following_many_streams_and_leaving_in_the_middle(connect: Connect, basin: str) -> None:
    """A client that breaks off resets its stream; the connection must go on."""

    async def main() -> None:
        async with connect() as client:
            home = client.basin(basin)
            for n in range(10):
                await home.create_stream(f"s{n}")
                await home.stream(f"s{n}").append(AppendInput([Record(b"x")]))
                async with home.stream(f"s{n}").read_session(start=SeqNum(0)) as session:
                    async for batch in session:
                        assert bodies(batch) == [b"x"]
                        break
            assert (await home.stream("s9").check_tail()).seq_num == 1

    finish(main())


# ---- control plane -------------------------------------------------------------------------------------------


def test_basins_from_birth_to_death(connect: Connect) -> None:
    async def main() -> None:
        async with connect() as client:
            names = sorted(unique("control") for _ in range(3))
            for name in names:
                assert (await client.create_basin(name)).name == name
            with pytest.raises(s2.S2ServerError) as caught:
                await client.create_basin(names[0])
            assert (caught.value.status_code, caught.value.code) == (409, "resource_already_exists")
            prefix = names[0][:-4]
            page = await client.list_basins(prefix=prefix, limit=2)
            assert [info.name for info in page.items] == names[:2]
            assert page.has_more
            assert [b.name async for b in client.list_all_basins(prefix=prefix, start_after=names[0])] == names[1:]

            config = s2.BasinConfig(create_stream_on_append=True)
            assert (await client.ensure_basin(names[0], config=config)).status is s2.EnsureStatus.CONFIG_UPDATED
            assert (await client.ensure_basin(names[0], config=config)).status is s2.EnsureStatus.CONFIG_UNCHANGED
            assert (await client.get_basin_config(names[0])).create_stream_on_append is True
            changed = await client.reconfigure_basin(names[0], config=s2.BasinConfig(create_stream_on_read=True))
            assert (changed.create_stream_on_append, changed.create_stream_on_read) == (True, True)
            await client.basin(names[0]).stream("made/by append").append(AppendInput([Record(b"x")]))
            assert (await client.basin(names[0]).stream("made by tail").check_tail()).seq_num == 0
            streams = await client.basin(names[0]).list_streams()
            assert [info.name for info in streams.items] == ["made by tail", "made/by append"]

            await client.delete_basin(names[1])
            await client.delete_basin("never-was-there", ignore_not_found=True)
            with pytest.raises(s2.S2ServerError) as caught:
                await client.basin(names[1]).create_stream("too-late")
            assert caught.value.status_code in (404, 409)

    finish(main())


def test_streams_from_birth_to_death(connect: Connect, basin: str) -> None:
    async def main() -> None:
        async with connect() as client:
            home = client.basin(basin)
            names = sorted(["a/b", "a/ü %?&=", "b", "\N{WATER WAVE}" * 20])
            for name in names:
                assert (await home.create_stream(name)).name == name
            assert [info.name for info in (await home.list_streams()).items] == names
            assert [info.name async for info in home.list_all_streams(prefix="a/")] == names[:2]
            with pytest.raises(s2.S2ServerError) as caught:
                await home.create_stream("b")
            assert caught.value.code == "resource_already_exists"

            config = s2.StreamConfig(
                retention_policy=3600,
                timestamping=s2.Timestamping(s2.TimestampingMode.CLIENT_REQUIRE, uncapped=True),
                delete_on_empty_min_age=60,
            )
            assert (await home.ensure_stream("c", config=config)).status is s2.EnsureStatus.CREATED
            assert (await home.ensure_stream("c", config=config)).status is s2.EnsureStatus.CONFIG_UNCHANGED
            resolved = await home.get_stream_config("c")
            assert resolved == s2.StreamConfig("express", 3600, config.timestamping, 60)
            changed = await home.reconfigure_stream("c", config=s2.StreamConfig(retention_policy="infinite"))
            assert (changed.retention_policy, changed.delete_on_empty_min_age) == ("infinite", 60)
            with pytest.raises(s2.S2ServerError) as caught:
                await home.stream("c").append(AppendInput([Record(b"without a timestamp")]))
            assert (caught.value.status_code, caught.value.code) == (422, "invalid")

            defaults = await home.get_stream_config("b")
            assert defaults == s2.StreamConfig(
                "express", 604_800, s2.Timestamping(s2.TimestampingMode.CLIENT_PREFER, uncapped=False), 0
            )
            await home.delete_stream("b")
            await home.delete_stream("never", ignore_not_found=True)
            with pytest.raises(s2.S2ServerError) as caught:
                await home.stream("b").append(AppendInput([Record(b"too late")]))
            assert caught.value.status_code in (404, 409)

    finish(main())


def test_a_stream_config_travels_with_the_append_that_makes_the_stream(connect: Connect) -> None:
    async def main() -> None:
        async with connect() as client:
            name = unique("autocreate")
            await client.create_basin(name, config=s2.BasinConfig(create_stream_on_append=True))
            config = s2.StreamConfig(retention_policy="infinite")
            events = client.basin(name).stream("events")
            async with events.append_session(stream_config=config) as session:
                await (await session.submit(AppendInput([Record(b"x")])))
            assert (await client.basin(name).get_stream_config("events")).retention_policy == "infinite"
            other = client.basin(name).stream("other")
            await other.append(AppendInput([Record(b"x")], stream_config=s2.StreamConfig(retention_policy=7200)))
            assert (await client.basin(name).get_stream_config("other")).retention_policy == 7200

    finish(main())


# ---- errors --------------------------------------------------------------------------------------------------


def test_errors_carry_status_and_code(connect: Connect, basin: str, stream: str) -> None:
    async def main() -> None:
        async with connect() as client:
            home = client.basin(basin)
            record = AppendInput([Record(b"x")])
            nowhere = client.basin("no-such-basin")
            refused: list[tuple[int, str, Callable[[], object]]] = [
                (404, "stream_not_found", lambda: home.stream("nope").check_tail()),
                (404, "stream_not_found", lambda: home.stream("nope").append(record)),
                (404, "stream_not_found", lambda: home.stream("nope").read(start=SeqNum(0))),
                (404, "stream_not_found", lambda: home.get_stream_config("nope")),
                (404, "basin_not_found", lambda: nowhere.stream("s").append(record)),
                (404, "basin_not_found", lambda: nowhere.create_stream("s")),
                (404, "basin_not_found", lambda: client.get_basin_config("no-such-basin")),
                (422, "invalid", lambda: home.create_stream("z", config=s2.StreamConfig(retention_policy=0))),
                (501, "not_implemented", lambda: client.list_access_tokens()),
            ]
            for status, code, attempt in refused:
                with pytest.raises(s2.S2ServerError) as caught:
                    await attempt()  # type: ignore[misc]
                assert (caught.value.status_code, caught.value.code) == (status, code), caught.value.message

    finish(main())


def test_reading_beyond_the_tail_tells_the_tail(connect: Connect, basin: str, stream: str) -> None:
    async def main() -> None:
        async with connect() as client:
            events = client.basin(basin).stream(stream)
            ack = await events.append(AppendInput([Record(b"x")]))
            for start in (SeqNum(1), SeqNum(9), TailOffset(0)):
                with pytest.raises(s2.ReadUnwrittenError) as caught:
                    await events.read(start=start)
                assert caught.value.tail == ack.tail
            with pytest.raises(s2.ReadUnwrittenError):
                async with events.read_session(start=SeqNum(9)) as session:
                    async for _ in session:
                        pytest.fail("nothing can be read there")

    finish(main())


def test_sessions_on_an_unknown_stream_fail_with_404(connect: Connect, basin: str) -> None:
    async def main() -> None:
        async with connect() as client:
            nope = client.basin(basin).stream("nope")
            session = nope.append_session()
            ticket = await session.submit(AppendInput([Record(b"x")]))
            with pytest.raises(s2.S2ServerError) as caught:
                await ticket
            assert caught.value.code == "stream_not_found"
            with pytest.raises(s2.S2ServerError):
                await session.close()
            with pytest.raises(s2.S2ServerError) as caught:
                async with nope.read_session(start=SeqNum(0)) as reading:
                    async for _ in reading:
                        pytest.fail("nothing can be read there")
            assert caught.value.code == "stream_not_found"

    finish(main())
