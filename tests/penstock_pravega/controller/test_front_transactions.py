"""The controller's calls about transactions, writers and reader groups, as clients make them."""

from __future__ import annotations

import typing

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs
from support.controller import SCOPE, content, event, info, settings, write
from support.controller.client import MISSING, ONE, STREAM, Client, Ends, config, cut, ids
from support.store import Wall

from penstock.backends.embedded import EmbeddedBack
from penstock.model.failures import FailureCode, fail
from penstock.wire.grpc import Code
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.front import ControllerFront
from penstock_proto import pravega_controller_pb2 as pb

# ---- transactions ----


async def test_transactions(client: Client, back: EmbeddedBack) -> None:
    await client.createStream(config(2))
    begun = await client.createTransaction(pb.CreateTxnRequest(streamInfo=STREAM, lease=30_000))
    assert begun.txnId.highBits >= 0
    assert begun.txnId.lowBits >= 0
    assert [each.segmentId.segmentId for each in begun.activeSegments] == [0, 1]
    suffix = f"#transaction.{begun.txnId.highBits:016x}{begun.txnId.lowBits:016x}"
    await write(back, SCOPE, "stream", event(b"in it"), 1, suffix)
    request = pb.TxnRequest(streamInfo=STREAM, txnId=begun.txnId, writerId="w", timestamp=-(2**63))
    assert await client.checkTransactionState(request) == pb.TxnState(state=pb.TxnState.OPEN)
    ping = pb.PingTxnRequest(streamInfo=STREAM, txnId=begun.txnId, lease=30_000)
    assert await client.pingTransaction(ping) == pb.PingTxnStatus(status=pb.PingTxnStatus.OK)
    assert await client.commitTransaction(request) == pb.TxnStatus(status=pb.TxnStatus.SUCCESS)
    assert await content(back, SCOPE, "stream", 1) == event(b"in it")
    assert await client.checkTransactionState(request) == pb.TxnState(state=pb.TxnState.COMMITTED)
    assert await client.pingTransaction(ping) == pb.PingTxnStatus(status=pb.PingTxnStatus.COMMITTED)
    assert await client.abortTransaction(request) == pb.TxnStatus(status=pb.TxnStatus.TRANSACTION_NOT_FOUND)
    listed = await client.listCompletedTransactions(pb.ListCompletedTxnRequest(streamInfo=STREAM))
    assert list(listed.response) == [pb.TxnResponse(txnId=begun.txnId, status=pb.TxnResponse.COMMITTED)]


async def test_a_commit_with_the_time_of_its_writer(client: Client) -> None:
    """The lowest number stands for no time, as clients send it; after a time another one of the writer is lower."""
    await client.createStream(config(1))
    for time, noted in ((-(2**63), pb.TimestampResponse.SUCCESS), (9, pb.TimestampResponse.INVALID_TIME)):
        begun = await client.createTransaction(pb.CreateTxnRequest(streamInfo=STREAM, lease=30_000))
        await client.commitTransaction(
            pb.TxnRequest(streamInfo=STREAM, txnId=begun.txnId, writerId=f"w{time}", timestamp=time)
        )
        position = pb.StreamCut(streamInfo=STREAM, cut={0: 0})
        note = pb.TimestampFromWriter(writer=f"w{time}", position=position, timestamp=-5)
        assert (await client.noteTimestampFromWriter(note)).result == noted


async def test_transactions_that_are_not_known(client: Client) -> None:
    await client.createStream(config(1))
    nobody = pb.TxnId(highBits=-1, lowBits=5)
    request = pb.TxnRequest(streamInfo=STREAM, txnId=nobody)
    assert await client.checkTransactionState(request) == pb.TxnState(state=pb.TxnState.UNKNOWN)
    ping = pb.PingTxnRequest(streamInfo=STREAM, txnId=nobody, lease=1000)
    assert await client.pingTransaction(ping) == pb.PingTxnStatus(status=pb.PingTxnStatus.DISCONNECTED)
    ping.lease = 10**9
    assert await client.pingTransaction(ping) == pb.PingTxnStatus(status=pb.PingTxnStatus.LEASE_TOO_LARGE)
    for call in (client.commitTransaction, client.abortTransaction):
        assert await call(request) == pb.TxnStatus(status=pb.TxnStatus.TRANSACTION_NOT_FOUND)
        elsewhere = pb.TxnRequest(streamInfo=MISSING, txnId=nobody)
        assert await call(elsewhere) == pb.TxnStatus(status=pb.TxnStatus.STREAM_NOT_FOUND)
    for lease in (0, 10**9):
        with Ends(Code.INVALID_ARGUMENT, "lease"):
            await client.createTransaction(pb.CreateTxnRequest(streamInfo=STREAM, lease=lease))


