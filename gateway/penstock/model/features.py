"""Features of records that protocols of plain bodies cannot carry."""

from __future__ import annotations

from enum import Enum

from penstock.model.records import EVENT_TIME, Headers, is_command

__all__ = ["Feature", "feature_of"]


class Feature(Enum):
    """A feature of a record beyond a body of at least one byte; the value states it in an error message."""

    COMMAND = "is a command"
    HEADERS = "has headers"
    EMPTY_BODY = "has an empty body"


def feature_of(headers: Headers, body: bytes) -> Feature | None:
    """Return the feature that keeps this record from being carried as it is, if any. An event time is none: protocols
    without headers leave it out."""
    if headers and (len(headers) > 1 or headers[0].name != EVENT_TIME):
        return Feature.COMMAND if is_command(headers) else Feature.HEADERS
    return None if body else Feature.EMPTY_BODY
