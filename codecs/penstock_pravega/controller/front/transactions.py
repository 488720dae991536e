"""Calls about transactions, and about the timestamps that writers report."""

from __future__ import annotations

from typing import Final

from penstock_pravega.controller.controller.problems import ControllerProblem
from penstock_pravega.controller.controller.records import BEGINNING, TransactionState
from penstock_pravega.controller.front.calls import CallContext, Calls
from penstock_pravega.controller.front.wire import segment_range, spell_transaction, status_of, transaction_of
from penstock_proto import pravega_controller_pb2 as pb

__all__ = ["TRANSACTIONS"]

_ENDED: Final = pb.TxnStatus(status=pb.TxnStatus.SUCCESS)
_NOT_ENDED: Final = {
    ControllerProblem.STREAM_NOT_FOUND: pb.TxnStatus(status=pb.TxnStatus.STREAM_NOT_FOUND),
    ControllerProblem.TRANSACTION_NOT_FOUND: pb.TxnStatus(status=pb.TxnStatus.TRANSACTION_NOT_FOUND),
}
_NOT_PINGED: Final = {
    ControllerProblem.LEASE_TOO_LARGE: pb.PingTxnStatus(status=pb.PingTxnStatus.LEASE_TOO_LARGE),
    ControllerProblem.TOO_OLD: pb.PingTxnStatus(status=pb.PingTxnStatus.MAX_EXECUTION_TIME_EXCEEDED),
}
# An unknown transaction is DISCONNECTED, since after UNKNOWN a released client retries for a minute.
_PINGED: Final = {
    None: pb.PingTxnStatus.DISCONNECTED,
    TransactionState.OPEN: pb.PingTxnStatus.OK,
    TransactionState.COMMITTING: pb.PingTxnStatus.COMMITTED,
    TransactionState.COMMITTED: pb.PingTxnStatus.COMMITTED,
    TransactionState.ABORTING: pb.PingTxnStatus.ABORTED,
    TransactionState.ABORTED: pb.PingTxnStatus.ABORTED,
}
_STATES: Final = {
    None: pb.TxnState.UNKNOWN,
    TransactionState.OPEN: pb.TxnState.OPEN,
    TransactionState.COMMITTING: pb.TxnState.COMMITTING,
    TransactionState.COMMITTED: pb.TxnState.COMMITTED,
    TransactionState.ABORTING: pb.TxnState.ABORTING,
    TransactionState.ABORTED: pb.TxnState.ABORTED,
}
_COMPLETED: Final = {
    TransactionState.COMMITTED: pb.TxnResponse.COMMITTED,
    TransactionState.ABORTED: pb.TxnResponse.ABORTED,
}

_NOTED: Final = pb.TimestampResponse(result=pb.TimestampResponse.SUCCESS)
_NOT_NOTED: Final = {
    ControllerProblem.INVALID_TIME: pb.TimestampResponse(result=pb.TimestampResponse.INVALID_TIME),
    ControllerProblem.INVALID_CUT: pb.TimestampResponse(result=pb.TimestampResponse.INVALID_POSITION),
}
_REMOVED: Final = pb.RemoveWriterResponse(result=pb.RemoveWriterResponse.SUCCESS)
_NOT_REMOVED: Final = {
    ControllerProblem.STREAM_NOT_FOUND: pb.RemoveWriterResponse(result=pb.RemoveWriterResponse.STREAM_DOES_NOT_EXIST),
    ControllerProblem.WRITER_NOT_FOUND: pb.RemoveWriterResponse(result=pb.RemoveWriterResponse.UNKNOWN_WRITER),
}


async def _create(call: CallContext, request: pb.CreateTxnRequest) -> pb.CreateTxnResponse:
    stream = request.streamInfo
    transaction, segments = await call.controller.transactions.create(stream.scope, stream.stream, request.lease)
    return pb.CreateTxnResponse(
        txnId=spell_transaction(transaction),
        activeSegments=[segment_range(stream, segment) for segment in segments],
        delegationToken=call.delegation_token(stream),
    )


async def _commit(call: CallContext, request: pb.TxnRequest) -> pb.TxnStatus:
    """Commit a transaction. Clients that note no time send the lowest one."""
    stream, time = request.streamInfo, None if request.timestamp == BEGINNING else request.timestamp
    transaction = transaction_of(request.txnId)
    work = call.controller.transactions.commit(stream.scope, stream.stream, transaction, request.writerId, time)
    return await status_of(work, _ENDED, _NOT_ENDED)


async def _abort(call: CallContext, request: pb.TxnRequest) -> pb.TxnStatus:
    stream = request.streamInfo
    work = call.controller.transactions.abort(stream.scope, stream.stream, transaction_of(request.txnId))
    return await status_of(work, _ENDED, _NOT_ENDED)


async def _ping(call: CallContext, request: pb.PingTxnRequest) -> pb.PingTxnStatus:
    stream, response = request.streamInfo, pb.PingTxnStatus()

    async def work() -> None:
        transaction = transaction_of(request.txnId)
        state = await call.controller.transactions.ping(stream.scope, stream.stream, transaction, request.lease)
        response.status = _PINGED[state]

    return await status_of(work(), response, _NOT_PINGED)


async def _state(call: CallContext, request: pb.TxnRequest) -> pb.TxnState:
    stream = request.streamInfo
    state = await call.controller.transactions.state(stream.scope, stream.stream, transaction_of(request.txnId))
    return pb.TxnState(state=_STATES[state])


async def _list_completed(call: CallContext, request: pb.ListCompletedTxnRequest) -> pb.ListCompletedTxnResponse:
    stream = request.streamInfo
    ended = await call.controller.transactions.completed(stream.scope, stream.stream)
    return pb.ListCompletedTxnResponse(
        response=[
            pb.TxnResponse(txnId=spell_transaction(transaction), status=_COMPLETED[state])
            for transaction, state in ended
        ]
    )


async def _note_timestamp(call: CallContext, request: pb.TimestampFromWriter) -> pb.TimestampResponse:
    stream, cut = request.position.streamInfo, dict(request.position.cut)
    work = call.controller.times.note(stream.scope, stream.stream, request.writer, request.timestamp, cut)
    return await status_of(work, _NOTED, _NOT_NOTED)


async def _remove_writer(call: CallContext, request: pb.RemoveWriterRequest) -> pb.RemoveWriterResponse:
    work = call.controller.times.remove(request.stream.scope, request.stream.stream, request.writer)
    return await status_of(work, _REMOVED, _NOT_REMOVED)


TRANSACTIONS: Final[Calls] = {
    "createTransaction": _create,
    "commitTransaction": _commit,
    "abortTransaction": _abort,
    "pingTransaction": _ping,
    "checkTransactionState": _state,
    "listCompletedTransactions": _list_completed,
    "noteTimestampFromWriter": _note_timestamp,
    "removeWriter": _remove_writer,
}
