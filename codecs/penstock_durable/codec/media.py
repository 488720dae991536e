"""Content types of streams, and the JSON messages of those that have them (protocol, section 7).

A stream keeps the content type of its creation. Types are compared without parameters and regardless of case. JSON
streams (`application/json`, or a type with the suffix `+json`) consist of messages, one record each; all others of
bytes, in which an append is one record, and readers see no boundaries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from penstock.model.failures import FailureCode, fail
from penstock.wire.media_types import DEFAULT_TYPE, essence

__all__ = [
    "DEFAULT_TYPE",
    "check_json",
    "check_message",
    "essence",
    "is_json",
    "is_text",
    "join_messages",
    "split_messages",
]

T = TypeVar("T")

_BLANK: Final = b" \t\r\n"
_BOM: Final = b"\xef\xbb\xbf"
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""An escape in a string; group 1: half of a surrogate pair without the other half."""
_DECODE: Final = msgspec.json.Decoder(msgspec.Raw).decode
_DECODE_ALL: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def is_json(content_type: str) -> bool:
    """Return whether a stream with this content type consists of JSON messages."""
    kind = essence(content_type)
    return kind == "application/json" or kind.endswith("+json")


def is_text(content_type: str) -> bool:
    """Return whether events carry the stream as it is; all others travel in base64."""
    return is_json(content_type) or essence(content_type).startswith("text/")


def split_messages(body: bytes) -> list[bytes]:
    """Return the messages of a request's body, as they are spelled in it: the elements of an array, else one.

    A byte order mark before them is dropped, as by the reference server. Raises BAD_JSON if it is not JSON.
    """
    text = body.removeprefix(_BOM).strip(_BLANK)
    try:
        if text[:1] != b"[":
            check_json(text)
            return [text]
        return _elements(text)
    except ValueError as error:
        raise fail(FailureCode.BAD_JSON, f"the body is not JSON: {error}") from None


def check_json(body: bytes) -> None:
    """Raise ValueError, with the reason, unless the bytes are one JSON value."""
    _decode(_DECODE, body)


def _elements(array: bytes) -> list[bytes]:
    """Return the elements of an array. Raises ValueError, with the reason, if it is none."""
    decoded, is_same = _decode(_DECODE_ALL, array)
    elements = [bytes(element) for element in decoded]
    if is_same:
        return elements
    at = 1
    for index, element in enumerate(elements):
        while array[at] in b", \t\r\n":
            at += 1
        elements[index] = array[at : at + len(element)]
        at += len(element)
    return elements


def _decode(decode: Callable[[bytes], T], text: bytes) -> tuple[T, bool]:
    """Decode JSON. The escape of half a surrogate pair, which RFC 8259 (8.2) permits, is replaced by that of U+FFFD,
    which is as long. Returns also whether none was replaced. Raises ValueError, with the reason."""
    try:
        text.decode()  # the decoder does not look into strings
        try:
            return decode(text), True
        except msgspec.DecodeError:
            replaced = _ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], text)
            return decode(replaced), replaced == text
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def check_message(body: bytes, seq_num: int) -> None:
    """Raise NOT_REPRESENTABLE if a record is no JSON message: a client of another protocol appended it."""
    try:
        check_json(body)
    except ValueError:
        raise fail(
            FailureCode.NOT_REPRESENTABLE,
            f"record {seq_num} is not JSON, so readers of this stream cannot have it",
            seq_num=seq_num,
        ) from None


def join_messages(messages: Sequence[bytes]) -> bytes:
    """Return messages as one array."""
    return b"[%b]" % b",".join(messages)
