"""Basins and streams: create, ensure, list, configure, delete; and locations (S2 fact sheet 1.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from penstock.core.back import Back
from penstock.core.identity import CLIENT
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MAX_BASIN_NAME_BYTES, MAX_STREAM_NAME_BYTES
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
    Operation,
    ProvisionResult,
    ReconfigureBasin,
    ReconfigureStream,
)
from penstock_s2.codec import json_config as spelled
from penstock_s2.codec.config_shapes import PARTIAL_LISTING
from penstock_s2.codec.limits import S2_MAX_LIST
from penstock_s2.codec.locations import decode_location, encode_location, encode_locations
from penstock_s2.codec.media import Media
from penstock_s2.codec.names import invalid_header, validate_request_token
from penstock_s2.front.call import JSON, S2Call
from penstock_s2.front.deletions import Deletion, RecentDeletions
from penstock_s2.front.parameters import media_of, number

__all__ = ["ControlEndpoints", "json_body", "listing"]

_BASIN_PREFIX: Final = re.compile(r"([a-z0-9][a-z0-9-]*)?")
_NOT_FOUND: Final = (FailureCode.BASIN_NOT_FOUND, FailureCode.STREAM_NOT_FOUND)
_CREATED_OR_OK = {ProvisionResult.CREATED: 201, ProvisionResult.UPDATED: 200, ProvisionResult.NOOP: 200}


class ControlEndpoints:
    """Endpoints of the control plane over one back."""

    def __init__(self, back: Back) -> None:
        self._back = back
        self._deletions = RecentDeletions()

    async def list_basins(self, call: S2Call) -> None:
        """GET /v1/basins"""
        await call.exchange.room()
        partial = call.request.header(PARTIAL_LISTING) is not None
        page = await self._back.perform(ListBasins(*listing(call.query(), of_basins=True), partial))
        await call.respond(200, spelled.encode_basin_page(page, call.settings.location), JSON)

    async def create_basin(self, call: S2Call) -> None:
        """POST /v1/basins"""
        token = _request_token(call)
        basin, config = spelled.decode_create_basin(await json_body(call), call.settings.location)
        made = await self._back.perform(CreateBasin(basin, config, token))
        body = spelled.encode_basin_info(made.info, call.settings.location)
        await call.respond(201, body, JSON, _provision(made.result))

    async def ensure_basin(self, call: S2Call) -> None:
        """PUT /v1/basins/{basin}"""
        basin = call.basin()
        config = spelled.decode_ensure_basin(await json_body(call, optional=True), call.settings.location)
        made = await self._back.perform(EnsureBasin(basin, config))
        body = spelled.encode_basin_info(made.info, call.settings.location)
        await call.respond(_CREATED_OR_OK[made.result], body, JSON, _provision(made.result))

    async def get_basin(self, call: S2Call) -> None:
        """GET /v1/basins/{basin}"""
        config = await self._back.perform(GetBasinConfig(call.basin()))
        await call.respond(200, spelled.encode_basin_config(config), JSON)

    async def reconfigure_basin(self, call: S2Call) -> None:
        """PATCH /v1/basins/{basin}"""
        basin = call.basin()
        patch = spelled.decode_basin_patch(await json_body(call))
        config = await self._back.perform(ReconfigureBasin(basin, patch))
        await call.respond(200, spelled.encode_basin_config(config), JSON)

    async def delete_basin(self, call: S2Call) -> None:
        """DELETE /v1/basins/{basin}"""
        basin = call.basin()
        await self._delete(call, DeleteBasin(basin), (CLIENT.get().identity, basin, None))

    async def list_streams(self, call: S2Call) -> None:
        """GET /v1/streams"""
        basin = call.basin()
        await call.exchange.room()
        page = await self._back.perform(ListStreams(basin, *listing(call.query())))
        await call.respond(200, spelled.encode_stream_page(page), JSON)

    async def create_stream(self, call: S2Call) -> None:
        """POST /v1/streams"""
        basin, token = call.basin(), _request_token(call)
        stream, config = spelled.decode_create_stream(await json_body(call), basin)
        made = await self._back.perform(CreateStream(stream, config, token))
        await call.respond(201, spelled.encode_stream_info(made.info), JSON, _provision(made.result))

    async def ensure_stream(self, call: S2Call) -> None:
        """PUT /v1/streams/{stream}"""
        stream = call.stream()
        config = spelled.decode_ensure_stream(await json_body(call, optional=True))
        made = await self._back.perform(EnsureStream(stream, config))
        body = spelled.encode_stream_info(made.info)
        await call.respond(_CREATED_OR_OK[made.result], body, JSON, _provision(made.result))

    async def get_stream(self, call: S2Call) -> None:
        """GET /v1/streams/{stream}"""
        config = await self._back.perform(GetStreamConfig(call.stream()))
        await call.respond(200, spelled.encode_stream_config(config), JSON)

    async def reconfigure_stream(self, call: S2Call) -> None:
        """PATCH /v1/streams/{stream}"""
        stream = call.stream()
        patch = spelled.decode_stream_patch(await json_body(call))
        config = await self._back.perform(ReconfigureStream(stream, patch))
        await call.respond(200, spelled.encode_stream_config(config), JSON)

    async def delete_stream(self, call: S2Call) -> None:
        """DELETE /v1/streams/{stream}"""
        stream, client = call.stream(), CLIENT.get()
        await self._delete(call, DeleteStream(stream), (client.identity, *client.place(stream)))

    async def _delete(self, call: S2Call, operation: Operation[None], deletion: Deletion) -> None:
        """Delete, and answer 202, also if the same request has done it before: its client may repeat it because the
        answer was lost."""
        is_repeated = self._deletions.add(deletion)
        try:
            await self._back.perform(operation)
        except OperationFailed as error:
            if error.failure.code not in _NOT_FOUND:
                raise
            if not is_repeated:
                self._deletions.remove(deletion)
                raise
        await call.respond_empty(202)

    async def list_locations(self, call: S2Call) -> None:
        """GET /v1/locations"""
        await call.respond(200, encode_locations(call.settings.location), JSON)

    async def get_default_location(self, call: S2Call) -> None:
        """GET /v1/locations/default"""
        await call.respond(200, encode_location(call.settings.location), JSON)

    async def set_default_location(self, call: S2Call) -> None:
        """PUT /v1/locations/default"""
        decode_location(await json_body(call), call.settings.location)
        await self.get_default_location(call)


async def json_body(call: S2Call, *, optional: bool = False) -> bytes:
    """Return the request's body. Raises BAD_JSON if it is missing and not optional, or not declared as JSON."""
    if media_of(call.request) is not Media.JSON and not (optional and call.request.header("content-type") is None):
        raise fail(FailureCode.BAD_JSON, "Expected request with `Content-Type: application/json`")
    body = await call.body(FailureCode.BAD_JSON)
    if not body and not optional:
        raise fail(FailureCode.BAD_JSON, "Failed to parse the request body as JSON: EOF while parsing a value")
    return body


