"""The scopes of access tokens: operations by group, names by set, and comparison of one scope with another."""

from __future__ import annotations

from typing import Final

from penstock.model.access_tokens import AccessTokenInfo, Op, OperationGroup, OpGroups, ReadWrite, ResourceSet, Scope

__all__ = ["FULL_SCOPE", "GROUPS", "common_prefix", "excess", "is_confined", "ops_of"]

_READ: Final = False
_WRITE: Final = True

GROUPS: Final[dict[Op, tuple[OperationGroup, bool]]] = {
    Op.LIST_BASINS: (OperationGroup.ACCOUNT, _READ),
    Op.CREATE_BASIN: (OperationGroup.ACCOUNT, _WRITE),
    Op.DELETE_BASIN: (OperationGroup.ACCOUNT, _WRITE),
    Op.RECONFIGURE_BASIN: (OperationGroup.ACCOUNT, _WRITE),
    Op.GET_BASIN_CONFIG: (OperationGroup.ACCOUNT, _READ),
    Op.ISSUE_ACCESS_TOKEN: (OperationGroup.ACCOUNT, _WRITE),
    Op.REVOKE_ACCESS_TOKEN: (OperationGroup.ACCOUNT, _WRITE),
    Op.LIST_ACCESS_TOKENS: (OperationGroup.ACCOUNT, _READ),
    Op.LIST_STREAMS: (OperationGroup.BASIN, _READ),
    Op.CREATE_STREAM: (OperationGroup.BASIN, _WRITE),
    Op.DELETE_STREAM: (OperationGroup.BASIN, _WRITE),
    Op.GET_STREAM_CONFIG: (OperationGroup.BASIN, _READ),
    Op.RECONFIGURE_STREAM: (OperationGroup.BASIN, _WRITE),
    Op.CHECK_TAIL: (OperationGroup.STREAM, _READ),
    Op.APPEND: (OperationGroup.STREAM, _WRITE),
    Op.READ: (OperationGroup.STREAM, _READ),
    Op.TRIM: (OperationGroup.STREAM, _WRITE),
    Op.FENCE: (OperationGroup.STREAM, _WRITE),
    Op.ACCOUNT_METRICS: (OperationGroup.ACCOUNT, _READ),
    Op.BASIN_METRICS: (OperationGroup.BASIN, _READ),
    Op.STREAM_METRICS: (OperationGroup.STREAM, _READ),
    Op.LIST_LOCATIONS: (OperationGroup.ACCOUNT, _READ),
    Op.GET_DEFAULT_LOCATION: (OperationGroup.ACCOUNT, _READ),
    Op.SET_DEFAULT_LOCATION: (OperationGroup.ACCOUNT, _WRITE),
}
"""The group of each operation, and whether it writes. Groups are the services of S2's API that have the operation."""

_ALL_NAMES: Final = ResourceSet(prefix="")
_BOTH: Final = ReadWrite(read=True, write=True)
FULL_SCOPE: Final = Scope(_ALL_NAMES, _ALL_NAMES, _ALL_NAMES, OpGroups(_BOTH, _BOTH, _BOTH))
"""Every operation on every name."""


_WHOLE_BASIN: Final = frozenset({Op.DELETE_BASIN, Op.RECONFIGURE_BASIN})
"""Operations that affect every stream of a basin."""


def ops_of(scope: Scope) -> frozenset[Op]:
    """Return the operations that a scope allows, by groups and one by one.

    A scope that is confined to some streams cannot delete or configure basins, since those hold other streams too.
    """
    groups = scope.op_groups or OpGroups()
    permitted: dict[OperationGroup, ReadWrite] = {
        group: getattr(groups, group.value) or ReadWrite() for group in OperationGroup
    }
    by_group = {
        op for op, (group, writes) in GROUPS.items() if (permitted[group].write if writes else permitted[group].read)
    }
    given_ops = by_group | set(scope.ops or ())
    return frozenset(given_ops - _WHOLE_BASIN if is_confined(scope) else given_ops)


def is_confined(scope: Scope) -> bool:
    """Return whether the scope covers only some streams: neither all nor none."""
    streams = scope.streams
    return streams is not None and bool(streams.exact or streams.prefix)


def excess(wanted: AccessTokenInfo, issuer: AccessTokenInfo) -> str | None:
    """Return, in words, the first permission that `wanted` has and its issuer lacks, or None if there is none."""
    more = ops_of(wanted.scope) - ops_of(issuer.scope)
    if more:
        return f"operation {min(op.value for op in more)}"
    for name in ("basins", "streams", "access_tokens"):
        requested, held = getattr(wanted.scope, name), getattr(issuer.scope, name)
        if requested is not None and not requested.within(held or ResourceSet(exact="")):
            return _in_words(name, requested)
    for name in ("groups", "transactional_ids"):
        requested, held = getattr(wanted.scope, name), getattr(issuer.scope, name)
        if held is not None and not (requested or ResourceSet(prefix="")).within(held):
            return _in_words(name, requested or ResourceSet(prefix=""))
    if issuer.expires_ns is not None and (wanted.expires_ns is None or wanted.expires_ns > issuer.expires_ns):
        return f"a lifetime beyond {issuer.expires_at}"
    if issuer.auto_prefix_streams and not wanted.auto_prefix_streams:
        return "stream names without its prefix"
    return None


def _in_words(kind: str, names: ResourceSet) -> str:
    return f"{kind.replace('_', ' ')} {names.exact if names.prefix is None else names.prefix + '...'!r}"


def common_prefix(names: ResourceSet, prefix: str) -> str | None:
    """Return the longest common beginning of all names that are in the set and begin with `prefix`, or None if there
    can be no such names."""
    if names.prefix is None:
        return names.exact if names.exact and names.exact.startswith(prefix) else None
    if names.prefix.startswith(prefix):
        return names.prefix
    return prefix if prefix.startswith(names.prefix) else None
