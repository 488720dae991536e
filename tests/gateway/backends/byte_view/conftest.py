"""Byte operations over an embedded store that is used for its records alone, and that can be made to fail."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from support.records_only import RecordsOnly
from support.store import BASIN, STREAM, Wall

from penstock.backends.byte_view import BytesOnRecords, BytesSettings, open_bytes_on_records
from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.operations import CreateBasin, CreateStream


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
async def server(tmp_path: Path, wall: Wall) -> AsyncIterator[EmbeddedBack]:
    """The other server, with one basin and one stream in it."""
    async with open_embedded(EmbeddedSettings(directory=tmp_path / "server"), wall) as opened:
        await opened.perform(CreateBasin(BASIN))
        await opened.perform(CreateStream(STREAM))
        yield opened


@pytest.fixture
async def state(tmp_path: Path, wall: Wall) -> AsyncIterator[EmbeddedBack]:
    """The gateway's own store."""
    async with open_embedded(EmbeddedSettings(directory=tmp_path / "state"), wall) as opened:
        yield opened


@pytest.fixture
def records(server: EmbeddedBack) -> RecordsOnly:
    return RecordsOnly(server)


@pytest.fixture
def settings() -> BytesSettings:
    return BytesSettings(mark_every_bytes=64, read_ahead_bytes=256)


@pytest.fixture
async def back(
    records: RecordsOnly, state: EmbeddedBack, settings: BytesSettings, wall: Wall
) -> AsyncIterator[BytesOnRecords]:
    async with open_bytes_on_records(records, "lite", state, settings, clock=wall) as opened:
        yield opened


@pytest.fixture
def gateway(
    records: RecordsOnly, state: EmbeddedBack, settings: BytesSettings, wall: Wall
) -> Callable[[], AbstractAsyncContextManager[BytesOnRecords]]:
    """Opens the gateway's part of it anew: nothing of the one before is left but what was durable."""
    return lambda: open_bytes_on_records(records, "lite", state, settings, clock=wall)
