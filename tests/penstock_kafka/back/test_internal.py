"""Internal streams, such as transactions of Pravega's clients, as topics of a cluster."""

from __future__ import annotations

from typing import Any

import pytest
from support.s3p.front import BASIN
from support.store import Fails, appending, bodies

from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.failures import FailureCode
from penstock.model.operations import CreateStream, DeleteStream, FromSeqNum, ListStreams
from penstock.model.records import StreamRef
from penstock_kafka.names import KafkaNames

NAMES = KafkaNames(BASIN, "state.internal.")
TRANSACTION = StreamRef(INTERNAL_BASIN, f"Scope/s_1/0.#epoch.0#transaction.{'0' * 32}")
GROUP = StreamRef(INTERNAL_BASIN, "Scope/_RGgroup/0.#epoch.0")


async def test_only_the_internal_basin_has_them(cluster: Any) -> None:
    async with cluster.back(names=NAMES) as back:
        for ref in (TRANSACTION, GROUP, StreamRef(BASIN, "orders")):
            await back.perform(CreateStream(ref))
        await back.perform(appending(b"a", b"b", stream=TRANSACTION))
        assert await bodies(back, FromSeqNum(0), stream=TRANSACTION) == [b"a", b"b"]
        listed = {
            basin: [info.name for info in (await back.perform(ListStreams(basin))).items]
            for basin in (BASIN, INTERNAL_BASIN)
        }
        assert listed == {BASIN: ["orders"], INTERNAL_BASIN: [GROUP.stream, TRANSACTION.stream]}
        with Fails(FailureCode.STREAM_NOT_FOUND, "is the gateway's own"):
            await bodies(back, FromSeqNum(0), stream=StreamRef(BASIN, NAMES.from_stream(GROUP).topic))
        await back.perform(DeleteStream(TRANSACTION))
        left = await back.perform(ListStreams(INTERNAL_BASIN, "Scope/"))
        assert [info.name for info in left.items] == [GROUP.stream]


@pytest.mark.parametrize("names", [KafkaNames(BASIN)])
async def test_a_cluster_without_the_gateways_state_has_none(cluster: Any, names: KafkaNames) -> None:
    async with cluster.back(names=names) as back:
        with Fails(FailureCode.NOT_REPRESENTABLE):
            await back.perform(CreateStream(GROUP))
        with Fails(FailureCode.BASIN_NOT_FOUND):
            await back.perform(ListStreams(INTERNAL_BASIN))
