"""Media types of the S2 API: the encoding of a body, and the one that a client accepts (S2 fact sheet, 1.2)."""

from __future__ import annotations

from enum import Enum, auto
from functools import lru_cache
from typing import Final

__all__ = ["Media", "media_type"]


class Media(Enum):
    """Encoding of a body."""

    JSON = auto()
    PROTOBUF = auto()
    S2S = auto()
    EVENT_STREAM = auto()
    OTHER = auto()


_MEDIA: Final = {
    "application/json": Media.JSON,
    "application/protobuf": Media.PROTOBUF,
    "application/x-protobuf": Media.PROTOBUF,
    "s2s/proto": Media.S2S,
    "text/event-stream": Media.EVENT_STREAM,
}


@lru_cache(64)
def media_type(value: str | None) -> Media:
    """Return the media type in a content-type or accept header; only the first of several counts."""
    essence = (value or "").split(",")[0].split(";")[0].strip().lower()
    if essence.startswith("application/") and essence.endswith("+json"):
        return Media.JSON
    return _MEDIA.get(essence, Media.OTHER)
