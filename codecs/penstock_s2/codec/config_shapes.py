"""The JSON shapes of configurations, and their conversion (S2 fact sheet, 1.3 "Shapes").

The same shapes serve configurations and patches, since a configuration is a patch of an empty one: absent keeps, null
resets.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.model.failures import FailureCode, fail
from penstock.model.streams import (
    INFINITE,
    BasinConfig,
    BasinConfigPatch,
    Cipher,
    Retention,
    StreamConfig,
    StreamConfigPatch,
    TimestampingMode,
)
from penstock_s2.codec.json_values import U64, bad_json, check_u64

__all__ = [
    "EPOCH",
    "MS",
    "PARTIAL_LISTING",
    "BasinConfigShape",
    "BasinPageShape",
    "CreateBasinShape",
    "CreateStreamShape",
    "DeleteOnEmptyShape",
    "EmptyShape",
    "EnsureBasinShape",
    "InfoShape",
    "RetentionShape",
    "StreamConfigShape",
    "StreamInfoShape",
    "StreamPageShape",
    "TimestampingShape",
    "basin_config_decoder",
    "basin_page_decoder",
    "create_basin_decoder",
    "create_stream_decoder",
    "ensure_basin_decoder",
    "info_decoder",
    "stream_config_decoder",
    "stream_info_decoder",
    "stream_page_decoder",
    "to_basin_config",
    "to_basin_patch",
    "to_stream_config",
    "to_stream_patch",
]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MS: Final = timedelta(milliseconds=1)
PARTIAL_LISTING: Final = "penstock-partial"
"""Header with which a client of a gateway asks for the basins of those backs that can be asked: the answer has the
others as `failed`, with the reasons. Other servers ignore it."""


class EmptyShape(msgspec.Struct):
    """An object without fields."""


class RetentionShape(msgspec.Struct):
    """Either `age` in seconds or `infinite`."""

    age: U64 | UnsetType = UNSET
    infinite: EmptyShape | UnsetType = UNSET


class TimestampingShape(msgspec.Struct):
    """The source of timestamps, and whether they may be in the future."""

    mode: TimestampingMode | UnsetType | None = UNSET
    uncapped: bool | UnsetType | None = UNSET


class DeleteOnEmptyShape(msgspec.Struct):
    """The delay before an empty stream is deleted, in seconds; 0: never."""

    min_age_secs: U64 | UnsetType | None = UNSET


class StreamConfigShape(msgspec.Struct):
    """A stream's configuration, or a change to one."""

    storage_class: Annotated[str, Meta(max_length=64)] | UnsetType | None = UNSET
    retention_policy: RetentionShape | UnsetType | None = UNSET
    timestamping: TimestampingShape | UnsetType | None = UNSET
    delete_on_empty: DeleteOnEmptyShape | UnsetType | None = UNSET


class BasinConfigShape(msgspec.Struct):
    """A basin's configuration, or a change to one."""

    default_stream_config: StreamConfigShape | UnsetType | None = UNSET
    stream_cipher: Cipher | UnsetType | None = UNSET
    create_stream_on_append: bool | UnsetType = UNSET
    create_stream_on_read: bool | UnsetType = UNSET


class CreateBasinShape(msgspec.Struct):
    """The body of POST on basins."""

    basin: str
    config: BasinConfigShape | None = None
    location: str | None = None


class EnsureBasinShape(msgspec.Struct):
    """The body of PUT on a basin."""

    config: BasinConfigShape | None = None
    location: str | None = None


class CreateStreamShape(msgspec.Struct):
    """The body of POST on streams."""

    stream: str
    config: StreamConfigShape | None = None


class InfoShape(msgspec.Struct):
    """A basin or a stream in an answer."""

    name: str
    created_at: Annotated[datetime, Meta(tz=True)]
    deleted_at: Annotated[datetime, Meta(tz=True)] | None = None


class StreamInfoShape(InfoShape):
    """A stream in an answer."""

    cipher: Cipher | None = None


class BasinPageShape(msgspec.Struct):
    """A listing of basins. `failed`: see `PARTIAL_LISTING`."""

    basins: list[InfoShape]
    has_more: bool
    failed: dict[str, str] = {}


