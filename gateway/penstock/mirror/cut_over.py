"""What came of a cut-over, and what forbids one."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.mirror.state import StateTable, StreamState
from penstock_codecs.model import StreamRef

__all__ = ["CutOver", "reasons_against"]

_MOST_REASONS: Final = 20


class CutOver(msgspec.Struct, frozen=True, kw_only=True):
    """`swapped`: whether it was done; `primary` and `secondary`: the backs as they are now. `reasons`: what forbade it,
    or, where it was forced, what was passed over. `held_ms`: for how long appends had to wait."""

    swapped: bool
    forced: bool
    primary: str
    secondary: str
    held_ms: int
    reasons: list[str]


async def reasons_against(states: StateTable) -> list[str]:
    """Why some streams are not equal, the first ones in the order of names. None: all are."""
    found: list[str] = []
    more = 0

    async def look(stream: StreamRef, state: StreamState) -> None:
        nonlocal more
        faults = state.faults or ([] if state.equal else ["it is not copied and compared to its end"])
        if faults and len(found) < _MOST_REASONS:
            found.append(f"stream {stream}: {'; '.join(faults)}")
        elif faults:
            more += 1

    await states.visit(look)
    return [*found, f"and {more} streams more"] if more else found
