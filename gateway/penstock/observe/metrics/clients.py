"""Counters of the current task's client and its connection, for events without a back."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from penstock.model.failures import FailureCode
from penstock.model.features import Feature
from penstock.observe.metrics.families import CLIENT_ERRORS, HTTP_RESPONSES, PAUSED_SECONDS, RECORDS_DROPPED
from penstock.observe.metrics.meters import current_client
from penstock.observe.metrics.running_timers import running_timer
from penstock.observe.taps.tap import CONNECTION

__all__ = ["Pauses", "count_dropped", "count_error", "count_response"]


def count_error(code: FailureCode | str) -> None:
    """Count a failure that is reported to the client. `code` may also be one of its protocol's own."""
    CLIENT_ERRORS.child(*current_client(), code if isinstance(code, str) else code.value).value += 1


def count_response(status: int) -> None:
    """Count an HTTP response that was begun."""
    tap = CONNECTION.get()
    HTTP_RESPONSES.child("" if tap is None else tap.conversation.name, str(status)).value += 1


def count_dropped(dropped: Mapping[Feature, int]) -> None:
    """Count features that were left out of records for the client."""
    for feature, count in dropped.items():
        RECORDS_DROPPED.child(*current_client(), feature.name.lower()).value += count


class Pauses:
    """Timers for the waits of the current task's connection; to be made once for each connection."""

    __slots__ = ("_reading", "_writing")

    def __init__(self) -> None:
        tap = CONNECTION.get()
        labels = ("", "") if tap is None else (tap.conversation.name, tap.conversation.protocol)
        self._reading = running_timer(PAUSED_SECONDS, *labels, "in")
        self._writing = running_timer(PAUSED_SECONDS, *labels, "out")

    def reading(self) -> AbstractContextManager[None]:
        """Count the time of the block as time without reading."""
        return self._reading.still()

    def writing(self) -> AbstractContextManager[None]:
        """Count the time of the block as time waiting for the client to take data."""
        return self._writing.still()
