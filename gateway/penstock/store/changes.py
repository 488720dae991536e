"""Common changes: a new head of a basin or stream, and several changes as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from penstock.model.failures import Failure
from penstock.store.committer import Change, Statement, Ticket
from penstock.store.heads import StoredBasin, StoredStream, StreamHead
from penstock.store.registry import Registry
from penstock.store.u64 import to_sql

__all__ = ["CombinedChange", "HeadChange", "head_statement"]

T = TypeVar("T")

_UPDATE_HEAD: Final = """
UPDATE streams SET fencing_token = ?, trim_point = ?, truncated_at = ?, sealed = ?, modified_at = ?, key_check = ?,
  emptied_at = coalesce(?, emptied_at)
WHERE id = ?
"""


def head_statement(stream: StoredStream, head: StreamHead, now: int) -> Statement:
    """Return the statement that stores what rows cannot tell of `head`, and the time if it emptied the stream.

    The configuration is not stored.
    """
    emptied_at = now if head.trim_point == head.next_seq else None
    return _UPDATE_HEAD, (
        head.fencing_token,
        to_sql(head.trim_point),
        head.truncated_at,
        head.sealed,
        head.last_modified,
        head.key_check,
        emptied_at,
        stream.id,
    )


class HeadChange(Change, Generic[T]):
    """A new head of a basin or a stream. When it is durable, the ticket gets `result` and `then` is called."""

    __slots__ = ("_entity", "_head", "_registry", "_result", "_then", "ticket")

    def __init__(
        self,
        registry: Registry,
        entity: StoredBasin | StoredStream,
        statements: Sequence[Statement],
        result: T,
        then: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(statements)
        self._registry = registry
        self._entity = entity
        self._head = entity.head
        self._result = result
        self._then = then
        self.ticket: Ticket[T] = Ticket()

    def commit(self) -> None:
        self._entity.durable = self._head
        self._registry.settle(self._entity)

    def publish(self) -> None:
        self.ticket.resolve(self._result)
        if isinstance(self._entity, StoredStream):
            self._entity.followers.unpark_all()  # readers in other processes must learn of a trim
        if self._then is not None:
            self._then()

    def undo(self) -> None:
        self._entity.head = self._entity.durable
        self._registry.settle(self._entity)

    def reject(self, failure: Failure) -> None:
        self.ticket.fail(failure)


class CombinedChange(Change):
    """Several changes that become durable together or not at all: a group never ends inside of one change."""

    __slots__ = ("_changes",)

    def __init__(self, changes: Sequence[Change]) -> None:
        statements = [statement for change in changes for statement in change.statements]
        super().__init__(statements, sum(change.size for change in changes))
        self._changes = changes

    def commit(self) -> None:
        for change in self._changes:
            change.commit()

    def publish(self) -> None:
        for change in self._changes:
            change.publish()

    def undo(self) -> None:
        for change in reversed(self._changes):
            change.undo()

    def reject(self, failure: Failure) -> None:
        for change in self._changes:
            change.reject(failure)
