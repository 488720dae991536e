"""Configuration of basins and streams, in layers (S2 fact sheet, 1.3 "Shapes").

A `StreamConfig` is one layer: None means unset. A stream is created or ensured with its own layer over its basin's
default layer over `DEFAULT_STREAM_CONFIG`; `resolve` merges them into one without None. The stream keeps the result: a
later change of the basin's default affects only later streams.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from penstock.model.failures import FailureCode, fail

__all__ = [
    "DEFAULT_STREAM_CONFIG",
    "INFINITE",
    "BasinConfig",
    "BasinConfigPatch",
    "BasinInfo",
    "Cipher",
    "Retention",
    "StreamConfig",
    "StreamConfigPatch",
    "StreamInfo",
    "TimestampingMode",
    "check_stream_config",
]


class TimestampingMode(Enum):
    """The source of records' timestamps (S2 fact sheet, 5.2)."""

    CLIENT_PREFER = "client-prefer"
    CLIENT_REQUIRE = "client-require"
    ARRIVAL = "arrival"


class Cipher(Enum):
    """The cipher of a stream's records at rest (S2 fact sheet, 5.5). Its key comes with each append and read."""

    AEGIS_256 = "aegis-256"
    AES_256_GCM = "aes-256-gcm"


class Retention(msgspec.Struct, frozen=True):
    """Retention of records after their arrival; `age_seconds` None keeps them for ever."""

    age_seconds: int | None


INFINITE = Retention(None)


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One layer of a stream's configuration; None means unset."""

    storage_class: str | None = None
    retention: Retention | None = None
    timestamping_mode: TimestampingMode | None = None
    timestamping_uncapped: bool | None = None
    delete_on_empty_seconds: int | None = None  # 0 = never
    retention_bytes: int | None = None
    """Bytes that it keeps at least, 8 and the body of each record: older batches are removed. 0: no bound."""

    def over(self, base: StreamConfig) -> StreamConfig:
        """Return this layer on top of `base`: values set here win."""
        changes = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(base, **changes)

    def resolve(self, basin_default: StreamConfig | None = None) -> StreamConfig:
        """Return this layer over the basin's default over the built-in default: no field is None."""
        below = DEFAULT_STREAM_CONFIG if basin_default is None else basin_default.over(DEFAULT_STREAM_CONFIG)
        return self.over(below)


DEFAULT_STREAM_CONFIG = StreamConfig(
    storage_class="express",
    retention=Retention(604_800),
    timestamping_mode=TimestampingMode.CLIENT_PREFER,
    timestamping_uncapped=False,
    delete_on_empty_seconds=0,
    retention_bytes=0,
)


class StreamConfigPatch(msgspec.Struct, frozen=True, kw_only=True):
    """A change to a configuration: UNSET keeps, a value replaces; None resets to unset, and so, for a stream, to its
    basin's present default."""

    storage_class: str | msgspec.UnsetType | None = msgspec.UNSET
    retention: Retention | msgspec.UnsetType | None = msgspec.UNSET
    timestamping_mode: TimestampingMode | msgspec.UnsetType | None = msgspec.UNSET
    timestamping_uncapped: bool | msgspec.UnsetType | None = msgspec.UNSET
    delete_on_empty_seconds: int | msgspec.UnsetType | None = msgspec.UNSET
    retention_bytes: int | msgspec.UnsetType | None = msgspec.UNSET

    def apply(self, layer: StreamConfig) -> StreamConfig:
        """Return `layer` with the change applied."""
        changed = {
            name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not msgspec.UNSET
        }
        return msgspec.structs.replace(layer, **changed)


def check_stream_config(config: StreamConfig) -> None:
    """Raise INVALID for a layer that no stream can have (S2 fact sheet, 1.3)."""
    retention = config.retention
    if retention is not None and retention.age_seconds is not None and retention.age_seconds <= 0:
        raise fail(FailureCode.INVALID, "retention age must be greater than 0 seconds")


class BasinConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A basin's configuration. `stream_cipher` is the cipher that new streams get, and then keep; None: plain text."""

    default_stream_config: StreamConfig = StreamConfig()
    stream_cipher: Cipher | None = None
    create_stream_on_append: bool = False
    create_stream_on_read: bool = False


class BasinConfigPatch(msgspec.Struct, frozen=True, kw_only=True):
    """A change to a basin's configuration; None resets to the default."""

    default_stream_config: StreamConfigPatch | msgspec.UnsetType | None = msgspec.UNSET
    stream_cipher: Cipher | msgspec.UnsetType | None = msgspec.UNSET
    create_stream_on_append: bool | msgspec.UnsetType = msgspec.UNSET
    create_stream_on_read: bool | msgspec.UnsetType = msgspec.UNSET

    def apply(self, config: BasinConfig) -> BasinConfig:
        """Return `config` with the change applied."""
        change = self.default_stream_config
        if change is None:
            config = msgspec.structs.replace(config, default_stream_config=StreamConfig())
        elif change is not msgspec.UNSET:
            layer = change.apply(config.default_stream_config)
            config = msgspec.structs.replace(config, default_stream_config=layer)
        if self.stream_cipher is not msgspec.UNSET:
            config = msgspec.structs.replace(config, stream_cipher=self.stream_cipher)
        for name in ("create_stream_on_append", "create_stream_on_read"):
            value = getattr(self, name)
            if value is not msgspec.UNSET:
                config = msgspec.structs.replace(config, **{name: value})
        return config


class BasinInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A basin in a listing; times are ms since the epoch."""

    name: str
    created_at: int
    deleted_at: int | None = None


class StreamInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A stream in a listing; times are ms since the epoch. `cipher`: None if its records are stored in plain text."""

    name: str
    created_at: int
    deleted_at: int | None = None
    cipher: Cipher | None = None
