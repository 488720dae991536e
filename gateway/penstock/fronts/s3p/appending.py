"""APPEND: commands that were pipelined share a group commit and still behave as if run one by one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import trio

from penstock.backs.base import AppendSession, Back
from penstock_codecs.failures import Failure, OperationFailed
from penstock_codecs.operations import Append, Appended

__all__ = ["append_some"]


async def append_some(back: Back, appends: Sequence[Append]) -> list[Appended | Failure]:
    """Carry out appends to one stream; the outcomes of the first of them, up to and including the first failure.

    What stands behind a failure has not been applied, by the guarantee of `AppendSession`: the caller hands it over
    again. So each append sees the effects of those before it, and the failure of one is nothing to the next.
    """
    if len(appends) == 1:
        try:
            return [await back.perform(appends[0])]
        except OperationFailed as error:
            return [error.failure]
    session = back.append_session(appends[0].stream, create_if_missing=False)
    outcomes: list[Appended | Failure] = []
    try:
        await _through(session, appends, outcomes)
    except OperationFailed as error:
        outcomes.append(error.failure)
    return outcomes


async def _through(
    entering: AbstractAsyncContextManager[AppendSession],
    appends: Sequence[Append],
    outcomes: list[Appended | Failure],
) -> None:
    failed: OperationFailed | None = None
    async with entering as session, trio.open_nursery() as nursery:
        nursery.start_soon(_send, session, appends)
        try:
            while len(outcomes) < len(appends):
                outcomes += await session.receive()
        except OperationFailed as error:
            failed = error
            nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed


async def _send(session: AppendSession, appends: Sequence[Append]) -> None:
    for append in appends:
        await session.send(append)
    session.close()
