"""Streams of a server that has no configuration: what can be said of them is said, and the rest is refused."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock_codecs.failures import FailureCode, fail
from penstock_codecs.model import StreamRef
from penstock_codecs.streams import INFINITE, StreamConfig, TimestampingMode

__all__ = ["config_of", "refuse_config"]

_COMMON: Final = StreamConfig(
    storage_class="express",
    retention=INFINITE,
    timestamping_mode=TimestampingMode.ARRIVAL,
    timestamping_uncapped=False,
    delete_on_empty_seconds=0,
)


def config_of(stamped_by_server: bool) -> StreamConfig:
    """What all streams of a server do: keep records for ever, and stamp them on arrival, or as their clients ask where
    the gateway's index keeps the timestamps."""
    if stamped_by_server:
        return _COMMON
    return msgspec.structs.replace(_COMMON, timestamping_mode=TimestampingMode.CLIENT_PREFER)


def refuse_config(stream: StreamRef, wanted: StreamConfig | None, actual: StreamConfig) -> None:
    """Raises NOT_IMPLEMENTED, naming it, for anything that these streams do not do."""
    for name in wanted.__struct_fields__ if wanted is not None else ():
        value = getattr(wanted, name)
        if value is not None and value != getattr(actual, name):
            raise fail(
                FailureCode.NOT_IMPLEMENTED,
                f"the server of stream {stream} has no configuration of streams: {name} cannot be other than it is",
            )
