"""JSON of basins and streams for clients: encode requests of S2's control plane, decode the answers.

Answers of another shape raise RemoteProtocolError (S2 fact sheet, 1.3 "Shapes").
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
import orjson
from msgspec import UnsetType

from penstock.model.failures import FailureCode, OperationFailed, RemoteProtocolError
from penstock.model.operations import Page
from penstock.model.streams import (
    BasinConfig,
    BasinConfigPatch,
    BasinInfo,
    Retention,
    StreamConfig,
    StreamConfigPatch,
    StreamInfo,
)
from penstock_s2.codec.config_shapes import (
    EPOCH,
    MS,
    BasinConfigShape,
    DeleteOnEmptyShape,
    EmptyShape,
    InfoShape,
    RetentionShape,
    StreamConfigShape,
    StreamInfoShape,
    TimestampingShape,
    basin_config_decoder,
    basin_page_decoder,
    info_decoder,
    stream_config_decoder,
    stream_info_decoder,
    stream_page_decoder,
    to_basin_config,
    to_stream_config,
)
from penstock_s2.codec.json_config import encode_basin_config, encode_stream_config
from penstock_s2.codec.json_values import decode_answer, remote_error

__all__ = [
    "decode_remote_basin_config",
    "decode_remote_basin_info",
    "decode_remote_basin_page",
    "decode_remote_stream_config",
    "decode_remote_stream_info",
    "decode_remote_stream_page",
    "encode_basin_patch",
    "encode_create_basin",
    "encode_create_stream",
    "encode_stream_patch",
]

A = TypeVar("A")
B = TypeVar("B")

# ---- requests, as a client makes them --------------------------------------------------------------------------


def encode_create_basin(basin: str, config: BasinConfig) -> bytes:
    """Encode the body of POST on basins."""
    return orjson.dumps({"basin": basin, "config": orjson.Fragment(encode_basin_config(config))})


def encode_create_stream(stream: str, config: StreamConfig) -> bytes:
    """Encode the body of POST on streams."""
    return orjson.dumps({"stream": stream, "config": orjson.Fragment(encode_stream_config(config))})


def encode_stream_patch(patch: StreamConfigPatch) -> bytes:
    """Encode the body of PATCH on a stream."""
    return msgspec.json.encode(_spell_stream_patch(patch))


def encode_basin_patch(patch: BasinConfigPatch) -> bytes:
    """Encode the body of PATCH on a basin."""
    default = patch.default_stream_config
    return msgspec.json.encode(
        BasinConfigShape(
            default_stream_config=_spell_stream_patch(default) if isinstance(default, StreamConfigPatch) else default,
            stream_cipher=patch.stream_cipher,
            create_stream_on_append=patch.create_stream_on_append,
            create_stream_on_read=patch.create_stream_on_read,
        )
    )


def _spell_stream_patch(patch: StreamConfigPatch) -> StreamConfigShape:
    retention = patch.retention
    if isinstance(retention, Retention):
        age = retention.age_seconds
        retention_policy: RetentionShape | UnsetType | None = (
            RetentionShape(infinite=EmptyShape()) if age is None else RetentionShape(age=age)
        )
    else:
        retention_policy = retention
    return StreamConfigShape(
        storage_class=patch.storage_class,
        retention_policy=retention_policy,
        timestamping=TimestampingShape(mode=patch.timestamping_mode, uncapped=patch.timestamping_uncapped),
        delete_on_empty=DeleteOnEmptyShape(min_age_secs=patch.delete_on_empty_seconds),
    )


# ---- answers, as a client takes them ---------------------------------------------------------------------------


def _answer(decoder: msgspec.json.Decoder[A], convert: Callable[[A], B], body: bytes) -> B:
    try:
        return convert(decode_answer(decoder, body))
    except OperationFailed as error:
        raise RemoteProtocolError(error.failure) from None


def decode_remote_stream_config(body: bytes) -> StreamConfig:
    """Decode a stream's configuration."""
    return _answer(stream_config_decoder, to_stream_config, body)


def decode_remote_basin_config(body: bytes) -> BasinConfig:
    """Decode a basin's configuration."""
    return _answer(basin_config_decoder, to_basin_config, body)


def decode_remote_basin_info(body: bytes) -> BasinInfo:
    """Decode one basin."""
    return _answer(info_decoder, _to_basin_info, body)


def decode_remote_stream_info(body: bytes) -> StreamInfo:
    """Decode one stream."""
    return _answer(stream_info_decoder, _to_stream_info, body)


def decode_remote_basin_page(body: bytes) -> Page[BasinInfo]:
    """Decode a listing of basins."""
    page = decode_answer(basin_page_decoder, body)
    return Page([_to_basin_info(info) for info in page.basins], page.has_more, page.failed)


def decode_remote_stream_page(body: bytes) -> Page[StreamInfo]:
    """Decode a listing of streams."""
    page = decode_answer(stream_page_decoder, body)
    return Page([_to_stream_info(info) for info in page.streams], page.has_more)


def _to_basin_info(shape: InfoShape) -> BasinInfo:
    return BasinInfo(name=shape.name, created_at=_to_ms(shape.created_at), deleted_at=_to_ms_or_none(shape.deleted_at))


def _to_stream_info(shape: StreamInfoShape) -> StreamInfo:
    return StreamInfo(
        name=shape.name,
        created_at=_to_ms(shape.created_at),
        deleted_at=_to_ms_or_none(shape.deleted_at),
        cipher=shape.cipher,
    )


def _to_ms(time: datetime) -> int:
    """Return a time in ms. Raises RemoteProtocolError(BAD_JSON) if it could not be spelled in UTC again."""
    try:
        return (time.astimezone(UTC) - EPOCH) // MS
    except OverflowError:
        raise remote_error(FailureCode.BAD_JSON, f"a time outside the years 1 to 9999 of UTC: {time}") from None


def _to_ms_or_none(time: datetime | None) -> int | None:
    return None if time is None else _to_ms(time)