async def test_expired_transactions_are_aborted_in_the_background(
    client: Client, front: ControllerFront, clock: trio.testing.MockClock, wall: Wall
) -> None:
    await client.createStream(config(1))
    begun = await client.createTransaction(pb.CreateTxnRequest(streamInfo=STREAM, lease=30_000))
    request = pb.TxnRequest(streamInfo=STREAM, txnId=begun.txnId)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(front.run)
        await trio.sleep(12)
        assert await client.checkTransactionState(request) == pb.TxnState(state=pb.TxnState.OPEN)
        wall.now += 30_000
        clock.jump(30)  # the gateway was paused, and has not read the ping that came meanwhile
        ping = pb.PingTxnRequest(streamInfo=STREAM, txnId=begun.txnId, lease=30_000)
        assert await client.pingTransaction(ping) == pb.PingTxnStatus(status=pb.PingTxnStatus.OK)
        await trio.sleep(12)
        assert await client.checkTransactionState(request) == pb.TxnState(state=pb.TxnState.OPEN)
        wall.now += 30_000
        await trio.sleep(12)
        assert await client.checkTransactionState(request) == pb.TxnState(state=pb.TxnState.ABORTED)
        nursery.cancel_scope.cancel()


async def test_the_background_outlives_a_failing_store(
    back: EmbeddedBack, clock: trio.testing.MockClock, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    front = ControllerFront(Controller(back, settings(), wall))
    failing = True
    perform = back.perform

    async def sometimes(operation: typing.Any) -> typing.Any:
        if failing:
            raise fail(FailureCode.STORAGE, "the disk is gone")
        return await perform(operation)

    monkeypatch.setattr(back, "perform", sometimes)
    async with trio.open_nursery() as nursery:
        with capture_logs() as logs:
            nursery.start_soon(front.run)
            await trio.sleep(3)
        assert {line["event"] for line in logs} == {"controller_duty_failed"}
        failing = False
        with capture_logs() as logs:
            await trio.sleep(60)
        assert logs == []
        nursery.cancel_scope.cancel()


# ---- writers' times, reader groups ----


async def test_writers_times_are_taken(client: Client) -> None:
    await client.createStream(config(1))
    noted = await client.noteTimestampFromWriter(pb.TimestampFromWriter(writer="w", position=cut(s0=0), timestamp=7))
    assert noted == pb.TimestampResponse(result=pb.TimestampResponse.SUCCESS)
    for time, position, result in (
        (6, cut(s0=0), pb.TimestampResponse.INVALID_TIME),
        (8, cut(s1=0), pb.TimestampResponse.INVALID_POSITION),
    ):
        request = pb.TimestampFromWriter(writer="w", position=position, timestamp=time)
        assert await client.noteTimestampFromWriter(request) == pb.TimestampResponse(result=result)
    removed = await client.removeWriter(pb.RemoveWriterRequest(writer="w", stream=STREAM))
    assert removed == pb.RemoveWriterResponse(result=pb.RemoveWriterResponse.SUCCESS)
    removed = await client.removeWriter(pb.RemoveWriterRequest(writer="another", stream=STREAM))
    assert removed == pb.RemoveWriterResponse(result=pb.RemoveWriterResponse.UNKNOWN_WRITER)
    removed = await client.removeWriter(pb.RemoveWriterRequest(writer="w", stream=MISSING))
    assert removed == pb.RemoveWriterResponse(result=pb.RemoveWriterResponse.STREAM_DOES_NOT_EXIST)


def group(**more: typing.Any) -> pb.ReaderGroupConfiguration:
    """As the Java client sends it."""
    return pb.ReaderGroupConfiguration(
        **{
            "scope": SCOPE,
            "readerGroupName": "group",
            "groupRefreshTimeMillis": 3000,
            "automaticCheckpointIntervalMillis": 30_000,
            "maxOutstandingCheckpointRequest": 3,
            "retentionType": pb.ReaderGroupConfiguration.MANUAL,
            "readerGroupId": "9a1c0a3e-7e4f-4f43-9a4c-0a5d4a6b1c2d",
            "startingStreamCuts": [pb.StreamCut(streamInfo=STREAM, cut={0: 3, ONE: 4})],
            "endingStreamCuts": [pb.StreamCut(streamInfo=STREAM)],
            "rolloverSizeBytes": 5,
            **more,
        }
    )


async def test_reader_groups(client: Client, back: EmbeddedBack) -> None:
    status = pb.CreateReaderGroupResponse
    assert await client.createReaderGroup(group()) == status(status=status.SUCCESS, config=group())
    assert await info(back, SCOPE, "_RGgroup") is not None
    assert ids(await client.getCurrentSegments(pb.StreamInfo(scope=SCOPE, stream="_RGgroup"))) == [(0, 0.0, 1.0)]
    other = await client.createReaderGroup(group(readerGroupId="another", groupRefreshTimeMillis=1))
    assert other == status(status=status.SUCCESS, config=group()), "the group that is there"
    assert await client.createReaderGroup(group(scope="no")) == status(status=status.SCOPE_NOT_FOUND)
    assert await client.createReaderGroup(group(readerGroupName="_x")) == status(status=status.INVALID_RG_NAME)


async def test_configuring_reader_groups(client: Client) -> None:
    named = pb.ReaderGroupInfo(scope=SCOPE, readerGroup="group")
    found, updated = pb.ReaderGroupConfigResponse, pb.UpdateReaderGroupResponse
    assert await client.getReaderGroupConfig(named) == found(status=found.RG_NOT_FOUND)
    assert await client.updateReaderGroup(group()) == updated(status=updated.RG_NOT_FOUND)
    await client.createReaderGroup(group())
    assert await client.getReaderGroupConfig(named) == found(status=found.SUCCESS, config=group())
    changed = group(groupRefreshTimeMillis=9)
    assert await client.updateReaderGroup(changed) == updated(status=updated.SUCCESS, generation=1)
    assert await client.updateReaderGroup(changed) == updated(status=updated.INVALID_CONFIG)
    assert await client.updateReaderGroup(group(readerGroupId="x", generation=1)) == updated(
        status=updated.INVALID_CONFIG
    )
    expected = group(groupRefreshTimeMillis=9, generation=1)
    assert await client.getReaderGroupConfig(named) == found(status=found.SUCCESS, config=expected)


async def test_deleting_reader_groups(client: Client, back: EmbeddedBack) -> None:
    status = pb.DeleteReaderGroupStatus
    named = pb.ReaderGroupInfo(scope=SCOPE, readerGroup="group", readerGroupId=group().readerGroupId)
    await client.createReaderGroup(group())
    await write(back, SCOPE, "_RGgroup", b"what the readers share")
    wrong = pb.ReaderGroupInfo(scope=SCOPE, readerGroup="group", readerGroupId="wrong")
    assert await client.deleteReaderGroup(wrong) == status(status=status.RG_NOT_FOUND)
    assert await client.deleteReaderGroup(named) == status(status=status.SUCCESS)
    assert await client.deleteReaderGroup(named) == status(status=status.RG_NOT_FOUND)
    assert await info(back, SCOPE, "_RGgroup") is None


async def test_subscribers(client: Client) -> None:
    await client.createStream(config(1))
    await client.createReaderGroup(group())
    await client.createReaderGroup(group(readerGroupName="other", retentionType=pb.ReaderGroupConfiguration.NONE))
    listed = await client.listSubscribers(STREAM)
    assert listed == pb.SubscribersResponse(status=pb.SubscribersResponse.SUCCESS, subscribers=["tiny/group"])
    assert await client.listSubscribers(MISSING) == pb.SubscribersResponse(
        status=pb.SubscribersResponse.STREAM_NOT_FOUND
    )
    for name, generation, where, status in (
        ("tiny/group", 0, cut(s0=0), "SUCCESS"),
        ("tiny/other", 0, cut(s0=0), "SUBSCRIBER_NOT_FOUND"),
        ("tiny/nobody", 0, cut(s0=0), "SUBSCRIBER_NOT_FOUND"),
        ("tiny/group", 7, cut(s0=0), "GENERATION_MISMATCH"),
        ("tiny/group", 0, cut(s1=0), "STREAM_CUT_NOT_VALID"),
        ("tiny/group", 0, cut(MISSING, s0=0), "STREAM_NOT_FOUND"),
    ):
        request = pb.SubscriberStreamCut(
            subscriber=name, generation=generation, readerGroupId=group().readerGroupId, streamCut=where
        )
        answer = await client.updateSubscriberStreamCut(request)
        assert pb.UpdateSubscriberStatus.Status.Name(answer.status) == status


async def test_marks_of_a_stream_are_there_when_asked_for(client: Client, back: EmbeddedBack) -> None:
    """Readers of the Java client fail without (fact sheet 3.2)."""
    await client.createStream(config(3))
    assert await info(back, SCOPE, "_MARKstream") is None
    assert ids(await client.getCurrentSegments(pb.StreamInfo(scope=SCOPE, stream="_MARKstream"))) == [(0, 0.0, 1.0)]
    await write(back, SCOPE, "_MARKstream", b"a mark")
    await client.sealStream(STREAM)
    await client.deleteStream(STREAM)
    assert await info(back, SCOPE, "_MARKstream") is None
