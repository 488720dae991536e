"""Operations that a guarded back allows clients with tokens, and the end of their sessions; on a clock that runs by
itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing
from support.access import ALL, TokensOf, scope
from support.store import BASIN, STREAM, Wall, appending, command

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.back import BackWrapper, Following
from penstock.core.grants import Grant
from penstock.core.identity import CLIENT, Client
from penstock.core.passthrough import Passthrough
from penstock.core.permissions import APPEND, MANAGE, READ
from penstock.model import operations
from penstock.model.access_tokens import OpGroups, ReadWrite, ResourceSet, Scope
from penstock.model.byte_operations import (
    NO_ATTRIBUTE,
    AppendBytes,
    GetAttribute,
    GetByteStreamInfo,
    Seal,
    Truncate,
    UpdateAttribute,
)
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import (
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteBasin,
    DeleteStream,
    EnsureBasin,
    FromSeqNum,
    GetBasinConfig,
    ListBasins,
    ListStreams,
    Locate,
    Operation,
    Read,
    ReconfigureBasin,
)
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfig, BasinConfigPatch
from penstock.model.table_operations import GetTableInfo
from penstock.routing.access.authority import Authority, FileOfTokens
from penstock.routing.access.guard import OPS, GuardedBack
from penstock.routing.access.revocation import LAPSE_SECONDS

HOUR_MS = 3_600_000


class Guards:
    """A store, its tokens, and the store as their clients have it."""

    def __init__(self, store: EmbeddedBack, tokens: TokensOf, authority: Authority, wall: Wall) -> None:
        self.store = store
        self.tokens = tokens
        self.authority = authority
        self.wall = wall
        self.back = GuardedBack(store, authority.vigil)

    @contextmanager
    def client(self, allowed: Scope, *, auto_prefix: bool = False, name: str = "token") -> Iterator[Grant]:
        """The block is a client's with such a token."""
        self.tokens.issue(name, allowed, auto_prefix=auto_prefix)
        grant = self.authority.grant(self.tokens.texts[name])
        before = CLIENT.set(Client(grant=grant))
        try:
            yield grant
        finally:
            CLIENT.reset(before)

    async def refuses(self, operation: Operation[object]) -> str:
        with pytest.raises(OperationFailed) as refused:
            await self.back.perform(operation)
        assert refused.value.failure.code is FailureCode.PERMISSION_DENIED
        return refused.value.failure.message


@pytest.fixture
async def guards(tmp_path: Path) -> AsyncIterator[Guards]:
    wall = Wall()
    async with open_embedded(EmbeddedSettings(directory=tmp_path / "store"), wall) as store:
        tokens = TokensOf(tmp_path)
        with closing(Authority(FileOfTokens(tokens.path), wall)) as authority:
            await store.perform(EnsureBasin(BASIN))
            await store.perform(EnsureBasin("basin-two"))
            await store.perform(CreateStream(STREAM))
            yield Guards(store, tokens, authority, wall)


def test_every_operation_of_s2_is_known() -> None:
    """Beside them, operations on bytes that fronts with access tokens ask for. All others are refused."""
    apart = {operations.ListBasins, operations.ListStreams}
    of_s2 = {one for one in vars(operations).values() if isinstance(one, type) and issubclass(one, Operation)} - {
        Operation
    }
    on_bytes = {GetByteStreamInfo, AppendBytes, GetAttribute, UpdateAttribute, Seal}
    assert of_s2 - apart == OPS.keys() - on_bytes


async def test_a_token_permits_what_a_route_asks_for(guards: Guards) -> None:
    """Positions need `read`, those of writers `append`; so do the permissions that fronts ask for."""
    with guards.client(scope("read", streams=ResourceSet(exact="stream"))):
        assert (await guards.back.perform(Locate(STREAM, FromSeqNum(0)))).seq_num == 0
        assert "append is not allowed" in await guards.refuses(GetAttribute(STREAM, bytes(16)))
        guards.back.require(STREAM, READ)
        guards.back.require_some(BASIN, "", READ)
        for refused in (
            lambda: guards.back.require(STREAM, APPEND),
            lambda: guards.back.require(StreamRef(BASIN, "other"), READ),
        ):
            with pytest.raises(OperationFailed) as error:
                refused()
            assert error.value.failure.code is FailureCode.PERMISSION_DENIED


