"""What an operator may set of the management listener."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ManagementSettings"]


@dataclass(slots=True, kw_only=True)
class ManagementSettings:
    """`bearer_tokens`: if any, every request but probes and the page's files must carry one. `loopback`: this machine
    alone is heard, and must then ask for an address or for `localhost` where there are no tokens
    (`penstock.management.hosts`). `body_seconds`: in which a request's body must have come."""

    bearer_tokens: frozenset[str] = frozenset()
    loopback: bool = False
    body_seconds: float = 10.0