def _request_token(call: S2Call) -> str | None:
    value = call.request.header("s2-request-token")
    if value is None:
        return None
    try:
        return validate_request_token(value.encode("latin-1").decode())
    except UnicodeError:
        raise invalid_header("s2-request-token", "not UTF-8") from None


def _provision(result: ProvisionResult) -> tuple[str, str]:
    return "s2-provision-result", result.value


def listing(query: Mapping[str, str], *, of_basins: bool = False) -> tuple[str, str, int]:
    """Return prefix, start_after and limit of a listing (fact sheet 1.3).

    A limit that is absent, 0 or too large becomes the largest. Raises BAD_QUERY for a prefix or start_after that no
    name of a stream or a token, or with `of_basins` of a basin, can have.
    """
    longest = MAX_BASIN_NAME_BYTES if of_basins else MAX_STREAM_NAME_BYTES
    for name in ("prefix", "start_after"):
        value = query.get(name, "")
        reason = ""
        if len(value.encode()) > longest or "\0" in value:
            reason = f"must have at most {longest} bytes, and no NUL"
        elif of_basins and not _BASIN_PREFIX.fullmatch(value):
            reason = "must comprise lowercase letters, numbers and hyphens, and not begin with a hyphen"
        if reason:
            raise fail(FailureCode.BAD_QUERY, f"Failed to deserialize query string: {name}: {reason}")
    limit = number(query, "limit") or S2_MAX_LIST
    return query.get("prefix", ""), query.get("start_after", ""), min(limit, S2_MAX_LIST)
