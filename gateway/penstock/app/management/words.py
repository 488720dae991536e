"""Building blocks of the management endpoints: answers, refusals, and the JSON bodies of requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
import trio

from penstock.model.failures import FailureCode, fail, json_fault
from penstock.model.limits import KIB
from penstock.net.http.exchange import Exchange
from penstock.recorder.captures.choosing import CaptureFilter, parse_filter

__all__ = [
    "Answer",
    "EmptyBody",
    "Endpoint",
    "Endpoints",
    "RequestRefused",
    "filter_of",
    "read_json",
    "read_words",
    "whole_number",
]

Answer = tuple[int, Any]
"""An HTTP status and a JSON value."""
Endpoint = Callable[[Exchange, str], Awaitable[Answer | None]]
"""Answers an exchange; returns None if it has responded itself. The text is the name in the path, "" if there is
none."""
Endpoints = Mapping[tuple[str, ...], Mapping[str, Endpoint]]
"""Endpoints by path and method. An empty second part of a path stands for a name."""

MOST_BODY: Final = 16 * KIB
_MOST_FILTER: Final = 500
W = TypeVar("W")


class EmptyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request without parameters: `{}`, or none at all."""


class RequestRefused(Exception):
    """A refused request, for a reason that has no failure code."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.answer = {"code": code, "message": message}


async def read_words(exchange: Exchange, wanted: type[W], seconds: float) -> W:
    """Return the parsed JSON body of a request; an empty body gives the defaults. Raises as `read_json`, and
    OperationFailed(BAD_JSON) if it is not as wanted."""
    held = await read_json(exchange, seconds)
    try:
        return msgspec.json.decode(held or b"{}", type=wanted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise fail(FailureCode.BAD_JSON, json_fault(error)) from None


async def read_json(exchange: Exchange, seconds: float, most: int = MOST_BODY) -> bytes:
    """Return the body of a request, of at most `most` bytes of JSON, which is not checked.

    A page of another origin cannot send this content type without a preflight request. Raises OperationFailed:
    BAD_HEADER, BAD_JSON for a larger body, and REQUEST_TIMEOUT after `seconds`.
    """
    essence = (exchange.request.header("content-type") or "").split(";")[0].strip().lower()
    if essence != "application/json":
        raise fail(FailureCode.BAD_HEADER, "content-type: expected application/json")
    held = b""
    with trio.move_on_after(seconds) as patience:
        while piece := await exchange.receive():
            held += piece
            if len(held) > most:
                raise fail(FailureCode.BAD_JSON, f"the body has more than {most} bytes")
    if patience.cancelled_caught:
        raise fail(FailureCode.REQUEST_TIMEOUT, f"the body took more than {seconds:g} seconds")
    return held


def filter_of(text: str) -> CaptureFilter:
    """Parse a filter expression of a request (`penstock.recorder.captures.choosing`). Raises BAD_QUERY."""
    if len(text) > _MOST_FILTER:
        raise fail(FailureCode.BAD_QUERY, f"filter: more than {_MOST_FILTER} characters")
    try:
        return parse_filter(text)
    except ValueError as error:
        raise fail(FailureCode.BAD_QUERY, f"filter: {error}") from None


def whole_number(name: str, text: str, most: int) -> int:
    """Return a parameter as an integer from 1 to `most`. Raises BAD_QUERY."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= most:
        raise fail(FailureCode.BAD_QUERY, f"{name}: expected 1 to {most}, got {text!r:.80}")
    return int(text)
