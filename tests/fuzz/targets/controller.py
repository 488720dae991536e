"""Messages of Pravega's controller: each call's request, and the values that the controller keeps of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import trio
from fuzz.laws import chosen
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from penstock.net.grpc import GrpcContext, GrpcError, Method
from penstock.net.grpc.call import perform
from penstock_pravega.controller.controller.problems import ControllerProblem, ControllerRefusal
from penstock_pravega.controller.front.wire import (
    config_of,
    reader_group_of,
    spell_config,
    spell_group,
    spell_transaction,
    transaction_of,
)
from penstock_proto import pravega_controller_pb2 as pb

REQUESTS: Final = tuple(
    dict.fromkeys(
        GetMessageClass(method.input_type) for method in pb.DESCRIPTOR.services_by_name["ControllerService"].methods
    )
)
"""The classes of all requests."""
STREAM: Final = pb.StreamInfo(scope="tiny", stream="stream")


def seeds() -> Iterator[bytes]:
    """Yield the requests that say most, and an empty one of each class."""
    config = pb.StreamConfig(
        streamInfo=STREAM,
        scalingPolicy=pb.ScalingPolicy(
            scaleType="BY_RATE_IN_EVENTS_PER_SEC", targetRate=10, scaleFactor=2, minNumSegments=2
        ),
        retentionPolicy=pb.RetentionPolicy(retentionType="SIZE", retentionParam=1000, retentionMax=2000),
        tags=pb.Tags(tag=["a", "b"]),
        timestampAggregationTimeout=7,
        rolloverSizeBytes=8,
    )
    group = pb.ReaderGroupConfiguration(
        scope="tiny",
        readerGroupName="readers",
        generation=3,
        readerGroupId="id",
        startingStreamCuts=[pb.StreamCut(streamInfo=STREAM, cut={0: 5, 1 << 32: 6})],
        endingStreamCuts=[pb.StreamCut(streamInfo=STREAM, cut={1: -1})],
    )
    transaction = pb.TxnRequest(streamInfo=STREAM, txnId=pb.TxnId(highBits=-1, lowBits=7), writerId="w", timestamp=9)
    for message in (config, group, transaction, *(make() for make in REQUESTS)):
        yield bytes([REQUESTS.index(type(message))]) + message.SerializeToString()


def check(data: bytes) -> None:
    """Check that bytes are refused with a status or are a request, and that what the controller keeps of it is spelled
    to a message that gives it again."""
    make, body = chosen(REQUESTS, data)
    heard: list[Message] = []

    async def handler(request: Message, _context: GrpcContext) -> Message:
        heard.append(request)
        return request

    try:
        answer = trio.run(perform, "/fuzzed", Method(make, handler), body, GrpcContext("localhost", (), math.inf))
    except GrpcError:
        assert not heard
        return
    again = make.FromString(answer)
    assert again.SerializeToString(deterministic=True) == heard[0].SerializeToString(deterministic=True)
    _kept(heard[0])


def _kept(request: Any) -> None:
    if isinstance(request, pb.StreamConfig):
        try:
            config = config_of(request)
        except ControllerRefusal as error:
            assert error.problem is ControllerProblem.INVALID_CONFIG
            return
        again = config_of(spell_config(request.streamInfo, config))
        # Without retention there is no policy, so the numbers of one are not kept.
        assert again == config or not config.retention_type, f"{config} became {again}"
    elif isinstance(request, pb.ReaderGroupConfiguration):
        group = reader_group_of(request)
        assert reader_group_of(spell_group("tiny", "readers", group)) == group
    elif isinstance(request, pb.TxnRequest):
        transaction = transaction_of(request.txnId)
        if max(transaction) < 2**63:  # as those of the controller are, which are the only ones that it spells
            assert transaction_of(spell_transaction(transaction)) == transaction
