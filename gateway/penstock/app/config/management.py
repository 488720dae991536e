"""Configuration of the management listener; see `penstock.app.config.schema`."""

from __future__ import annotations

from typing import Annotated

from penstock.core.config_fields import Token, check_address, key
from penstock.protocols.tables import Anonymous, TlsListener

__all__ = ["Management"]


class Management(TlsListener, frozen=True, kw_only=True):
    """HTTP listener for operators, their tools and their browsers (docs/management.md). It runs even if this table is
    absent."""

    enabled: Annotated[bool, key("Run the management listener.")] = True
    bind: Annotated[
        str,
        key(
            "Address, as HOST:PORT; port 0 lets the system choose. Several gateways on one machine need different "
            "addresses."
        ),
    ] = "127.0.0.1:9600"
    auth_tokens: Annotated[
        tuple[Token, ...],
        key(
            "Bearer tokens, each of which permits everything; empty: no authentication. Probes need none "
            "(docs/management.md)."
        ),
    ] = ()
    read_tokens: Annotated[
        tuple[Token, ...],
        key(
            "Bearer tokens that permit only looking: requests that change something are refused, and so is an agent's "
            "replay (docs/mcp.md)."
        ),
    ] = ()
    mcp: Annotated[bool, key("Serve agents: the Model Context Protocol at /mcp (docs/mcp.md).")] = False
    anonymous: Anonymous = False
    max_connections: Annotated[int, key("Most open connections; further ones wait in the system's queue.", least=1)] = (
        100
    )

    def __post_init__(self) -> None:
        check_address("bind", self.bind)
        self.check_tls()
        if both := set(self.auth_tokens) & set(self.read_tokens):
            raise ValueError(f"read_tokens: {len(both)} of them are in auth_tokens, too")

    @property
    def bearer_tokens(self) -> tuple[str, ...]:
        """All tokens, of which every request must carry one; empty: no authentication."""
        return self.auth_tokens + self.read_tokens