async def test_what_is_not_allowed_is_not_asked(guards: Guards) -> None:
    with guards.client(scope("append", "create-stream", streams=ResourceSet(exact="stream"))):
        assert (await guards.back.perform(appending(b"x"))).end.seq_num == 1
        assert "check-tail is not allowed" in await guards.refuses(CheckTail(STREAM))
        assert "trim is not allowed" in await guards.refuses(command(b"trim", bytes(8)))
        assert "stream other is not in its scope" in await guards.refuses(CreateStream(StreamRef(BASIN, "other")))
        assert "create-basin" in await guards.refuses(CreateBasin("basin-three"))
        assert "delete-stream" in await guards.refuses(DeleteStream(STREAM))
        assert "check-tail is not allowed" in await guards.refuses(GetByteStreamInfo(STREAM))
        assert "Truncate" in await guards.refuses(Truncate(STREAM, 0))
        assert "GetTableInfo" in await guards.refuses(GetTableInfo("a/table"))
    assert (await guards.back.perform(CheckTail(STREAM))).seq_num == 1, "who has no token of ours passes"


CONFINED = (ResourceSet(prefix="t/"), ResourceSet(exact="stream"))


async def test_operations_on_bytes_need_what_those_on_records_do(guards: Guards) -> None:
    appends = (AppendBytes(STREAM, b"x"), UpdateAttribute(STREAM, bytes(16), 1, NO_ATTRIBUTE), Seal(STREAM))
    with guards.client(scope("read", "check-tail")):
        assert (await guards.back.perform(GetByteStreamInfo(STREAM))).length == 0
        for operation in appends:
            assert "append is not allowed" in await guards.refuses(operation)
    with guards.client(scope("append", "check-tail", streams=ResourceSet(exact="other")), name="elsewhere"):
        for operation in (GetByteStreamInfo(STREAM), *appends):
            assert "stream stream is not in its scope" in await guards.refuses(operation)
    with guards.client(scope("append"), name="writer"):
        for operation in appends:
            await guards.back.perform(operation)
    assert (await guards.store.perform(GetByteStreamInfo(STREAM))).sealed


@pytest.mark.parametrize("streams", CONFINED)
@pytest.mark.parametrize(
    "change",
    [
        DeleteBasin(BASIN),
        ReconfigureBasin(BASIN, BasinConfigPatch(create_stream_on_read=True)),
        EnsureBasin(BASIN, BasinConfig(create_stream_on_append=True)),
    ],
    ids=lambda change: type(change).__name__,
)
async def test_a_basin_is_not_changed_by_who_is_confined_to_some_of_its_streams(
    guards: Guards, streams: ResourceSet, change: Operation[object]
) -> None:
    config = await guards.store.perform(GetBasinConfig(BASIN))
    both = ReadWrite(read=True, write=True)
    confined = Scope(ALL, streams, op_groups=OpGroups(account=both, basin=both))
    with guards.client(confined):
        assert "to a token for some streams only" in await guards.refuses(change)
        assert [one.name for one in (await guards.back.perform(ListBasins(BASIN))).items] == [BASIN]
    assert await guards.store.perform(GetBasinConfig(BASIN)) == config
    assert (await guards.store.perform(CheckTail(STREAM))).seq_num == 0
    with guards.client(msgspec.structs.replace(confined, streams=ALL), name="whole"):
        await guards.back.perform(change)


async def read_through(guards: Guards, stream: StreamRef) -> None:
    async with guards.back.read_session(Read(stream, FromSeqNum(0), clamp=True)) as session:
        await session.next()


@pytest.mark.parametrize("may_create", [False, True])
async def test_reading_creates_a_stream_for_who_may_create_one(guards: Guards, may_create: bool) -> None:
    await guards.store.perform(ReconfigureBasin(BASIN, BasinConfigPatch(create_stream_on_read=True)))
    read, looked_at = StreamRef(BASIN, "read"), StreamRef(BASIN, "looked-at")
    ops = ("read", "check-tail", *(("create-stream",) if may_create else ()))
    with guards.client(scope(*ops)):
        for ask in (lambda: read_through(guards, read), lambda: guards.back.perform(CheckTail(looked_at))):
            try:
                await ask()
                created = True
            except OperationFailed as error:
                assert error.failure.code is FailureCode.STREAM_NOT_FOUND
                created = False
            assert created == may_create
    found = [one.name for one in (await guards.store.perform(ListStreams(BASIN))).items]
    assert found == ["looked-at", "read", STREAM.stream][2 * (not may_create) :]


