"""Access tokens in a state that several gateways share, in memory; on a clock that runs by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
from support.store import Fails
from support.store.shared_log import SharedLog, SharedLogEnd
from trio.testing import MockClock

from penstock.app.bootstrap.access import open_authority
from penstock.app.config import parse_config
from penstock.app.config.advice import advice
from penstock.backends.logged_tables import LoggedTables, LogNews, open_logged_tables
from penstock.core.grants import Grant
from penstock.core.scopes import FULL_SCOPE
from penstock.model.access_tokens import AccessTokenInfo, utc_time
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MIB
from penstock.model.operations import Operation
from penstock.model.table_operations import GetTableInfo, ListTable, TableItem
from penstock.routing.access.authority import Authority
from penstock.routing.access.revocation import LAPSE_SECONDS
from penstock.routing.access.token_table import TABLE, TableOfTokens

NOW_MS = 1_800_000_000_000
SOON = utc_time("2027-01-15T08:00:01Z")
"""One second after NOW_MS."""


class Wall:
    """A wall clock that is set by hand."""

    now = NOW_MS

    def __call__(self) -> int:
        return self.now


class CutOff(SharedLogEnd):
    """An end of the log that can be cut off."""

    lost = False
    recover_seconds = 5.0

    async def read(self) -> LogNews:
        if self.lost:
            raise fail(FailureCode.UNAVAILABLE, "it is cut off")
        found = await super().read()
        if self.lost:
            raise fail(FailureCode.UNAVAILABLE, "it is cut off")
        return found


def info(token_id: str = "a", *, expires: bool = False) -> AccessTokenInfo:
    return AccessTokenInfo(
        id=token_id, scope=FULL_SCOPE, expires_at=SOON if expires else None, auto_prefix_streams=False
    )


async def loaded(tables: LoggedTables) -> LoggedTables:
    with Fails(FailureCode.STREAM_NOT_FOUND):
        await tables.perform(GetTableInfo("#none"))
    return tables


@asynccontextmanager
async def gateways(shared: SharedLog, clock: Wall, count: int = 2) -> AsyncIterator[list[Authority]]:
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(open_logged_tables(SharedLogEnd(shared), MIB)) for _ in range(count)]
        yield [Authority(TableOfTokens(await loaded(tables)), clock) for tables in opened]


async def granted(authority: Authority, token: str) -> Grant:
    """Return the grant of a token, once this gateway knows it."""
    with trio.fail_after(1):
        while True:
            try:
                return authority.grant(token)
            except OperationFailed:
                await trio.sleep(0.01)


async def ids(authority: Authority, prefix: str = "", start_after: str = "", limit: int = 1000) -> list[str]:
    return [one.id for one in (await authority.page(prefix, start_after, limit)).items]


async def test_of_two_gateways_that_revoke_a_token_one_finds_it(autojump_clock: MockClock) -> None:
    async with gateways(SharedLog(), Wall()) as both:
        await both[0].issue(info())
        found: list[str] = []

        async def revoke(authority: Authority) -> None:
            try:
                await authority.revoke("a")
                found.append("revoked")
            except OperationFailed as error:
                found.append(error.failure.code.value)

        async with trio.open_nursery() as nursery:
            for authority in both:
                nursery.start_soon(revoke, authority)
        assert sorted(found) == sorted(["revoked", FailureCode.ACCESS_TOKEN_NOT_FOUND.value])


async def test_a_token_is_issued_used_and_revoked_through_any_gateway(autojump_clock: MockClock) -> None:
    async with gateways(SharedLog(), Wall()) as (one, other):
        with Fails(FailureCode.AUTHN):
            one.grant("pst_0123456789abcdef_" + "x" * 43)
        token = await one.issue(info())
        assert one.grant(token).info == info(), "where it was issued it is known at once"
        grant = await granted(other, token)
        with Fails(FailureCode.AUTHN):
            other.grant(token[:-1] + ("a" if token[-1] != "a" else "b"))
        with Fails(FailureCode.RESOURCE_ALREADY_EXISTS):
            await other.issue(info())
        with other.vigil.watch(grant) as watched:
            await trio.sleep(3 * LAPSE_SECONDS)
            assert watched.failure is None
            await one.revoke("a")
            with Fails(FailureCode.AUTHN):
                one.grant(token)
            with trio.fail_after(1.1 * LAPSE_SECONDS), watched.waiting():
                await trio.sleep_forever()
            assert watched.failure is not None and watched.failure.code is FailureCode.AUTHN
        with Fails(FailureCode.AUTHN):
            other.grant(token)
        with Fails(FailureCode.ACCESS_TOKEN_NOT_FOUND):
            await other.revoke("a")
        again = await other.issue(info())
        assert again != token
        await granted(one, again)
        with Fails(FailureCode.AUTHN):
            one.grant(token)


async def test_pages_are_in_the_order_of_ids(autojump_clock: MockClock) -> None:
    async with gateways(SharedLog(), Wall()) as (one, other):
        assert await ids(one) == []
        for name in ("b/2", "a", "b/1", "b/3", "c"):
            await one.issue(info(name))
        assert await ids(other) == ["a", "b/1", "b/2", "b/3", "c"]
        assert await ids(other, "b/", "b/1") == ["b/2", "b/3"]
        page = await other.page("b/", "", 2)
        assert ([one.id for one in page.items], page.has_more) == (["b/1", "b/2"], True)


async def test_a_page_costs_what_it_has(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tokens there are."""
    read: list[TableItem] = []

    async def perform(operation: Operation[Any]) -> Any:
        page = await LoggedTables.perform(tables, operation)
        read.extend(page.items)
        return page

    async with open_logged_tables(SharedLogEnd(SharedLog()), MIB) as tables:
        authority = Authority(TableOfTokens(await loaded(tables)), Wall())
        for number in range(50):
            await authority.issue(info(f"token-{number:02}"))
        monkeypatch.setattr(tables, "perform", perform)
        assert await ids(authority, "token-", "token-17", 2) == ["token-18", "token-19"]
        assert len(read) == 2


