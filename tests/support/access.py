"""Gateways whose S2 clients need access tokens, and tokens of every kind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from support.process import CONFIG, GatewayProcess, running_gateway

from penstock.core.scopes import FULL_SCOPE
from penstock.model.access_tokens import AccessTokenInfo, Op, ResourceSet, Scope, utc_time
from penstock.routing.access.token_file import TokenFile

__all__ = ["ALL", "CLOSED", "TokensOf", "closed_gateway", "scope"]

CLOSED = CONFIG + "\n[access]\n"
"""The usual configuration, in which clients of S2 need access tokens."""

ALL = ResourceSet(prefix="")


def scope(*ops: str, basins: ResourceSet = ALL, streams: ResourceSet = ALL) -> Scope:
    """These operations, on all names where nothing else is said."""
    return Scope(basins=basins, streams=streams, ops=tuple(map(Op, ops)))


class TokensOf:
    """The tokens of a gateway, which may run or not: another process, as `penstock token` is."""

    def __init__(self, data: Path) -> None:
        self.path = data / "access.sqlite3"
        self.texts: dict[str, str] = {}
        """Of those that were issued, by their ids."""

    def issue(
        self,
        token_id: str,
        allowed: Scope = FULL_SCOPE,
        *,
        seconds: float | None = None,
        auto_prefix: bool = False,
    ) -> str:
        """Return a new token. `seconds`: how long it lasts, from now; less than none: it has expired."""
        now = time.time()
        ends = None if seconds is None else utc_time(datetime.fromtimestamp(now + seconds, UTC).isoformat())
        info = AccessTokenInfo(id=token_id, scope=allowed, expires_at=ends, auto_prefix_streams=auto_prefix)
        with closing(TokenFile(self.path)) as file:
            self.texts[token_id] = file.issue(info, int(now * 1000))
        return self.texts[token_id]

    def revoke(self, token_id: str) -> None:
        with closing(TokenFile(self.path)) as file:
            file.revoke(token_id)


@contextmanager
def closed_gateway(directory: Path, config: str = CLOSED) -> Iterator[tuple[GatewayProcess, TokensOf]]:
    """A running gateway with its tokens."""
    with running_gateway(config, directory=directory) as gateway:
        yield gateway, TokensOf(gateway.data)
