"""Counts reads of batches from the store's file."""

from typing import Any

import pytest

from penstock.backends.embedded import EmbeddedBack
from penstock.model.records import RecordBatch


class Hops:
    """Numbers of batches that each hop to a thread asks for and gets."""

    def __init__(self, back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []
        self.found: list[int] = []
        read = back._store.reader.batches

        async def batches(*request: Any) -> list[RecordBatch]:
            self.asked.append(request[-1])
            found = await read(*request)
            self.found.append(len(found))
            return found

        monkeypatch.setattr(back._store.reader, "batches", batches)