async def test_an_append_creates_a_stream_where_the_basin_says_so(guards: Guards) -> None:
    """`append` is enough, as its owner has said; not in another basin."""
    await guards.store.perform(ReconfigureBasin(BASIN, BasinConfigPatch(create_stream_on_append=True)))
    with guards.client(scope("append")):
        await guards.back.perform(appending(b"x", stream=StreamRef(BASIN, "new")))
        with pytest.raises(OperationFailed) as refused:
            await guards.back.perform(appending(b"x", stream=StreamRef("basin-two", "new")))
        assert refused.value.failure.code is FailureCode.STREAM_NOT_FOUND
    assert [one.name for one in (await guards.store.perform(ListStreams("basin-two"))).items] == []


async def test_listings_have_what_the_scope_has(guards: Guards) -> None:
    for name in ("a/1", "a/2", "b"):
        await guards.store.perform(CreateStream(StreamRef(BASIN, name)))
    one_basin = ResourceSet(exact=BASIN)
    with guards.client(scope("list-basins", "list-streams", basins=one_basin, streams=ResourceSet(prefix="a/"))):
        assert [one.name for one in (await guards.back.perform(ListBasins())).items] == [BASIN]
        assert (await guards.back.perform(ListBasins("basin-t"))).items == []
        assert [one.name for one in (await guards.back.perform(ListStreams(BASIN))).items] == ["a/1", "a/2"]
        assert [one.name for one in (await guards.back.perform(ListStreams(BASIN, "a/2"))).items] == ["a/2"]
        assert (await guards.back.perform(ListStreams(BASIN, "b"))).items == []
        assert "basin-two" in await guards.refuses(ListStreams("basin-two"))
    with guards.client(scope("list-streams", streams=ResourceSet(exact="a/1")), name="exact"):
        page = await guards.back.perform(ListStreams(BASIN, limit=1))
        assert ([one.name for one in page.items], page.has_more) == (["a/1"], False)


async def test_names_behind_a_prefix(guards: Guards) -> None:
    ops = ("create-stream", "check-tail", "append", "list-streams")
    with guards.client(scope(*ops, streams=ResourceSet(prefix="t/")), auto_prefix=True):
        made = await guards.back.perform(CreateStream(StreamRef(BASIN, "s")))
        assert made.info.name == "s"
        assert (await guards.back.perform(appending(b"x", stream=StreamRef(BASIN, "s")))).end.seq_num == 1
        assert [one.name for one in (await guards.back.perform(ListStreams(BASIN))).items] == ["s"]
        with pytest.raises(OperationFailed, match="1 to 512 bytes, not 513"):
            await guards.back.perform(CreateStream(StreamRef(BASIN, "x" * 511)))
    assert (await guards.store.perform(CheckTail(StreamRef(BASIN, "t/s")))).seq_num == 1


async def test_what_was_taken_is_acknowledged_before_a_session_ends(
    guards: Guards, autojump_clock: trio.testing.MockClock
) -> None:
    with guards.client(scope("append")):
        async with guards.back.append_session(STREAM) as session:
            await session.send(appending(b"1"))
            assert (await session.receive())[-1].end.seq_num == 1
            await session.send(appending(b"2"))
            guards.tokens.revoke("token")
            ended = None
            acknowledged = 1
            try:
                while found := await session.receive():
                    acknowledged = found[-1].end.seq_num
            except OperationFailed as error:
                ended = error.failure
            assert ended is not None
            assert (ended.code, "was revoked" in ended.message) == (FailureCode.AUTHN, True)
            await session.send(appending(b"3"))
    assert (await guards.store.perform(CheckTail(STREAM))).seq_num == acknowledged == 2


