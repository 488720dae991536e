"""What an operator may set of an S2 front."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.access.authority import Authority
from penstock.identity import NOBODY, Identities
from penstock_codecs.limits import S2_HEARTBEAT_SECONDS

__all__ = ["S2Settings"]


@dataclass(slots=True)
class S2Settings:
    """Settings of one S2 front.

    `default_basin`: the basin of requests that name none. `basin_host_suffixes`: a host `<basin><suffix>` names its
    basin. `cors`: answer browsers of any origin, as s2-lite does. `bearer_tokens`: if any, a request must carry one
    of them, or an identity's. `identities`: whose tokens are whose. `access`: if any, a request must carry one of its
    tokens, or one of the others. `anonymous`: who carries no token at all is served all the same. `sse_dialect`: "s2"
    (what clients speak) or "seed". `heartbeat_seconds`: a heartbeat comes after a random time in this range without
    records. `compress`: honour Accept-Encoding.
    `body_seconds`: in which the body of a unary request must have come, from when it is wanted.
    `drain_grace_seconds`: from the advice to reconnect to the end of sessions that are still open.
    """

    default_basin: str | None = None
    basin_host_suffixes: tuple[str, ...] = (".localhost",)
    cors: bool = True
    bearer_tokens: frozenset[str] = frozenset()
    identities: Identities = NOBODY
    access: Authority | None = None
    anonymous: bool = False
    sse_dialect: str = "s2"
    heartbeat_seconds: tuple[float, float] = S2_HEARTBEAT_SECONDS
    compress: bool = True
    body_seconds: float = 60.0
    drain_grace_seconds: float = 3.0
