"""Creation, forks, expiry and deletion; the repair of what crashes and other clients leave behind."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from support.durable import CLOSE, JSON, TEXT, Service, ref, running
from support.store import appending
from trio.testing import MockClock

from penstock.core.back import Back, BackWrapper
from penstock.model.byte_operations import GetByteStreamInfo, Seal
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import Append, CreateStream, DeleteStream, FromSeqNum, Operation, Trim
from penstock.model.table_operations import ListTable, RemoveTableKeys, UpdateTable

FORKED = ("stream-forked-from", "/v1/stream/a")


async def keys(back: Back) -> list[str]:
    """The keys that are left in the table."""
    try:
        page = await back.perform(ListTable("#durable"))
    except OperationFailed:
        return []
    return [item.key.decode() for item in page.items]


async def test_a_stream_of_another_client(service: Service) -> None:
    """It has the listener's content type, and all requests but one for another type."""
    await service.back.perform(CreateStream(ref("a")))
    await service.back.perform(appending(b"one", b"two", stream=ref("a")))
    assert await service.read("a") == b"onetwo"
    head = await service.ask("HEAD", "a")
    assert (head.headers["content-type"], head.headers["stream-next-offset"][:16]) == (
        "application/octet-stream",
        "0000000000000002",
    )
    assert (await service.ask("PUT", "a")).status == 200
    assert (await service.ask("PUT", "a", TEXT)).status == 409
    assert (await service.ask("POST", "a", ("content-type", "application/octet-stream"), body=b"!")).status == 204
    assert (await service.ask("PUT", "b", FORKED)).status == 201
    assert await service.read("b") == b"onetwo!"
    assert (await service.ask("DELETE", "a")).status == 204
    assert (await service.ask("GET", "a")).status == 410


async def test_a_stream_that_another_client_replaced(service: Service) -> None:
    """The properties of the old one are gone."""
    await service.ask("PUT", "a", JSON, ("stream-ttl", "60"), body=b"[1]")
    await service.back.perform(DeleteStream(ref("a")))
    await service.back.perform(CreateStream(ref("a")))
    await service.back.perform(appending(b"new", stream=ref("a")))
    assert await service.read("a") == b"new"
    assert "stream-ttl" not in (await service.ask("HEAD", "a")).headers
    assert await keys(service.back) == []


async def test_a_stream_that_another_client_deleted(service: Service) -> None:
    await service.ask("PUT", "a", JSON)
    await service.ask(
        "POST", "a", JSON, ("producer-id", "p"), ("producer-epoch", "3"), ("producer-seq", "0"), body=b"1"
    )
    await service.back.perform(DeleteStream(ref("a")))
    assert (await service.ask("GET", "a")).status == 404
    assert await keys(service.back) == []
    assert (await service.ask("PUT", "a", TEXT)).status == 201


class Stopping(BackWrapper):
    """A back that stops working before its n-th change, as if the process had ended."""

    def __init__(self, inner: Back, after: int) -> None:
        super().__init__(inner)
        self.left = after

    async def perform(self, operation: Operation[object]) -> object:  # type: ignore[override]
        if isinstance(operation, CreateStream | DeleteStream | Append | Seal | UpdateTable | RemoveTableKeys):
            if not self.left:
                raise fail(FailureCode.STORAGE, "it has ended")
            self.left -= 1
        return await super().perform(operation)


@pytest.mark.parametrize("steps", range(12))
async def test_a_creation_that_stops_halfway_never_was(service: Service, steps: int) -> None:
    """The next request finds no stream, and a repeated PUT creates it whole, after any number of changes."""
    await service.ask("PUT", "a", TEXT, body=b"source")
    stopping = Service(service.back, service.wall, service.front._settings, Stopping(service.back, steps))
    asked = ("PUT", "b", FORKED, ("stream-fork-sub-offset", "3"), ("stream-fork-offset", "-1"), CLOSE)
    first = await stopping.ask(*asked, body=b"more")
    assert first.status in (201, 500)
    if steps == 3:  # the stream was created, and nothing says by whom: it may be another client's
        assert await service.read("b") == b""
        assert (await service.ask("DELETE", "b")).status == 204
    if first.status == 500:
        assert (await service.ask("GET", "b")).status == 404
        assert await keys(service.back) == [f"stream/{ref('a')}"]
    assert (await service.ask(*asked, body=b"more")).status == (200 if first.status == 201 else 201)
    assert await service.read("b") == b"soumore"
    assert (steps < 8) == (first.status == 500)