async def test_a_batch_that_is_not_allowed_ends_the_session(guards: Guards) -> None:
    with guards.client(scope("append", "fence")):
        async with guards.back.append_session(STREAM) as session:
            await session.send(command(b"fence", b"mine"))
            await session.send(command(b"trim", bytes(8)))
            await session.send(appending(b"never"))
            assert (await session.receive())[-1].end.seq_num == 1
            with pytest.raises(OperationFailed, match="trim is not allowed"):
                await session.receive()
    assert (await guards.store.perform(CheckTail(STREAM))).seq_num == 1


async def test_what_comes_after_a_revocation_is_refused(guards: Guards) -> None:
    """Its client was asked for its token before it had sent all that it says."""
    with guards.client(scope("append", "list-streams")):
        await guards.back.perform(appending(b"one"))
        guards.tokens.revoke("token")
        for operation in (appending(b"two"), ListStreams(BASIN)):
            with pytest.raises(OperationFailed, match="was revoked") as refused:
                await guards.back.perform(operation)
            assert refused.value.failure.code is FailureCode.AUTHN
    assert (await guards.store.perform(CheckTail(STREAM))).seq_num == 1


async def test_a_read_ends_when_its_token_has_expired(guards: Guards, autojump_clock: trio.testing.MockClock) -> None:
    with guards.client(scope("read")) as grant:
        object.__setattr__(grant, "expires_ms", guards.wall.now + HOUR_MS)
        async with guards.back.read_session(Read(STREAM, FromSeqNum(0))) as session:
            assert isinstance(await session.next(), Following)
            with trio.move_on_after(10 * LAPSE_SECONDS) as waited:
                await session.next()
            assert waited.cancelled_caught, "it holds"
            guards.wall.now += HOUR_MS
            with pytest.raises(OperationFailed, match="has expired") as ended:
                await session.next()
            assert ended.value.failure.code is FailureCode.PERMISSION_DENIED
    with pytest.raises(OperationFailed):
        guards.authority.grant(guards.tokens.texts["token"])


async def test_work_in_several_steps_is_not_for_tokens(guards: Guards) -> None:
    """Its first steps reach no back, so that no token's operation would be checked."""
    steps = (
        lambda: guards.back.require(STREAM, MANAGE),
        lambda: guards.back.require_some(BASIN, "", MANAGE),
        lambda: guards.back.require_all(BASIN, ""),
    )
    for step in steps:
        step()
    with guards.client(ALL):
        for step in steps:
            with pytest.raises(OperationFailed, match="operations of several steps") as refused:
                step()
            assert refused.value.failure.code is FailureCode.PERMISSION_DENIED


async def test_a_permission_for_all_streams(guards: Guards) -> None:
    for number, (allowed, prefix, permits) in enumerate(
        (
            (scope("read"), "", True),
            (scope("append"), "", False),
            (scope("read", basins=ResourceSet(exact="basin-two")), "", False),
            (scope("read", streams=ResourceSet(prefix="t/")), "", False),
            (scope("read", streams=ResourceSet(prefix="t/")), "t/a", True),
            (scope("read", streams=ResourceSet(exact="stream")), "", False),
        )
    ):
        with guards.client(allowed, name=f"token-{number}"):
            if permits:
                guards.back.require_all(BASIN, prefix, READ)
            else:
                with pytest.raises(OperationFailed):
                    guards.back.require_all(BASIN, prefix, READ)


async def test_a_destination_is_that_of_the_name_behind_the_prefix(guards: Guards) -> None:
    """So that a fault rule for a route hits the route that the operation takes."""
    assert guards.back.destination(STREAM).stream == STREAM
    with guards.client(scope("read", streams=ResourceSet(prefix="t/")), auto_prefix=True):
        assert guards.back.destination(STREAM).stream == StreamRef(BASIN, f"t/{STREAM.stream}")


@pytest.mark.parametrize("with_token", [False, True])
async def test_sessions_of_clients_with_tokens_are_decoded(guards: Guards, with_token: bool) -> None:
    class Passing(BackWrapper):
        def passthrough(self, protocol: str, stream: StreamRef) -> Passthrough:
            return NotImplemented

    back = GuardedBack(Passing(guards.store), guards.authority.vigil)
    if not with_token:
        assert back.passthrough("s2s", STREAM) is NotImplemented
        return
    with guards.client(ALL):
        assert back.passthrough("s2s", STREAM) is None
