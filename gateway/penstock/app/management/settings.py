"""Settings of the management listener."""

from __future__ import annotations

import msgspec

__all__ = ["ManagementSettings"]


class ManagementSettings(msgspec.Struct, kw_only=True):
    """`bearer_tokens`, `read_tokens`: if any, every request except probes and the page's files must carry one; those of
    `read_tokens` permit only looking. `mcp`: whether agents are served (`penstock.app.management.mcp`). `loopback`: the
    listener is bound to a loopback address; without tokens, requests must then name an address or `localhost` as their
    host (`penstock.net.http.browsers`). `body_seconds`: time limit for receiving a request's body."""

    bearer_tokens: frozenset[str] = frozenset()
    read_tokens: frozenset[str] = frozenset()
    mcp: bool = False
    loopback: bool = False
    body_seconds: float = 10.0
