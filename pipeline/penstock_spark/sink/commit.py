"""What the driver does when all tasks of a batch are over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from penstock_spark.clients.base import StreamClient
from penstock_spark.clients.patience import Patience
from penstock_spark.sink.entries import Opened, Tally, committed
from penstock_spark.sink.failures import RowsDiffer
from penstock_spark.sink.identity import Identity
from penstock_spark.sink.ledger import Ledger

__all__ = ["Written", "commit_batch", "open_one_off"]


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task tells the driver. `tally`: of its partition. `ledger`: the stream; "" for segments."""

    identity: Identity
    tally: Tally
    ledger: str


def open_one_off(client: StreamClient, ledger: str, patience: Callable[[], Patience]) -> None:
    """Make the ledger of a one-off job, before its tasks run."""
    made = Ledger(client, ledger, "", patience)
    made.open()
    made.enter([Opened(query="")])


def commit_batch(client: StreamClient, messages: Sequence[Written], patience: Callable[[], Patience]) -> None:
    """Enter into the ledger that a batch is committed, and let go of what is before. Doing so again does no harm.

    Raises RowsDiffer where an earlier attempt at this batch had other partitions: what they stored is not known to be
    what these stored. Raises SinkFailed where a later batch was committed."""
    tallies = {message.identity.partition: message.tally for message in messages if message.tally.rows}
    if not tallies or not messages[0].ledger:
        return
    identity, name = messages[0].identity, messages[0].ledger
    ledger = Ledger(client, name, identity.query, patience)
    ledger.open()
    ledger.check(identity.batch)
    if ledger.committed == identity.batch:
        if dict(ledger.tallies) != tallies:
            raise RowsDiffer(f"{name}: batch {identity.batch} was committed with other rows or partitions")
        return
    others = sorted(part for batch, part in ledger.touched if batch == identity.batch and part not in tallies)
    if others:
        raise RowsDiffer(
            f"{name}: batch {identity.batch} has {len(tallies)} partitions with rows; an earlier attempt at it also "
            f"had {', '.join(map(str, others[:10]))}, so that rows may be doubled"
        )
    ledger.trim(ledger.enter(committed(identity.query, identity.batch, tallies)))