class StreamPageShape(msgspec.Struct):
    """A listing of streams."""

    streams: list[StreamInfoShape]
    has_more: bool


stream_config_decoder: Final = msgspec.json.Decoder(StreamConfigShape)
basin_config_decoder: Final = msgspec.json.Decoder(BasinConfigShape)
create_basin_decoder: Final = msgspec.json.Decoder(CreateBasinShape)
ensure_basin_decoder: Final = msgspec.json.Decoder(EnsureBasinShape)
create_stream_decoder: Final = msgspec.json.Decoder(CreateStreamShape)
info_decoder: Final = msgspec.json.Decoder(InfoShape)
stream_info_decoder: Final = msgspec.json.Decoder(StreamInfoShape)
basin_page_decoder: Final = msgspec.json.Decoder(BasinPageShape)
stream_page_decoder: Final = msgspec.json.Decoder(StreamPageShape)


# ---- from shapes to configurations -----------------------------------------------------------------------------


def to_stream_patch(shape: StreamConfigShape) -> StreamConfigPatch:
    """Return a change to a stream's configuration. Raises OperationFailed for unsupported values."""
    return StreamConfigPatch(
        storage_class=shape.storage_class,
        retention=_to_retention(shape.retention_policy),
        timestamping_mode=_within(shape.timestamping, "mode"),
        timestamping_uncapped=_within(shape.timestamping, "uncapped"),
        delete_on_empty_seconds=_to_seconds(_within(shape.delete_on_empty, "min_age_secs")),
    )


def _within(shape: msgspec.Struct | UnsetType | None, name: str) -> Any:
    """Return a field of a nested object; if the object itself is absent or null, so is every field."""
    return getattr(shape, name) if isinstance(shape, msgspec.Struct) else shape


def _to_seconds(shape: int | UnsetType | None) -> int | UnsetType | None:
    if isinstance(shape, int):
        check_u64(shape, "delete_on_empty.min_age_secs")
    return shape


def _to_retention(shape: RetentionShape | UnsetType | None) -> Retention | UnsetType | None:
    if not isinstance(shape, RetentionShape):
        return shape
    if (shape.age is UNSET) is (shape.infinite is UNSET):
        raise bad_json("Expected either `age` or `infinite` - at `$.retention_policy`")
    if isinstance(shape.age, UnsetType):
        return INFINITE
    check_u64(shape.age, "retention_policy.age")
    if shape.age == 0:
        raise fail(FailureCode.INVALID, "retention age must be greater than 0 seconds")
    return Retention(shape.age)


def to_basin_patch(shape: BasinConfigShape) -> BasinConfigPatch:
    """Return a change to a basin's configuration. Raises OperationFailed for unsupported values."""
    default = shape.default_stream_config
    return BasinConfigPatch(
        default_stream_config=to_stream_patch(default) if isinstance(default, StreamConfigShape) else default,
        stream_cipher=shape.stream_cipher,
        create_stream_on_append=shape.create_stream_on_append,
        create_stream_on_read=shape.create_stream_on_read,
    )


def to_stream_config(shape: StreamConfigShape | None) -> StreamConfig:
    """Return a stream's configuration: absent and null fields are unset. Raises OperationFailed as `to_stream_patch`,
    and BAD_JSON for null as `min_age_secs`, which only a change may have."""
    if shape is None:
        return StreamConfig()
    if _within(shape.delete_on_empty, "min_age_secs") is None and shape.delete_on_empty is not None:
        raise bad_json("Expected `int`, got `null` - at `$.delete_on_empty.min_age_secs`")
    return to_stream_patch(shape).apply(StreamConfig())


def to_basin_config(shape: BasinConfigShape | None) -> BasinConfig:
    """Return a basin's configuration: absent and null fields have their defaults. Raises as `to_stream_config`."""
    if shape is None:
        return BasinConfig()
    if isinstance(shape.default_stream_config, StreamConfigShape):
        to_stream_config(shape.default_stream_config)  # what only a change may have is refused here, too
    return to_basin_patch(shape).apply(BasinConfig())
