"""Cache of streams' configurations: whether a stream exists, and how its server stamps records."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import trio

from penstock.model.records import StreamRef
from penstock.model.streams import StreamConfig
from penstock_s2.back.calls import S2Requests
from penstock_s2.codec.json_config_client import decode_remote_stream_config
from penstock_s2.codec.names import encode_path_segment

__all__ = ["Configs"]

_MOST_CACHED: Final = 10_000


class Configs:
    """Configurations of one server's streams.

    Requesting one creates no stream; reads and checks of the tail may (S2 fact sheet, 5.4).
    """

    def __init__(self, calls: S2Requests, seconds: float) -> None:
        self._calls = calls
        self._seconds = seconds
        self._known: OrderedDict[StreamRef, tuple[float, StreamConfig]] = OrderedDict()

    async def ask(self, stream: StreamRef) -> StreamConfig:
        """Request a stream's configuration. Raises OperationFailed, STREAM_NOT_FOUND if there is no such stream."""
        self._known.pop(stream, None)
        path = f"/v1/streams/{encode_path_segment(stream.stream)}"
        response = await self._calls.json("GET", path, stream.basin)
        config = response.read(decode_remote_stream_config).resolve()
        self._known[stream] = trio.current_time() + self._seconds, config
        if len(self._known) > _MOST_CACHED:
            self._known.popitem(last=False)
        return config

    async def get(self, stream: StreamRef) -> StreamConfig:
        """Return the cached configuration, without a checkpoint, or request it. Raises as `ask`."""
        known = self._known.get(stream)
        if known is not None and trio.current_time() < known[0]:
            return known[1]
        return await self.ask(stream)

    def forget(self, stream: StreamRef) -> None:
        """Drop a stream's cached configuration: it may have changed."""
        self._known.pop(stream, None)

    def forget_all(self) -> None:
        """Drop all cached configurations: a basin was changed."""
        self._known.clear()
