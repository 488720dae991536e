"""Basins and streams on an S2 server: the control plane (S2 fact sheet, 1.3)."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UnsetType

from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.operations import (
    CreateBasin,
    CreateStream,
    DeleteBasin,
    DeleteStream,
    EnsureBasin,
    EnsureStream,
    GetBasinConfig,
    GetStreamConfig,
    ListBasins,
    ListStreams,
    Page,
    Provisioned,
    ProvisionResult,
    ReconfigureBasin,
    ReconfigureStream,
)
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfig, BasinInfo, StreamConfig, StreamInfo
from penstock_s2.back.calls import S2Answer, S2Requests
from penstock_s2.back.configs import Configs
from penstock_s2.codec import json_config, json_config_client
from penstock_s2.codec.config_shapes import PARTIAL_LISTING
from penstock_s2.codec.names import encode_path_segment

__all__ = ["ControlPlane"]

_BASINS: Final = "/v1/basins"
_STREAMS: Final = "/v1/streams"
_BY_STATUS: Final = {200: ProvisionResult.NOOP, 201: ProvisionResult.CREATED}


class ControlPlane:
    """Control plane of one server. Each method performs the operation that it takes."""

    def __init__(self, calls: S2Requests, configs: Configs) -> None:
        self._calls = calls
        self._configs = configs

    async def create_basin(self, operation: CreateBasin) -> Provisioned[BasinInfo]:
        """Create a basin (POST on basins)."""
        body = json_config_client.encode_create_basin(operation.basin, operation.config)
        response = await self._calls.json("POST", _BASINS, None, body, _request_token(operation.request_token))
        return Provisioned(response.read(json_config_client.decode_remote_basin_info), _result(response))

    async def ensure_basin(self, operation: EnsureBasin) -> Provisioned[BasinInfo]:
        """Create a basin or change its configuration (PUT on a basin)."""
        body = b'{"config":%b}' % json_config.encode_basin_config(operation.config)
        response = await self._calls.json("PUT", _basin_path(operation.basin), None, body)
        return Provisioned(response.read(json_config_client.decode_remote_basin_info), _result(response))

    async def get_basin_config(self, operation: GetBasinConfig) -> BasinConfig:
        """Return a basin's configuration (GET on a basin)."""
        response = await self._calls.json("GET", _basin_path(operation.basin), None)
        return response.read(json_config_client.decode_remote_basin_config)

    async def reconfigure_basin(self, operation: ReconfigureBasin) -> BasinConfig:
        """Change a basin's configuration (PATCH on a basin)."""
        body = json_config_client.encode_basin_patch(operation.patch)
        response = await self._calls.json("PATCH", _basin_path(operation.basin), None, body)
        self._configs.forget_all()
        return response.read(json_config_client.decode_remote_basin_config)

    async def delete_basin(self, operation: DeleteBasin) -> None:
        """Delete a basin (DELETE on a basin)."""
        await self._calls.json("DELETE", _basin_path(operation.basin), None)
        self._configs.forget_all()

    async def list_basins(self, operation: ListBasins) -> Page[BasinInfo]:
        """List basins (GET on basins), of a gateway also a part of them."""
        headers = [(PARTIAL_LISTING, "true")] if operation.partial else []
        response = await self._calls.json("GET", _BASINS, None, headers=headers, query=_listing(operation))
        return response.read(json_config_client.decode_remote_basin_page)

    async def create_stream(self, operation: CreateStream) -> Provisioned[StreamInfo]:
        """Create a stream (POST on streams)."""
        stream = operation.stream
        _refuse_size(stream, operation.config.retention_bytes)
        body = json_config_client.encode_create_stream(stream.stream, operation.config)
        response = await self._calls.json("POST", _STREAMS, stream.basin, body, _request_token(operation.request_token))
        self._configs.forget(stream)
        return Provisioned(response.read(json_config_client.decode_remote_stream_info), _result(response))

    async def ensure_stream(self, operation: EnsureStream) -> Provisioned[StreamInfo]:
        """Create a stream or change its configuration (PUT on a stream)."""
        stream = operation.stream
        _refuse_size(stream, operation.config.retention_bytes)
        body = json_config.encode_stream_config(operation.config)
        response = await self._calls.json("PUT", _stream_path(stream.stream), stream.basin, body)
        self._configs.forget(stream)
        return Provisioned(response.read(json_config_client.decode_remote_stream_info), _result(response))

    async def get_stream_config(self, operation: GetStreamConfig) -> StreamConfig:
        """Return a stream's configuration (GET on a stream), never from the cache."""
        return await self._configs.ask(operation.stream)

    async def reconfigure_stream(self, operation: ReconfigureStream) -> StreamConfig:
        """Change a stream's configuration (PATCH on a stream)."""
        stream = operation.stream
        _refuse_size(stream, operation.patch.retention_bytes)
        body = json_config_client.encode_stream_patch(operation.patch)
        response = await self._calls.json("PATCH", _stream_path(stream.stream), stream.basin, body)
        self._configs.forget(stream)
        return response.read(json_config_client.decode_remote_stream_config)

    async def delete_stream(self, operation: DeleteStream) -> None:
        """Delete a stream (DELETE on a stream).

        Creating it again fails with STREAM_DELETION_PENDING until the server has removed it.
        """
        stream = operation.stream
        await self._calls.json("DELETE", _stream_path(stream.stream), stream.basin)
        self._configs.forget(stream)

    async def list_streams(self, operation: ListStreams) -> Page[StreamInfo]:
        """List a basin's streams (GET on streams)."""
        response = await self._calls.json("GET", _STREAMS, operation.basin, query=_listing(operation))
        return response.read(json_config_client.decode_remote_stream_page)


def _basin_path(basin: str) -> str:
    return f"{_BASINS}/{encode_path_segment(basin)}"


def _stream_path(stream: str) -> str:
    return f"{_STREAMS}/{encode_path_segment(stream)}"


def _listing(operation: ListBasins | ListStreams) -> dict[str, Any]:
    wanted = {"prefix": operation.prefix, "start_after": operation.start_after, "limit": operation.limit}
    return {name: value for name, value in wanted.items() if value}


def _refuse_size(stream: StreamRef, size: int | UnsetType | None) -> None:
    """Raise NOT_IMPLEMENTED for retention by size, for which S2's configuration has no field (S2 fact sheet, 1.3)."""
    if size:
        raise fail(
            FailureCode.NOT_IMPLEMENTED, f"stream {stream}: S2 has no retention by size (retention_bytes = {size})"
        )


def _request_token(token: str | None) -> list[tuple[str, str]]:
    return [] if token is None else [("s2-request-token", token)]


def _result(response: S2Answer) -> ProvisionResult:
    """Return what the server did: from its header if present, else from the status (S2 fact sheet, 1.3)."""
    result = response.header("s2-provision-result")
    if result is None:
        return _BY_STATUS.get(response.status, ProvisionResult.NOOP)
    try:
        return ProvisionResult(result)
    except ValueError:
        message = f"{response.where}: header s2-provision-result says {result[:50]!r}"
        raise OperationFailed(Failure(FailureCode.UPSTREAM_FAULT, message)) from None
