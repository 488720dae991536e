"""Configuration of the management listener; see `penstock.app.config.schema`."""

from __future__ import annotations

from typing import Annotated

from penstock.core.config_fields import Token, check_address, key
from penstock.protocols.tables import Anonymous, TlsListener

__all__ = ["Management"]


class Management(TlsListener, frozen=True, kw_only=True):
    """HTTP listener for operators, their tools and their browsers (docs/management.md). It runs even without this
    table."""

    enabled: Annotated[bool, key("false: there is no such listener.")] = True
    bind: Annotated[
        str, key("HOST:PORT; port 0 lets the system choose. Of several gateways on one machine each needs its own.")
    ] = "127.0.0.1:9600"
    auth_tokens: Annotated[
        tuple[Token, ...],
        key("Bearer tokens, each good for everything; none: no authentication. Probes need none (docs/management.md)."),
    ] = ()
    anonymous: Anonymous = False
    max_connections: Annotated[int, key("Connections at once; more wait in the system's queue.", least=1)] = 100

    def __post_init__(self) -> None:
        check_address("bind", self.bind)
        self.check_tls()
