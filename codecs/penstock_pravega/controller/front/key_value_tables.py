"""Calls about key-value tables."""

from __future__ import annotations

from typing import Final

from penstock_pravega.controller.controller.listing import PAGE
from penstock_pravega.controller.controller.problems import ControllerProblem
from penstock_pravega.controller.controller.records import KeyValueTable
from penstock_pravega.controller.front.calls import CallContext, Calls
from penstock_pravega.controller.front.wire import segment_range, status_of, token
from penstock_proto import pravega_controller_pb2 as pb

__all__ = ["KEY_VALUE_TABLES"]

_CREATED: Final = pb.CreateKeyValueTableStatus(status=pb.CreateKeyValueTableStatus.SUCCESS)
_NOT_CREATED: Final = {
    ControllerProblem.TABLE_EXISTS: pb.CreateKeyValueTableStatus(status=pb.CreateKeyValueTableStatus.TABLE_EXISTS),
    ControllerProblem.SCOPE_NOT_FOUND: pb.CreateKeyValueTableStatus(
        status=pb.CreateKeyValueTableStatus.SCOPE_NOT_FOUND
    ),
    ControllerProblem.INVALID_NAME: pb.CreateKeyValueTableStatus(
        status=pb.CreateKeyValueTableStatus.INVALID_TABLE_NAME
    ),
}
_NO_CONFIG: Final = {
    ControllerProblem.TABLE_NOT_FOUND: pb.KeyValueTableConfigResponse(
        status=pb.KeyValueTableConfigResponse.TABLE_NOT_FOUND
    )
}
_NO_SCOPE: Final = {
    ControllerProblem.SCOPE_NOT_FOUND: pb.KVTablesInScopeResponse(status=pb.KVTablesInScopeResponse.SCOPE_NOT_FOUND)
}
_DELETED: Final = pb.DeleteKVTableStatus(status=pb.DeleteKVTableStatus.SUCCESS)
_NOT_DELETED: Final = {
    ControllerProblem.TABLE_NOT_FOUND: pb.DeleteKVTableStatus(status=pb.DeleteKVTableStatus.TABLE_NOT_FOUND)
}


async def _create(call: CallContext, request: pb.KeyValueTableConfig) -> pb.CreateKeyValueTableStatus:
    table = KeyValueTable(
        partitions=request.partitionCount,
        primary_key_length=request.primaryKeyLength,
        secondary_key_length=request.secondaryKeyLength,
        rollover_size_bytes=request.rolloverSizeBytes,
    )
    work = call.controller.tables.create(request.scope, request.kvtName, table)
    return await status_of(work, _CREATED, _NOT_CREATED)


async def _config(call: CallContext, request: pb.KeyValueTableInfo) -> pb.KeyValueTableConfigResponse:
    response = pb.KeyValueTableConfigResponse(status=pb.KeyValueTableConfigResponse.SUCCESS)

    async def work() -> None:
        table = await call.controller.tables.get(request.scope, request.kvtName)
        response.config.scope, response.config.kvtName = request.scope, request.kvtName
        response.config.partitionCount = table.partitions
        response.config.primaryKeyLength = table.primary_key_length
        response.config.secondaryKeyLength = table.secondary_key_length
        response.config.rolloverSizeBytes = table.rollover_size_bytes

    return await status_of(work(), response, _NO_CONFIG)


async def _segments(call: CallContext, request: pb.KeyValueTableInfo) -> pb.SegmentRanges:
    """Return the table's segments, under its own name: clients add the rest of the segments' names."""
    named = pb.StreamInfo(scope=request.scope, stream=request.kvtName)
    segments = await call.controller.tables.segments(request.scope, request.kvtName)
    ranges = [segment_range(named, segment) for segment in segments]
    return pb.SegmentRanges(segmentRanges=ranges, delegationToken=call.delegation_token(named))


async def _list(call: CallContext, request: pb.KVTablesInScopeRequest) -> pb.KVTablesInScopeResponse:
    scope, before = request.scope.scope, request.continuationToken
    page = pb.KVTablesInScopeResponse(status=pb.KVTablesInScopeResponse.SUCCESS)

    async def fill() -> None:
        names = await call.controller.tables.page(scope, before.token, PAGE)
        page.kvtables.extend(pb.KeyValueTableInfo(scope=scope, kvtName=name) for name in names)
        page.continuationToken.CopyFrom(token(names, before))

    return await status_of(fill(), page, _NO_SCOPE)


async def _delete(call: CallContext, request: pb.KeyValueTableInfo) -> pb.DeleteKVTableStatus:
    return await status_of(call.controller.tables.delete(request.scope, request.kvtName), _DELETED, _NOT_DELETED)


KEY_VALUE_TABLES: Final[Calls] = {
    "createKeyValueTable": _create,
    "getKeyValueTableConfiguration": _config,
    "getCurrentSegmentsKeyValueTable": _segments,
    "listKeyValueTablesInScope": _list,
    "deleteKeyValueTable": _delete,
}
