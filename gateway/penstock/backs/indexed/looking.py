"""Looking for appends of which the server did not say where they are: behind the last record that has a number."""

from __future__ import annotations

from penstock.backs.indexed.numbered import Draft, end_of, joined, records_before, without
from penstock.backs.indexed.state import StreamState
from penstock.backs.indexed.trimmed import truncated_at
from penstock.backs.native import Scanned
from penstock_codecs.failures import OperationFailed

__all__ = ["Unnumbered", "index_of"]


class Unnumbered:
    """Records that have no numbers yet: read once, for all that look for theirs among them."""

    def __init__(self, stream: StreamState) -> None:
        self._stream = stream
        self._held = Scanned([])

    async def behind(self, draft: Draft, count: int) -> Scanned:
        """The records from the end of `draft` on: `count` at least, fewer where there are no more. What somebody else
        truncated there is passed. Raises OperationFailed."""
        held = self._held
        if held.bodies:
            held = without(held, records_before(held, draft.end))
        while len(held.bodies) < count:
            at = end_of(held) if held.bodies else draft.end
            try:
                more = await self._stream.scan(at)
            except OperationFailed as error:
                draft.end = draft.end._replace(offset=truncated_at(error))
                held = Scanned([])
                continue
            if not more.bodies:
                break
            held = joined(held, more) if held.bodies else more
        self._held = held
        return held


def index_of(wanted: list[bytes], bodies: list[bytes]) -> int | None:
    """Where these bodies stand among others, next to each other; None: nowhere."""
    for at in range(len(bodies) - len(wanted) + 1):
        if bodies[at] == wanted[0] and bodies[at : at + len(wanted)] == wanted:
            return at
    return None
