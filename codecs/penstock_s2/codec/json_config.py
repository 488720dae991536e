"""JSON of basins and streams for servers: decode requests of S2's control plane, encode the answers.

In a configuration a field that is absent or null is unset; in a patch absent keeps and null resets. Answers include
every field. Every basin of a server is in its one location (`penstock_s2.codec.locations`).

Requests raise OperationFailed: BAD_JSON for JSON of another shape, INVALID for an unsupported value.
"""

from __future__ import annotations

from typing import Any

import orjson

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.names import validate_basin_name, validate_stream_name
from penstock.model.operations import Page
from penstock.model.records import StreamRef
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
    basin_config_decoder,
    create_basin_decoder,
    create_stream_decoder,
    ensure_basin_decoder,
    stream_config_decoder,
    to_basin_config,
    to_basin_patch,
    to_stream_config,
    to_stream_patch,
)
from penstock_s2.codec.json_values import IN_BODY, decode_request
from penstock_s2.codec.locations import check_location
from penstock_s2.codec.names import invalid_header

__all__ = [
    "decode_basin_patch",
    "decode_create_basin",
    "decode_create_stream",
    "decode_ensure_basin",
    "decode_ensure_stream",
    "decode_stream_config_header",
    "decode_stream_patch",
    "encode_basin_config",
    "encode_basin_info",
    "encode_basin_page",
    "encode_stream_config",
    "encode_stream_info",
    "encode_stream_page",
]

# ---- requests, as a server takes them --------------------------------------------------------------------------


def decode_create_basin(body: bytes, location: str) -> tuple[str, BasinConfig]:
    """Decode `{"basin", "config"?, "location"?}`; a bad name is BAD_JSON. `location`: the server's."""
    shape = decode_request(create_basin_decoder, body)
    check_location(shape.location, location)
    return validate_basin_name(shape.basin, FailureCode.BAD_JSON), to_basin_config(shape.config)


def decode_ensure_basin(body: bytes, location: str) -> BasinConfig:
    """Decode `{"config"?, "location"?}`, or an empty body for the defaults. `location`: the server's."""
    if not body:
        return BasinConfig()
    shape = decode_request(ensure_basin_decoder, body)
    check_location(shape.location, location)
    return to_basin_config(shape.config)


def decode_basin_patch(body: bytes) -> BasinConfigPatch:
    """Decode the body of PATCH on a basin."""
    return to_basin_patch(decode_request(basin_config_decoder, body))


def decode_create_stream(body: bytes, basin: str) -> tuple[StreamRef, StreamConfig]:
    """Decode `{"stream", "config"?}` for a stream of this basin; a bad name is BAD_JSON."""
    shape = decode_request(create_stream_decoder, body)
    name = validate_stream_name(shape.stream, FailureCode.BAD_JSON)
    return StreamRef(basin, name), to_stream_config(shape.config)


def decode_ensure_stream(body: bytes) -> StreamConfig:
    """Decode a configuration without wrapper, or an empty body for the defaults."""
    return to_stream_config(decode_request(stream_config_decoder, body) if body else None)


def decode_stream_patch(body: bytes) -> StreamConfigPatch:
    """Decode the body of PATCH on a stream."""
    return to_stream_patch(decode_request(stream_config_decoder, body))


def decode_stream_config_header(value: str) -> StreamConfig:
    """Decode header `s2-stream-config`, as latin-1 text: compact JSON. Raises BAD_HEADER if it is unusable (1.5)."""
    try:
        return to_stream_config(decode_request(stream_config_decoder, value.encode("latin-1", "replace")))
    except OperationFailed as error:
        reason = error.failure.message.replace(IN_BODY, "invalid JSON")
        raise invalid_header("s2-stream-config", reason) from None


# ---- answers, as a server gives them -----------------------------------------------------------------------------


def encode_stream_config(config: StreamConfig) -> bytes:
    """Encode a stream's configuration; unset fields of a layer are null. Also the body of PUT on a stream."""
    return orjson.dumps(_spell_stream_config(config))


def encode_basin_config(config: BasinConfig) -> bytes:
    """Encode a basin's configuration; an empty default layer is null."""
    return orjson.dumps(_spell_basin_config(config))


def encode_basin_info(info: BasinInfo, location: str) -> bytes:
    """Encode one basin, the answer to create and ensure."""
    return orjson.dumps(_spell_basin_info(info, location))


def encode_stream_info(info: StreamInfo) -> bytes:
    """Encode one stream, the answer to create and ensure."""
    return orjson.dumps(_spell_stream_info(info))


def encode_basin_page(page: Page[BasinInfo], location: str) -> bytes:
    """Encode a listing of basins. S2 has no word for those that are missing: it has an extra key, `failed`."""
    basins = [_spell_basin_info(info, location) for info in page.items]
    failed = {"failed": dict(page.failed)} if page.failed else {}
    return orjson.dumps({"basins": basins, "has_more": page.has_more, **failed})


def encode_stream_page(page: Page[StreamInfo]) -> bytes:
    """Encode a listing of streams."""
    return orjson.dumps({"streams": [_spell_stream_info(info) for info in page.items], "has_more": page.has_more})


def _spell_stream_config(config: StreamConfig) -> dict[str, Any]:
    mode, uncapped, min_age = config.timestamping_mode, config.timestamping_uncapped, config.delete_on_empty_seconds
    has_timestamping = mode is not None or uncapped is not None
    return {
        "storage_class": config.storage_class,
        "retention_policy": _spell_retention(config.retention),
        "timestamping": {"mode": mode and mode.value, "uncapped": uncapped} if has_timestamping else None,
        "delete_on_empty": None if min_age is None else {"min_age_secs": min_age},
    }


def _spell_retention(retention: Retention | None) -> dict[str, Any] | None:
    if retention is None:
        return None
    return {"infinite": {}} if retention.age_seconds is None else {"age": retention.age_seconds}


def _spell_basin_config(config: BasinConfig) -> dict[str, Any]:
    layer = config.default_stream_config
    return {
        "default_stream_config": None if layer == StreamConfig() else _spell_stream_config(layer),
        "stream_cipher": config.stream_cipher and config.stream_cipher.value,
        "create_stream_on_append": config.create_stream_on_append,
        "create_stream_on_read": config.create_stream_on_read,
    }


def _spell_basin_info(info: BasinInfo, location: str) -> dict[str, Any]:
    return {
        "name": info.name,
        "location": location,
        "created_at": _spell_time(info.created_at),
        "deleted_at": _spell_time(info.deleted_at),
        "state": "active" if info.deleted_at is None else "deleting",
    }


def _spell_stream_info(info: StreamInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "created_at": _spell_time(info.created_at),
        "deleted_at": _spell_time(info.deleted_at),
        "cipher": info.cipher and info.cipher.value,
    }


def _spell_time(ms: int | None) -> str | None:
    """Return the time in RFC 3339 with milliseconds and Z."""
    if ms is None:
        return None
    return (EPOCH + ms * MS).isoformat(timespec="milliseconds").replace("+00:00", "Z")
