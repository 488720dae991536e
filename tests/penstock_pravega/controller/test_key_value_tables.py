"""Key-value tables: the controller's calls about them, answered as Pravega's, and the table segments behind them."""

from __future__ import annotations

import pytest
from support.controller import BASIN_SCOPE, SCOPE, RefusedWith
from support.controller.client import Client, Ends, ids

from penstock.backends.embedded import EmbeddedBack
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.table_operations import CreateTable, GetTableInfo, ReadTable, TableInfo, TableItem, UpdateTable
from penstock.wire.grpc import Code
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.controller.key_value_tables import MAX_PARTITIONS
from penstock_pravega.controller.controller.problems import ControllerProblem
from penstock_pravega.controller.controller.records import KeyValueTable
from penstock_proto import pravega_controller_pb2 as pb

NAME = pb.KeyValueTableInfo(scope=SCOPE, kvtName="table")
MISSING = pb.KeyValueTableInfo(scope=SCOPE, kvtName="missing")
CREATED = pb.CreateKeyValueTableStatus
TABLE = KeyValueTable(partitions=2, primary_key_length=4, secondary_key_length=2)


def config(name: str = "table", scope: str = SCOPE, **more: int) -> pb.KeyValueTableConfig:
    wanted = {"partitionCount": 2, "primaryKeyLength": 4} | more
    return pb.KeyValueTableConfig(scope=scope, kvtName=name, **wanted)


async def create(client: Client, *names: str, **more: int) -> None:
    for name in names or ("table",):
        assert (await client.createKeyValueTable(config(name, **more))).status == CREATED.SUCCESS


async def listed(client: Client, token: str = "", scope: str = SCOPE) -> list[str]:
    request = pb.KVTablesInScopeRequest(
        scope=pb.ScopeInfo(scope=scope), continuationToken=pb.ContinuationToken(token=token)
    )
    page = await client.listKeyValueTablesInScope(request)
    assert page.status == pb.KVTablesInScopeResponse.SUCCESS
    assert {one.scope for one in page.kvtables} <= {scope}
    assert page.HasField("continuationToken")
    return [one.kvtName for one in page.kvtables]


async def table_info(back: EmbeddedBack, number: int, name: str = "table", scope: str = SCOPE) -> TableInfo | None:
    try:
        return await back.perform(GetTableInfo(f"{scope}/{name}_kvtable/{number}.#epoch.0"))
    except OperationFailed as error:
        assert error.failure.code is FailureCode.STREAM_NOT_FOUND
        return None


async def test_creating_describing_and_deleting(client: Client, back: EmbeddedBack) -> None:
    wanted = config(secondaryKeyLength=2, rolloverSizeBytes=1 << 20)
    assert (await client.createKeyValueTable(wanted)).status == CREATED.SUCCESS
    for again in (wanted, config(partitionCount=5)):
        assert (await client.createKeyValueTable(again)).status == CREATED.TABLE_EXISTS
    described = await client.getKeyValueTableConfiguration(NAME)
    assert (described.status, described.config) == (pb.KeyValueTableConfigResponse.SUCCESS, wanted)
    found = await client.getCurrentSegmentsKeyValueTable(NAME)
    assert ids(found) == [(0, 0.0, 0.5), (1, 0.5, 1.0)]
    assert {one.segmentId.streamInfo.stream for one in found.segmentRanges} == {"table"}
    for number in (0, 1):
        assert await table_info(back, number) == TableInfo(0, 0, 0, 6)
    assert (await client.deleteKeyValueTable(NAME)).status == pb.DeleteKVTableStatus.SUCCESS
    assert (await client.deleteKeyValueTable(NAME)).status == pb.DeleteKVTableStatus.TABLE_NOT_FOUND
    assert await table_info(back, 0) is None


async def test_tables_that_do_not_exist(client: Client) -> None:
    for missing in (MISSING, pb.KeyValueTableInfo(scope="nowhere", kvtName="table"), pb.KeyValueTableInfo(scope=SCOPE)):
        described = await client.getKeyValueTableConfiguration(missing)
        assert described.status == pb.KeyValueTableConfigResponse.TABLE_NOT_FOUND
        with Ends(Code.NOT_FOUND, "no such key-value table"):
            await client.getCurrentSegmentsKeyValueTable(missing)
        assert (await client.deleteKeyValueTable(missing)).status == pb.DeleteKVTableStatus.TABLE_NOT_FOUND
    nowhere = pb.KVTablesInScopeRequest(scope=pb.ScopeInfo(scope="nowhere"))
    assert (await client.listKeyValueTablesInScope(nowhere)).status == pb.KVTablesInScopeResponse.SCOPE_NOT_FOUND


