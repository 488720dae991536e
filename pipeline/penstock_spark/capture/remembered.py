"""What conversations are in between two micro-batches, as far as this process has decoded the earlier one.

Spark gives a task to any worker, so that this only saves work: whoever does not find what it needs reads the earlier
files again. What is taken is taken away, so that a task that fails amid its work leaves nothing half done.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

__all__ = ["MOST", "keep", "take"]

MOST: Final = 8
"""So many recordings, or groups of one, are remembered, those that were used last. Each holds what its open
conversations hold, as a batch query would."""

_kept: OrderedDict[Hashable, object] = OrderedDict()


def take(name: Hashable) -> object | None:
    """What was kept by this name, which is forgotten; None: nothing."""
    return _kept.pop(name, None)


def keep(name: Hashable, state: object) -> None:
    """For whoever goes on."""
    _kept[name] = state
    while len(_kept) > MOST:
        _kept.popitem(last=False)
