"""A grant: what the client of a request may do, by the token that it showed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from penstock.access.scopes import ops_of
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.model import StreamRef
from penstock_codecs.s2.access_tokens import AccessTokenInfo, Op, ResourceSet
from penstock_codecs.s2.names import validate_stream_name

__all__ = ["Grant"]

_NO_NAMES: Final = ResourceSet(exact="")


@dataclass(frozen=True, slots=True, eq=False)
class Grant:
    """One token's. `key` and `digest`: by which it is found, so that a later token with the same id is another."""

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
        """What stands before the names of streams that the client gives."""
        return (self.streams.prefix or "") if self.info.auto_prefix_streams else ""

    def check(self, ops: Iterable[Op], basin: str | None = None, stream: str | None = None) -> None:
        """Raises PERMISSION_DENIED where one of the operations is not allowed, or not on these names. `stream`: with
        the prefix."""
        for op in ops:
            if op not in self.ops:
                raise self.denied(f"{op.value} is not allowed")
        if basin is not None and not self.basins.has(basin):
            raise self.denied(f"basin {basin} is not in its scope")
        if stream is not None and not self.streams.has(stream):
            raise self.denied(f"stream {stream} is not in its scope")

    def check_token(self, op: Op, token_id: str) -> None:
        """The same for what is done with another token."""
        self.check((op,))
        tokens = self.info.scope.access_tokens or _NO_NAMES
        if not tokens.has(token_id):
            raise self.denied(f"access token {token_id} is not in its scope")

    def place(self, stream: StreamRef) -> StreamRef:
        """The stream that the client means. Raises INVALID where the prefix makes its name too long."""
        if not self.prefix:
            return stream
        return StreamRef(stream.basin, validate_stream_name(self.prefix + stream.stream, FailureCode.INVALID))

    def shown(self, name: str) -> str:
        """A stream's name as the client knows it."""
        return name.removeprefix(self.prefix)

    def denied(self, why: str) -> OperationFailed:
        """The failure that says so."""
        return fail(FailureCode.PERMISSION_DENIED, f"access token {self.info.id}: {why}")
