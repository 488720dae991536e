"""Access tokens: their permissions, and the JSON in which they are stored (S2 fact sheet, 1.3).

An absent set of names holds none; an empty prefix holds all.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import Enum
from typing import Final

import msgspec

from penstock.model.failures import FailureCode, fail

__all__ = [
    "AccessTokenInfo",
    "Op",
    "OpGroups",
    "OperationGroup",
    "ReadWrite",
    "ResourceSet",
    "Scope",
    "decode_info",
    "encode_info",
    "inheriting",
    "utc_time",
    "validate_token_id",
]

MAX_ID_BYTES: Final = 96
"""Longest token id in bytes (S2 fact sheet, 1.4)."""
_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_encode: Final = msgspec.json.Encoder().encode


class Op(Enum):
    """One operation that a token may allow; the value is S2's spelling."""

    LIST_BASINS = "list-basins"
    CREATE_BASIN = "create-basin"
    DELETE_BASIN = "delete-basin"
    RECONFIGURE_BASIN = "reconfigure-basin"
    GET_BASIN_CONFIG = "get-basin-config"
    ISSUE_ACCESS_TOKEN = "issue-access-token"
    REVOKE_ACCESS_TOKEN = "revoke-access-token"
    LIST_ACCESS_TOKENS = "list-access-tokens"
    LIST_STREAMS = "list-streams"
    CREATE_STREAM = "create-stream"
    DELETE_STREAM = "delete-stream"
    GET_STREAM_CONFIG = "get-stream-config"
    RECONFIGURE_STREAM = "reconfigure-stream"
    CHECK_TAIL = "check-tail"
    APPEND = "append"
    READ = "read"
    TRIM = "trim"
    FENCE = "fence"
    ACCOUNT_METRICS = "account-metrics"
    BASIN_METRICS = "basin-metrics"
    STREAM_METRICS = "stream-metrics"
    LIST_LOCATIONS = "list-locations"
    GET_DEFAULT_LOCATION = "get-default-location"
    SET_DEFAULT_LOCATION = "set-default-location"


class OperationGroup(Enum):
    """The subject of an operation; the value is the name of its group."""

    ACCOUNT = "account"
    BASIN = "basin"
    STREAM = "stream"


class ReadWrite(msgspec.Struct, frozen=True, omit_defaults=False):
    """Permissions for the operations of a group. In JSON null means false."""

    read: bool | None = False
    write: bool | None = False

    def __post_init__(self) -> None:
        for name in ("read", "write"):
            msgspec.structs.force_setattr(self, name, bool(getattr(self, name)))


class OpGroups(msgspec.Struct, frozen=True, omit_defaults=True):
    """Permissions for whole groups of operations."""

    account: ReadWrite | None = None
    basin: ReadWrite | None = None
    stream: ReadWrite | None = None


class ResourceSet(msgspec.Struct, frozen=True, omit_defaults=True):
    """A set of names: exactly this one, or all with this prefix."""

    exact: str | None = None
    prefix: str | None = None

    def __post_init__(self) -> None:
        if (self.exact is None) == (self.prefix is None):
            raise ValueError("a set of names is either exact or a prefix")

    def has(self, name: str) -> bool:
        """Return whether the name is in the set."""
        return name == self.exact if self.prefix is None else name.startswith(self.prefix)

    def within(self, other: ResourceSet) -> bool:
        """Return whether every name of this set is in the other."""
        if self.prefix is None:
            assert self.exact is not None, "one of them is given"
            return self.exact == "" or other.has(self.exact)
        return other.prefix is not None and self.prefix.startswith(other.prefix)


class Scope(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token's permissions: the union of `op_groups` and `ops`, on these basins, streams and tokens.

    `groups`, `transactional_ids`: names of consumer groups and of transactional producers, which S2 does not have;
    absent: those of the token's streams. In JSON null means absent.
    """

    basins: ResourceSet | None = None
    streams: ResourceSet | None = None
    access_tokens: ResourceSet | None = None
    op_groups: OpGroups | None = None
    ops: tuple[Op, ...] | None = ()
    groups: ResourceSet | None = None
    transactional_ids: ResourceSet | None = None

    def __post_init__(self) -> None:
        if self.ops is None:
            msgspec.structs.force_setattr(self, "ops", ())

    @property
    def permits_nothing(self) -> bool:
        """True if no operation is allowed, whatever the names."""
        groups = self.op_groups or OpGroups()
        operation_groups = (groups.account, groups.basin, groups.stream)
        return not self.ops and not any(
            operations is not None and (operations.read or operations.write) for operations in operation_groups
        )


class AccessTokenInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret. `expires_at`: a time as `utc_time` returns it; None if it lasts until it is revoked.
    `auto_prefix_streams`: its client's stream names are prefixed with the prefix of its scope."""

    id: str
    expires_at: str | None = None
    auto_prefix_streams: bool = False
    scope: Scope

    @property
    def expires_ns(self) -> int | None:
        """`expires_at` in ns since the Unix epoch."""
        if self.expires_at is None:
            return None
        seconds, _, fraction = self.expires_at.removesuffix("Z").partition(".")
        return int(datetime.fromisoformat(f"{seconds}Z").timestamp()) * 10**9 + int(fraction.ljust(9, "0"))

    @property
    def expires_ms(self) -> int | None:
        """`expires_at` in ms since the Unix epoch."""
        return None if self.expires_ns is None else self.expires_ns // 10**6


_info: Final = msgspec.json.Decoder(AccessTokenInfo)


def inheriting(info: AccessTokenInfo, issuer: AccessTokenInfo) -> AccessTokenInfo:
    """Return `info` with its issuer's expiry, groups and transactional ids where it has none of its own."""
    scope = msgspec.structs.replace(
        info.scope,
        groups=info.scope.groups or issuer.scope.groups,
        transactional_ids=info.scope.transactional_ids or issuer.scope.transactional_ids,
    )
    return msgspec.structs.replace(info, scope=scope, expires_at=info.expires_at or issuer.expires_at)


def utc_time(text: str) -> str:
    """Return a time (RFC 3339) in UTC, to the nanosecond, without zeros at the end of its fraction.

    Raises ValueError if it is no such time, has more than 9 digits of a second, or is outside the years 1 to 9999.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("a time has a date, a time of day and its offset from UTC, as in 2030-01-01T00:00:00Z")
    day, time, fraction, offset = match.groups(default="")
    try:
        moment = datetime.fromisoformat(f"{day}T{time}{offset.upper()}").astimezone(UTC)
    except OverflowError:
        raise ValueError("a time outside the years 1 to 9999 of UTC") from None
    fraction = fraction.rstrip("0").removesuffix(".")
    return f"{moment.replace(tzinfo=None).isoformat()}{fraction}Z"


def validate_token_id(token_id: str, where: FailureCode) -> str:
    """Return `token_id` if it is valid: 1 to 96 bytes of UTF-8 without NUL. Raises OperationFailed(`where`)
    otherwise."""
    try:
        size = len(token_id.encode())
    except UnicodeEncodeError:
        size = 0
    if not 1 <= size <= MAX_ID_BYTES or "\0" in token_id:
        raise fail(where, f"an access token's id must be 1 to {MAX_ID_BYTES} bytes of UTF-8 without NUL")
    return token_id


def encode_info(info: AccessTokenInfo) -> bytes:
    """Return a token's description as it is stored."""
    return _encode(info)


def decode_info(data: bytes | str) -> AccessTokenInfo:
    """Decode a stored description. Raises ValueError if it is invalid."""
    return _info.decode(data)
