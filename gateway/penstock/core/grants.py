"""Grants: the permissions of a request's client, from the access token that it sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from penstock.core.scopes import is_confined, ops_of
from penstock.model.access_tokens import AccessTokenInfo, Op, ResourceSet
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.names import validate_stream_name
from penstock.model.records import StreamRef

__all__ = ["Grant"]

_NO_NAMES: Final = ResourceSet(exact="")


@dataclass(frozen=True, slots=True, eq=False)
class Grant:
    """The permissions of one access token. `key` and `digest` identify it, also among tokens that have had the same
    id."""

    info: AccessTokenInfo
    key: str
    digest: bytes = field(repr=False)
    ops: frozenset[Op] = field(init=False)
    basins: ResourceSet = field(init=False)
    streams: ResourceSet = field(init=False)
    expires_ms: int | None = field(init=False)

    def __post_init__(self) -> None:
        scope = self.info.scope
        object.__setattr__(self, "ops", ops_of(scope))
        object.__setattr__(self, "basins", scope.basins or _NO_NAMES)
        object.__setattr__(self, "streams", scope.streams or _NO_NAMES)
        object.__setattr__(self, "expires_ms", self.info.expires_ms)

    @property
    def prefix(self) -> str:
        """The text that is put before the stream names that the client gives."""
        return (self.streams.prefix or "") if self.info.auto_prefix_streams else ""

    def check(self, ops: Iterable[Op], basin: str | None = None, stream: str | None = None) -> None:
        """Raise PERMISSION_DENIED if one of the operations is not allowed, or not on these names. `stream` includes the
        prefix."""
        for op in ops:
            if op not in self.ops:
                confined = " to a token for some streams only" if is_confined(self.info.scope) else ""
                raise self.denied(f"{op.value} is not allowed{confined}")
        if basin is not None and not self.basins.has(basin):
            raise self.denied(f"basin {basin} is not in its scope")
        if stream is not None and not self.streams.has(stream):
            raise self.denied(f"stream {stream} is not in its scope")

    @property
    def creates_by_reading(self) -> bool:
        """Return whether a read or a tail check may create a stream, in a basin that creates streams on read."""
        return Op.CREATE_STREAM in self.ops

    def check_token(self, op: Op, token_id: str) -> None:
        """Raise PERMISSION_DENIED if the operation is not allowed, or not on the access token with this id."""
        self.check((op,))
        tokens = self.info.scope.access_tokens or _NO_NAMES
        if not tokens.has(token_id):
            raise self.denied(f"access token {token_id} is not in its scope")

    def place(self, stream: StreamRef) -> StreamRef:
        """Return the stream that the client means, with the prefix. Raises INVALID if the prefix makes its name too
        long."""
        if not self.prefix:
            return stream
        return StreamRef(stream.basin, validate_stream_name(self.prefix + stream.stream, FailureCode.INVALID))

    def shown(self, name: str) -> str:
        """Return a stream's name as the client knows it, without the prefix."""
        return name.removeprefix(self.prefix)

    def denied(self, reason: str) -> OperationFailed:
        """Return a PERMISSION_DENIED failure for this reason, which names the token."""
        return fail(FailureCode.PERMISSION_DENIED, f"access token {self.info.id}: {reason}")
