"""The bounds of transactions, which the settings of a listener name."""

from __future__ import annotations

import msgspec

from penstock.model.limits import MIB

__all__ = ["TransactionLimits"]


class TransactionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of all transactions. `max_timeout`: seconds that a producer may let one be open. `max_producers`:
    transactional ids. `max_bytes`: batches of a transaction. `retention`: seconds for which an id is kept after its
    last transaction. `patience`: seconds to wait until committed records are in their streams, before a commit that is
    decided is answered."""

    max_timeout: float = 900.0
    max_producers: int = 10_000
    max_bytes: int = 256 * MIB
    retention: float = 7 * 86_400.0
    patience: float = 10.0
