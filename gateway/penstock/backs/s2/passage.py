"""S2S sessions that pass through to this server untouched (`penstock.backs.passing`)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from penstock.backs.http.stream import HttpStream
from penstock.backs.s2.calls import Calls
from penstock.backs.s2.unary import records_path
from penstock_codecs.model import StreamRef

__all__ = ["Passage"]


@dataclass(frozen=True, slots=True)
class Passage:
    """See `penstock.backs.passing.S2SPassage`."""

    calls: Calls
    stream: StreamRef

    def open(
        self, method: str, query: str, headers: Sequence[tuple[str, str]]
    ) -> AbstractAsyncContextManager[HttpStream]:
        """See `S2SPassage.open`."""
        return self.calls.open(method, records_path(self.stream), self.stream.basin, headers, query)