@pytest.mark.parametrize("steps", range(6))
async def test_a_deletion_that_stops_halfway_is_completed(service: Service, steps: int) -> None:
    """Here, the source was deleted before its fork is."""
    await service.ask("PUT", "a", TEXT, body=b"source")
    await service.ask("PUT", "b", FORKED)
    await service.ask("DELETE", "a")
    stopping = Service(service.back, service.wall, service.front._settings, Stopping(service.back, steps))
    await stopping.ask("DELETE", "b")
    again = await service.ask("DELETE", "b")
    assert again.status in (204, 404)
    assert (await service.ask("GET", "a")).status == 404
    assert await keys(service.back) == []


async def test_a_client_may_not_create_what_it_may_not(service: Service) -> None:
    """A failure in the middle leaves nothing."""
    assert (await service.ask("PUT", "a", JSON, body=b"{")).status == 400
    assert (await service.ask("GET", "a")).status == 404
    assert await keys(service.back) == []


async def test_names_that_another_client_takes_meanwhile(service: Service) -> None:
    class Racing(BackWrapper):
        async def perform(self, operation: Operation[object]) -> object:  # type: ignore[override]
            if isinstance(operation, CreateStream):
                await super().perform(CreateStream(operation.stream))
                await super().perform(appending(b"theirs", stream=operation.stream))
            return await super().perform(operation)

    racing = Service(service.back, service.wall, service.front._settings, Racing(service.back))
    assert (await racing.ask("PUT", "a", TEXT, body=b"ours")).status == 409
    assert await service.read("a") == b"theirs"


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
async def test_a_stream_that_another_client_created_is_not_taken_for_an_unfinished_one(
    service: Service, steps: int
) -> None:
    """The process ended in a PUT, and left its entry: before it created the stream, or after."""
    stopping = Service(service.back, service.wall, service.front._settings, Stopping(service.back, steps))
    assert (await stopping.ask("PUT", "a", TEXT, CLOSE, body=b"ours")).status == 500
    with suppress(OperationFailed):  # it does not exist
        await service.back.perform(DeleteStream(ref("a")))
    await service.back.perform(CreateStream(ref("a")))
    await service.back.perform(appending(b"theirs", stream=ref("a")))
    assert await service.read("a") == b"theirs"
    assert await keys(service.back) == []


async def test_a_creation_on_one_listener_is_no_concern_of_another_clients_stream_on_the_next(
    service: Service,
) -> None:
    """A PUT has written its entry. Another protocol's client creates the stream, and a second listener is asked."""
    second = Service(service.back, service.wall, service.front._settings)

    class Racing(BackWrapper):
        async def perform(self, operation: Operation[object]) -> object:  # type: ignore[override]
            if isinstance(operation, CreateStream):
                await super().perform(CreateStream(operation.stream))
                await super().perform(appending(b"theirs", stream=operation.stream))
                assert await second.read("a") == b"theirs"
            return await super().perform(operation)

    racing = Service(service.back, service.wall, service.front._settings, Racing(service.back))
    assert (await racing.ask("PUT", "a", TEXT, body=b"ours")).status == 409
    assert await service.read("a") == b"theirs"


