"""Updates of stream attributes (segment fact sheet, 1.3)."""

from __future__ import annotations

from penstock.model.byte_operations import NO_ATTRIBUTE, AttributeUpdate, UpdateType
from penstock.model.failures import FailureCode, fail

__all__ = ["updated"]


def updated(update: AttributeUpdate, before: int) -> int:
    """Return an attribute's value after an update; `before` is NO_ATTRIBUTE if it did not exist.

    Raises OperationFailed(TRANSACTION_CONFLICT) if the update's condition does not hold.
    """
    value = update.value
    holds = {
        UpdateType.NONE: before == NO_ATTRIBUTE,
        UpdateType.REPLACE: True,
        UpdateType.REPLACE_IF_GREATER: value > before,  # NO_ATTRIBUTE is less than all other values
        UpdateType.ACCUMULATE: True,
        UpdateType.REPLACE_IF_EQUALS: before == update.expected,
    }
    if not holds[update.kind]:
        raise fail(
            FailureCode.TRANSACTION_CONFLICT,
            f"attribute {update.attribute.hex()} is {'absent' if before == NO_ATTRIBUTE else before}",
        )
    if update.kind is UpdateType.ACCUMULATE and before != NO_ATTRIBUTE:
        value += before
    return value
