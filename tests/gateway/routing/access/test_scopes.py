"""Operations that scopes allow; a token cannot issue one with more rights than its own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.access import ALL, scope

from penstock.core.scopes import FULL_SCOPE, GROUPS, common_prefix, excess, ops_of
from penstock.model.access_tokens import AccessTokenInfo, Op, OpGroups, ReadWrite, ResourceSet, Scope, inheriting

ENDS = "2030-01-01T00:00:00Z"
ISSUER = AccessTokenInfo(
    id="issuer",
    expires_at=ENDS,
    scope=scope("read", "append", basins=ResourceSet(exact="the-basin"), streams=ResourceSet(prefix="mine/")),
)


def wanted(**said: Any) -> AccessTokenInfo:
    given = {
        "basins": ResourceSet(exact="the-basin"),
        "streams": ResourceSet(prefix="mine/a"),
        "ops": (Op.READ,),
        **{name: value for name, value in said.items() if name in Scope.__struct_fields__},
    }
    rest = {name: value for name, value in said.items() if name not in Scope.__struct_fields__}
    return AccessTokenInfo(**{"id": "wanted", "expires_at": ENDS, "scope": Scope(**given), **rest})


def test_every_operation_has_a_group() -> None:
    assert GROUPS.keys() == set(Op)
    assert ops_of(FULL_SCOPE) == set(Op)
    assert ops_of(Scope()) == set()


def test_groups_and_single_operations_add_up() -> None:
    groups = OpGroups(stream=ReadWrite(read=True), basin=ReadWrite(write=True))
    found = ops_of(Scope(op_groups=groups, ops=(Op.LIST_BASINS,)))
    assert {Op.READ, Op.CHECK_TAIL, Op.CREATE_STREAM, Op.LIST_BASINS} <= found
    assert found.isdisjoint({Op.APPEND, Op.LIST_STREAMS, Op.CREATE_BASIN, Op.ISSUE_ACCESS_TOKEN})


BASIN_OPS = {Op.DELETE_BASIN, Op.RECONFIGURE_BASIN}


@pytest.mark.parametrize(
    ("streams", "allowed"),
    [
        (ALL, BASIN_OPS),
        (None, BASIN_OPS),
        (ResourceSet(exact=""), BASIN_OPS),
        (ResourceSet(prefix="t/"), set()),
        (ResourceSet(exact="t"), set()),
    ],
)
def test_who_is_confined_to_some_streams_changes_no_basin(streams: ResourceSet | None, allowed: set[Op]) -> None:
    both = ReadWrite(read=True, write=True)
    for said in ({"op_groups": OpGroups(account=both)}, {"ops": tuple(BASIN_OPS)}):
        found = ops_of(Scope(basins=ALL, streams=streams, **said))
        assert found & BASIN_OPS == allowed
    everything = ops_of(Scope(streams=ResourceSet(prefix="t/"), op_groups=OpGroups(both, both, both)))
    assert everything == set(Op) - BASIN_OPS


def test_who_is_confined_gives_no_token_that_changes_basins() -> None:
    account = OpGroups(account=ReadWrite(write=True))
    issuer = AccessTokenInfo(id="issuer", scope=Scope(ALL, ResourceSet(prefix="t/"), ALL, account))
    for streams in (None, ResourceSet(exact="")):
        freed = AccessTokenInfo(id="freed", scope=Scope(ALL, streams, ops=(Op.DELETE_BASIN,)))
        assert excess(freed, issuer) == "operation delete-basin"


def test_what_is_within_may_be_given() -> None:
    for one in (
        wanted(),
        wanted(streams=ResourceSet(exact="mine/a")),
        wanted(streams=None),
        wanted(ops=(Op.READ, Op.APPEND)),
        wanted(expires_at="2029-12-31T23:59:59.999999999Z"),
    ):
        assert excess(one, ISSUER) is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"ops": (Op.READ, Op.TRIM)}, "operation trim"),
        ({"op_groups": OpGroups(stream=ReadWrite(read=True))}, "operation check-tail"),
        ({"basins": ALL}, "basins '...'"),
        ({"streams": ResourceSet(prefix="min")}, "streams 'min...'"),
        ({"streams": ResourceSet(exact="mine")}, "streams 'mine'"),
        ({"access_tokens": ResourceSet(prefix="x")}, "access tokens 'x...'"),
        ({"expires_at": None}, "a lifetime beyond"),
        ({"expires_at": "2030-01-01T00:00:00.000000001Z"}, "a lifetime beyond"),
    ],
)
def test_more_is_not_given(said: dict[str, Any], why: str) -> None:
    assert (excess(wanted(**said), ISSUER) or "").startswith(why)


def test_groups_and_transactional_ids_are_given_on_as_they_are_or_narrower() -> None:
    own = {"groups": ResourceSet(prefix="g-"), "transactional_ids": ResourceSet(exact="t")}
    issuer = msgspec.structs.replace(ISSUER, scope=msgspec.structs.replace(ISSUER.scope, **own))
    assert excess(wanted(groups=ResourceSet(exact="g-1")), ISSUER) is None, "without a scope, any name"
    assert excess(wanted(**own), issuer) is None
    assert excess(wanted(**own | {"groups": ResourceSet(prefix="g")}), issuer) == "groups 'g...'"
    assert excess(wanted(**own | {"transactional_ids": None}), issuer) == "transactional ids '...'"
    inherited = inheriting(wanted(groups=ResourceSet(exact="g-1"), expires_at=None), issuer)
    assert (inherited.scope.groups, inherited.expires_at) == (ResourceSet(exact="g-1"), ENDS)
    assert inherited.scope.transactional_ids == own["transactional_ids"]
    assert inheriting(wanted(), ISSUER) == wanted()


def test_who_has_a_prefix_gives_no_names_without() -> None:
    issuer = msgspec.structs.replace(ISSUER, auto_prefix_streams=True)
    assert excess(wanted(), issuer) == "stream names without its prefix"
    assert excess(wanted(auto_prefix_streams=True), issuer) is None


@pytest.mark.parametrize(
    ("names", "prefix", "common"),
    [
        (ResourceSet(prefix=""), "", ""),
        (ResourceSet(prefix="ab"), "a", "ab"),
        (ResourceSet(prefix="ab"), "abc", "abc"),
        (ResourceSet(prefix="ab"), "b", None),
        (ResourceSet(exact="ab"), "a", "ab"),
        (ResourceSet(exact="ab"), "abc", None),
        (ResourceSet(exact=""), "", None),
    ],
)
def test_what_a_listing_begins_with(names: ResourceSet, prefix: str, common: str | None) -> None:
    assert common_prefix(names, prefix) == common


def test_a_set_of_names_is_exact_or_a_prefix() -> None:
    for said in ({}, {"exact": "a", "prefix": "a"}):
        with pytest.raises(ValueError, match="either exact or a prefix"):
            ResourceSet(**said)
