"""The official Python client, `s2-sdk` (import s2_sdk), as the peer tests use it.

The client is asyncio only and keeps one HTTP/2 connection with prior knowledge (S2 fact sheet, 7.1).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

import pytest
import s2_sdk as s2
from s2_sdk import Compression

Connect = Callable[..., AbstractAsyncContextManager[s2.S2]]

EVERY_COMPRESSION = pytest.mark.parametrize("compression", list(Compression), ids=lambda c: c.value)


def connector(port: int, seconds: float = 5) -> Connect:
    """Opens clients of the gateway at this port, which wait so many seconds for an answer before they ask again."""
    origin = f"http://127.0.0.1:{port}"
    timeout = s2.Timeout(request=timedelta(seconds=seconds))

    @asynccontextmanager
    async def connect(compression: Compression = Compression.NONE) -> AsyncIterator[s2.S2]:
        endpoints = s2.Endpoints(origin, origin)
        async with s2.S2("a-token", endpoints=endpoints, timeout=timeout, compression=compression) as client:
            yield client

    return connect


def bodies(batch: s2.ReadBatch) -> list[bytes]:
    return [record.body for record in batch.records]
