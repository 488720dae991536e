"""What can be configured about the management listener; see `penstock.config.schema`."""

from __future__ import annotations

from typing import Annotated

from penstock.config.fields import Table, Token, check_address, key

__all__ = ["Management"]


class Management(Table, frozen=True, kw_only=True):
    """Where operators and their tools ask by HTTP. Leave the table out to switch it off; docs/management.md."""

    bind: Annotated[str, key("HOST:PORT; port 0 lets the system choose.")] = "127.0.0.1:9100"
    auth_tokens: Annotated[
        tuple[Token, ...],
        key("Bearer tokens, each good for everything but GET /health, which needs none; none: no authentication."),
    ] = ()
    max_connections: Annotated[int, key("Connections at once; more wait in the system's queue.", least=1)] = 100

    def __post_init__(self) -> None:
        check_address("bind", self.bind)