@pytest.mark.parametrize("name", ["", "_x", "a b", "a/b", "x" * 251])
async def test_bad_names(client: Client, name: str) -> None:
    assert (await client.createKeyValueTable(config(name))).status == CREATED.INVALID_TABLE_NAME


async def test_a_table_needs_its_scope(client: Client) -> None:
    assert (await client.createKeyValueTable(config(scope="nowhere"))).status == CREATED.SCOPE_NOT_FOUND


IMPOSSIBLE = [
    ({"partitionCount": 0}, "partitionCount"),
    ({"partitionCount": MAX_PARTITIONS + 1}, "partitionCount"),
    ({"primaryKeyLength": 0}, "primaryKeyLength"),
    ({"primaryKeyLength": 8193}, "primaryKeyLength"),
    ({"secondaryKeyLength": -1}, "secondaryKeyLength"),
    ({"primaryKeyLength": 8000, "secondaryKeyLength": 193}, "primaryKeyLength + secondaryKeyLength"),
    ({"rolloverSizeBytes": -1}, "rolloverSizeBytes"),
]


@pytest.mark.parametrize(("wanted", "named"), IMPOSSIBLE)
async def test_impossible_configurations(client: Client, wanted: dict[str, int], named: str) -> None:
    """The text names what is wrong with them."""
    with Ends(Code.INVALID_ARGUMENT, named):
        await client.createKeyValueTable(config(**wanted))
    assert await listed(client) == []


async def test_numbers_go_on_when_a_table_is_created_again(client: Client, back: EmbeddedBack) -> None:
    """So clients of the old table do not find entries of the new one."""
    await create(client)
    await back.perform(UpdateTable(f"{SCOPE}/table_kvtable/0.#epoch.0", (TableItem(b"key1", b"old"),)))
    await client.deleteKeyValueTable(NAME)
    await create(client, partitionCount=1)
    assert ids(await client.getCurrentSegmentsKeyValueTable(NAME)) == [(2, 0.0, 1.0)]
    assert await back.perform(ReadTable(f"{SCOPE}/table_kvtable/2.#epoch.0", (b"key1",))) == (None,)


async def test_a_table_is_not_a_stream(client: Client) -> None:
    await create(client)
    stream = pb.StreamInfo(scope=SCOPE, stream="table")
    made = await client.createStream(
        pb.StreamConfig(streamInfo=stream, scalingPolicy=pb.ScalingPolicy(minNumSegments=1))
    )
    assert made.status == pb.CreateStreamStatus.SUCCESS
    assert await listed(client) == ["table"]
    streams = await client.listStreamsInScope(pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope=SCOPE)))
    assert [one.stream for one in streams.streams] == ["table"]
    await client.deleteKeyValueTable(NAME)
    assert (await client.checkStreamExists(stream)).exists


async def test_listing_goes_on_after_a_token(client: Client) -> None:
    await create(client, "c", "a", "b")
    assert await listed(client) == ["a", "b", "c"]
    assert await listed(client, "a") == ["b", "c"]
    assert await listed(client, "c") == []


async def test_a_segment_table_of_that_name_is_in_the_way(client: Client, back: EmbeddedBack) -> None:
    """The Python client's reader groups have such tables."""
    await back.perform(CreateTable(f"{SCOPE}/table_kvtable/0.#epoch.0"))
    assert (await client.createKeyValueTable(config())).status == CREATED.TABLE_EXISTS
    assert await listed(client) == []
    assert await table_info(back, 0) is not None


@pytest.mark.parametrize("scope", [SCOPE, BASIN_SCOPE])
async def test_a_scope_with_tables_is_not_empty(controller: Controller, back: EmbeddedBack, scope: str) -> None:
    await controller.tables.create(scope, "table", TABLE)
    with RefusedWith(ControllerProblem.SCOPE_NOT_EMPTY):
        await controller.deletion.delete(scope)
    await controller.deletion.delete_all(scope)
    assert not await controller.scopes.exists(scope)
    assert await table_info(back, 0, scope=scope) is None
    await controller.scopes.create(scope)
    await controller.tables.create(scope, "table", TABLE)
    assert [one.number for one in await controller.tables.segments(scope, "table")] == [2, 3]
