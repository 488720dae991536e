"""What is counted of the current task's client and its connection, where no back is concerned."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from penstock.metrics.families import CLIENT_ERRORS, HTTP_RESPONSES, PAUSED_SECONDS, RECORDS_DROPPED
from penstock.metrics.meters import current_client
from penstock.metrics.standing import standing
from penstock.recorder.tap import CONNECTION
from penstock_codecs.failures import FailureCode
from penstock_codecs.features import Feature

__all__ = ["Pauses", "count_dropped", "count_response", "count_told"]


def count_told(code: FailureCode | str) -> None:
    """The client is told of a failure. `code`: also one of its protocol's own."""
    CLIENT_ERRORS.child(*current_client(), code if isinstance(code, str) else code.value).value += 1


def count_response(status: int) -> None:
    """An answer by HTTP was begun."""
    tap = CONNECTION.get()
    HTTP_RESPONSES.child("" if tap is None else tap.conversation.name, str(status)).value += 1


def count_dropped(dropped: Mapping[Feature, int]) -> None:
    """So much was left out of records that the client was given."""
    for feature, count in dropped.items():
        RECORDS_DROPPED.child(*current_client(), feature.name.lower()).value += count


class Pauses:
    """For how long the current task's connection stands still; to be made once for each."""

    __slots__ = ("_reading", "_writing")

    def __init__(self) -> None:
        tap = CONNECTION.get()
        labels = ("", "") if tap is None else (tap.conversation.name, tap.conversation.protocol)
        self._reading = standing(PAUSED_SECONDS, *labels, "in")
        self._writing = standing(PAUSED_SECONDS, *labels, "out")

    def reading(self) -> AbstractContextManager[None]:
        """Nothing is read while the block waits."""
        return self._reading.still()

    def writing(self) -> AbstractContextManager[None]:
        """The client takes nothing, or not enough, while the block waits."""
        return self._writing.still()
