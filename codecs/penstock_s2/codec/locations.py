"""JSON of locations for servers (S2 fact sheet, 1.3). A server is one location, which is always the default."""

from __future__ import annotations

import re
from typing import Final

import msgspec
import orjson

from penstock.model.failures import FailureCode, fail
from penstock.model.streams import DEFAULT_STREAM_CONFIG
from penstock_s2.codec.json_values import bad_json, decode_request

__all__ = [
    "DEFAULT_LOCATION",
    "LOCATION_PATTERN",
    "check_location",
    "decode_location",
    "encode_location",
    "encode_locations",
]

DEFAULT_LOCATION: Final = "penstock"
LOCATION_PATTERN: Final = r"[A-Za-z0-9:.-]{1,64}"
"""A legal name of a location (1.4)."""
STORAGE_CLASSES: Final = ("express", "standard")
"""The classes that S2 documents; streams keep any other name as well."""

_decoder: Final = msgspec.json.Decoder(str)


def check_location(requested: str | None, location: str) -> None:
    """Raise OperationFailed if another location than the server's is asked for; null is its own.

    BAD_JSON if it is no name of a location, else INVALID.
    """
    if requested is not None and re.fullmatch(LOCATION_PATTERN, requested) is None:
        raise bad_json(f"location: {requested!r:.80} is not 1 to 64 letters, digits and :.-")
    if requested not in (None, location):
        raise fail(FailureCode.INVALID, f"unknown location {requested!r:.80}: the only one here is {location!r}")


def decode_location(body: bytes, location: str) -> None:
    """Check the body of PUT on the default location: a bare JSON string. Raises BAD_JSON, INVALID."""
    check_location(decode_request(_decoder, body), location)


def encode_location(location: str) -> bytes:
    """Encode the server's location."""
    return orjson.dumps(_spelled(location))


def encode_locations(location: str) -> bytes:
    """Encode the list of all locations."""
    return orjson.dumps([_spelled(location)])


def _spelled(location: str) -> dict[str, object]:
    return {
        "name": location,
        "is_private": True,
        "storage_classes": STORAGE_CLASSES,
        "default_storage_class": DEFAULT_STREAM_CONFIG.storage_class,
    }
