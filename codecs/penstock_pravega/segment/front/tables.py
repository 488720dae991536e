"""Requests about table segments: their handlers and replies (segment fact sheet, 1.3, Tables)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.core.internal_names import GATEWAY_TABLES
from penstock.model.failures import FailureCode, fail
from penstock.model.table_operations import (
    NOT_EXISTS,
    CreateTable,
    DeleteTable,
    GetTableInfo,
    ListTable,
    ReadTable,
    ReadTableDelta,
    RemoveTableKeys,
    TableItem,
    TablePage,
    UpdateTable,
    VersionedKey,
)
from penstock.net.limits.work import in_turns
from penstock_pravega.codec import SegmentMessage, TableEntry, TableKey, released
from penstock_pravega.codec.limits import SEGMENT_MAX_ITEMS
from penstock_pravega.segment.front.administration import RequestContext, SegmentHandler

__all__ = ["TABLE_HANDLERS"]

ANY_LENGTH: Final = -1
"""Expected length of a table that may have any length (1.3)."""
_TOKEN: Final = b"\x01"
"""Prefix of continuation tokens, before the last key of the page: a key may be empty, but an empty token means the
end."""


async def _create(desk: RequestContext, request: released.CreateTableSegment) -> SegmentMessage:
    """Create a table; all tables here are sorted."""
    await desk.back.perform(CreateTable(request.segment, request.key_length))
    return released.SegmentCreated(request.request_id, request.segment)


async def _delete(desk: RequestContext, request: released.DeleteTableSegment) -> SegmentMessage:
    await desk.back.perform(DeleteTable(request.segment, request.must_be_empty))
    return released.SegmentDeleted(request.request_id, request.segment)


async def _info(desk: RequestContext, request: released.GetTableSegmentInfo) -> SegmentMessage:
    info = await desk.back.perform(GetTableInfo(request.segment))
    return released.TableSegmentInfo(
        request.request_id, request.segment, info.start, info.length, info.entries, info.key_length
    )


async def _update(desk: RequestContext, request: released.UpdateTableEntries) -> SegmentMessage:
    items = [TableItem(entry.key.key, entry.value, entry.key.version) async for entry in in_turns(request.entries)]
    update = UpdateTable(request.segment, tuple(items), _length(request.table_segment_offset))
    return released.TableEntriesUpdated(request.request_id, await desk.back.perform(update))


async def _remove(desk: RequestContext, request: released.RemoveTableKeys) -> SegmentMessage:
    keys = [VersionedKey(key.key, key.version) async for key in in_turns(request.keys)]
    await desk.back.perform(RemoveTableKeys(request.segment, tuple(keys), _length(request.table_segment_offset)))
    return released.TableKeysRemoved(request.request_id, request.segment)


def _length(offset: int) -> int | None:
    return None if offset == ANY_LENGTH else offset


async def _read(desk: RequestContext, request: released.ReadTable) -> SegmentMessage:
    keys = tuple(key.key for key in request.keys)
    items = await desk.back.perform(ReadTable(request.segment, keys))
    entries = [
        TableEntry(TableKey(key, NOT_EXISTS), b"") if item is None else _entry(item)
        async for key, item in in_turns(zip(keys, items, strict=True))
    ]
    return released.TableRead(request.request_id, request.segment, tuple(entries))


async def _list_keys(desk: RequestContext, request: released.ReadTableKeys) -> SegmentMessage:
    page = await _list(desk, request, request.suggested_key_count)
    keys = [TableKey(item.key, item.version) async for item in in_turns(page.items)]
    return released.TableKeysRead(request.request_id, request.segment, tuple(keys), _token(page))


async def _list_entries(desk: RequestContext, request: released.ReadTableEntries) -> SegmentMessage:
    page = await _list(desk, request, request.suggested_entry_count)
    entries = [_entry(item) async for item in in_turns(page.items)]
    return released.TableEntriesRead(request.request_id, request.segment, tuple(entries), _token(page))


async def _list(
    desk: RequestContext, request: released.ReadTableKeys | released.ReadTableEntries, suggested: int
) -> TablePage:
    token = request.continuation_token
    if token and not token.startswith(_TOKEN):
        raise fail(FailureCode.INVALID, "this continuation token was not issued here")
    listing = ListTable(
        request.segment,
        after=token[len(_TOKEN) :] if token else None,
        first=request.from_key or None,
        last=request.to_key or None,
        count=_count(suggested),
    )
    return await desk.back.perform(listing)


def _token(page: TablePage) -> bytes:
    """Return the continuation token, even for the last page.

    The Java client drops the items of a page without a token.
    """
    return _TOKEN + page.items[-1].key if page.items else b""


async def _read_delta(desk: RequestContext, request: released.ReadTableEntriesDelta) -> SegmentMessage:
    read = ReadTableDelta(request.segment, request.from_position, _count(request.suggested_entry_count))
    delta = await desk.back.perform(read)
    entries = tuple([_entry(item) async for item in in_turns(delta.items)])
    return released.TableEntriesDeltaRead(
        request.request_id, request.segment, entries, delta.should_clear, delta.reached_end, delta.next_position
    )


def _count(suggested: int) -> int:
    return max(1, min(suggested, SEGMENT_MAX_ITEMS))


def _entry(item: TableItem) -> TableEntry:
    return TableEntry(TableKey(item.key, item.version), item.value)


def _of_clients(handler: SegmentHandler) -> SegmentHandler:
    """Wrap a handler so that it refuses the gateway's own tables, such as the controller's."""

    async def handle(desk: RequestContext, request: Any) -> SegmentMessage:
        if request.segment.startswith(GATEWAY_TABLES):
            raise fail(FailureCode.NOT_REPRESENTABLE, f"{request.segment!r:.80} is not a table segment's name")
        return await handler(desk, request)

    return handle


_HANDLERS: Final[Mapping[type[SegmentMessage], SegmentHandler]] = {
    released.CreateTableSegment: _create,
    released.DeleteTableSegment: _delete,
    released.GetTableSegmentInfo: _info,
    released.UpdateTableEntries: _update,
    released.RemoveTableKeys: _remove,
    released.ReadTable: _read,
    released.ReadTableKeys: _list_keys,
    released.ReadTableEntries: _list_entries,
    released.ReadTableEntriesDelta: _read_delta,
}

TABLE_HANDLERS: Final[Mapping[type[SegmentMessage], SegmentHandler]] = {
    kind: _of_clients(handler) for kind, handler in _HANDLERS.items()
}