async def test_of_two_that_issue_one_id_at_once_one_does(autojump_clock: MockClock) -> None:
    shared, clock = SharedLog(), Wall()
    async with gateways(shared, clock, 3) as authorities:
        for number, expired in ((0, False), (1, True)):
            name, tokens, refused = f"token-{number}", list[str](), 0
            if expired:
                clock.now = NOW_MS
                old = await authorities[0].issue(info(name, expires=True))
                await granted(authorities[1], old)
                clock.now = NOW_MS + 1000
                with Fails(FailureCode.PERMISSION_DENIED):
                    authorities[1].grant(old)

            async def issue(authority: Authority, name: str = name, tokens: list[str] = tokens) -> None:
                nonlocal refused
                try:
                    tokens.append(await authority.issue(info(name)))
                except OperationFailed as error:
                    assert error.failure.code is FailureCode.RESOURCE_ALREADY_EXISTS
                    refused += 1

            async with trio.open_nursery() as nursery:
                for authority in authorities:
                    nursery.start_soon(issue, authority)
            assert (len(tokens), refused) == (1, 2)
            for authority in authorities:
                await granted(authority, tokens[0])


async def test_tokens_outlive_all_gateways_and_their_secrets_are_not_in_the_state(autojump_clock: MockClock) -> None:
    shared = SharedLog()
    async with gateways(shared, Wall(), 1) as (one,):
        token = await one.issue(info())
    secret = token.split("_", 2)[2].encode()
    values = [change.value for batch in shared.batches for _, change in batch.changes]
    assert not [value for value in values if value is not None and secret in value]
    async with gateways(shared, Wall(), 1) as (next_one,):
        assert next_one.grant(token).info.id == "a"


async def test_tokens_are_not_judged_by_an_outdated_state(autojump_clock: MockClock) -> None:
    shared = SharedLog()
    end = CutOff(shared)
    async with gateways(shared, Wall(), 1) as (one,), open_logged_tables(end, MIB) as tables:
        with pytest.raises(OperationFailed) as unread:
            Authority(TableOfTokens(tables)).grant("pst_0123456789abcdef_" + "x" * 43)
        assert unread.value.failure.code is FailureCode.HOT_SERVER, "it was not read yet"
        other = Authority(TableOfTokens(await loaded(tables)))
        token = await one.issue(info())
        grant = await granted(other, token)
        with other.vigil.watch(grant) as watched:
            end.lost = True
            await one.revoke("a")
            await trio.sleep(end.recover_seconds - 1)
            assert watched.failure is None
            assert other.grant(token)
            await trio.sleep(2 + LAPSE_SECONDS)
            assert watched.failure is not None and watched.failure.code is FailureCode.HOT_SERVER
            with Fails(FailureCode.HOT_SERVER):
                other.grant(token)


async def test_a_gateway_whose_state_a_server_keeps_has_its_tokens_there(autojump_clock: MockClock) -> None:
    config = parse_config(
        "[listeners.s2]\n[access]\n[backs.far]\nkind = 'kafka'\naddress = 'a:1'\nbasin = 'basin-one'\n"
        "state_topic = 'state'\n[[routes]]\nname = 'x'\nback = 'far'\n"
    )
    async with open_logged_tables(SharedLogEnd(SharedLog()), MIB) as tables:
        authority = open_authority(config, tables)
        assert authority is not None
        await authority.issue(info())
        assert len((await tables.perform(ListTable(TABLE, prefix=b"id:"))).items) == 1


IN_STATE = (
    "[backs.far]\nkind = 'kafka'\naddress = 'a:1'\nbasin = 'basin-one'\nstate_topic = 'state'\n"
    "[[routes]]\nname = 'x'\nback = 'far'\n"
)
ON_DISK = "[[store.basins]]\nname = 'basin-one'\n"


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        pytest.param(f"[listeners.s2]\n[access]\n{IN_STATE}", True, id="no tokens at all"),
        pytest.param(
            f"[listeners.s2]\n[listeners.kafka]\nbasin = 'basin-one'\nauth_tokens = ['a']\n[access]\n{IN_STATE}",
            True,
            id="tokens of a listener that issues none",
        ),
        pytest.param(f"[listeners.s2]\nauth_tokens = ['a']\n[access]\n{IN_STATE}", False, id="a first token"),
        pytest.param(f"[listeners.s2]\n{IN_STATE}", False, id="no access tokens"),
        pytest.param(f"[listeners.s2]\n[access]\n{ON_DISK}", False, id="tokens in a file"),
    ],
)
def test_a_state_whose_first_token_cannot_be_issued_is_warned_of(text: str, warned: bool) -> None:
    remarks = [remark for remark in advice(parse_config(text)) if remark.text.startswith("access: ")]
    assert [remark.insecure for remark in remarks] == [False] * warned