class Undecided(BackWrapper):
    """A back whose answer to a creation is lost; `theirs`: after another client had created and filled the stream."""

    def __init__(self, inner: Back, *, theirs: bool) -> None:
        super().__init__(inner)
        self.theirs = theirs

    async def perform(self, operation: Operation[object]) -> object:  # type: ignore[override]
        found = await super().perform(operation)
        if isinstance(operation, CreateStream):
            if self.theirs:
                await super().perform(appending(b"theirs", stream=operation.stream))
            raise fail(FailureCode.STORAGE, "the answer is lost")
        return found


@pytest.mark.parametrize("theirs", [False, True])
async def test_a_creation_whose_answer_is_lost(service: Service, theirs: bool) -> None:
    """It leaves nothing, unless there are records that it did not append."""
    lost = Service(service.back, service.wall, service.front._settings, Undecided(service.back, theirs=theirs))
    assert (await lost.ask("PUT", "a", TEXT, body=b"ours")).status == 500
    if theirs:
        assert await service.read("a") == b"theirs"
    else:
        assert (await service.ask("GET", "a")).status == 404
    assert await keys(service.back) == []


async def test_time_to_live_slides_and_is_never_short(service: Service) -> None:
    """The last use is written down for a tenth of it at most, so the stream lives up to a tenth longer."""
    await service.ask("PUT", "a", TEXT, ("stream-ttl", "100"))
    for _ in range(30):
        service.wall.now += 9_000
        assert (await service.ask("GET", "a")).status == 200
    service.wall.now += 100_000
    assert (await service.ask("HEAD", "a")).status == 200
    service.wall.now += 10_001
    assert (await service.ask("HEAD", "a")).status == 404


async def test_what_has_expired_is_swept(service: Service) -> None:
    await service.ask("PUT", "a", TEXT, ("stream-ttl", "1"))
    await service.ask("PUT", "b", TEXT, ("stream-expires-at", "2030-01-01T00:00:00Z"))
    await service.ask("PUT", "c", TEXT)
    service.wall.now = 1_893_456_000_000
    await service.front._catalog.sweep()
    for name in ("a", "b"):
        with pytest.raises(OperationFailed):
            await service.back.perform(GetByteStreamInfo(ref(name)))
    assert await keys(service.back) == [f"stream/{ref('c')}"]


async def test_an_expired_source_leaves_its_name_to_its_forks(service: Service) -> None:
    await service.ask("PUT", "a", TEXT, ("stream-ttl", "10"), body=b"x")
    await service.ask("PUT", "b", FORKED, ("stream-ttl", "1000"))
    service.wall.now += 20_000
    assert (await service.ask("GET", "a")).status == 410
    assert (await service.ask("PUT", "a", TEXT)).status == 409
    assert (await service.ask("PUT", "c", FORKED)).status == 409
    assert await service.read("b") == b"x"
    await service.ask("DELETE", "b")
    assert (await service.ask("PUT", "a", TEXT)).status == 201


async def test_forks_of_what_is_left_of_a_stream(service: Service) -> None:
    """They begin with the first record that is kept, and keep timestamps."""
    await service.ask("PUT", "a", TEXT, body=b"0")
    for number in range(1, 5):
        service.wall.now += 1000
        await service.ask("POST", "a", TEXT, body=b"%d" % number)
    await service.back.perform(Trim(ref("a"), FromSeqNum(2)))
    assert (
        await service.ask("PUT", "b", FORKED, ("stream-fork-offset", "0000000000000004_0000000000000000"))
    ).status == 201
    assert await service.read("b") == b"23"


async def test_all_of_it_is_there_after_a_restart(clock: MockClock, tmp_path: Path) -> None:
    async with running(tmp_path) as before:
        await before.ask("PUT", "a", JSON, ("stream-ttl", "60"), body=b"[1,2]")
        await before.ask("PUT", "b", FORKED, CLOSE)
        await before.ask("DELETE", "a")
    async with running(tmp_path, wall=before.wall) as after:
        assert (await after.ask("GET", "a")).status == 410
        head = await after.ask("HEAD", "b")
        assert (head.headers["stream-ttl"], head.headers["stream-closed"]) == ("60", "true")
        assert await after.read("b") == b"[1,2]"
