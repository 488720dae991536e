"""Content types of streams, and the JSON messages of those that have them (protocol, section 7).

A stream keeps the content type of its creation. Types are compared without parameters and regardless of case. JSON
streams (`application/json`, or a type with the suffix `+json`) consist of messages, one record each; all others of
bytes, in which an append is one record, and readers see no boundaries.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from penstock_codecs.failures import FailureCode, fail

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

DEFAULT_TYPE: Final = "application/octet-stream"
"""The content type of a stream that was created without one."""
_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_TYPE: Final = re.compile(rf"({_TOKEN}/{_TOKEN})[ \t]*(;[\t -~]*)?")
_BLANK: Final = b" \t\r\n"
_DECODE: Final = msgspec.json.Decoder(msgspec.Raw).decode
_DECODE_ALL: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def essence(content_type: str) -> str:
    """Return the type and subtype in lower case (RFC 9110, 8.3.1). Raises BAD_HEADER if it is not a content type."""
    if (found := _TYPE.fullmatch(content_type.strip())) is None:
        raise fail(FailureCode.BAD_HEADER, f"content-type: {content_type!r:.80} is not a media type")
    return found[1].lower()


def is_json(content_type: str) -> bool:
    """Return whether a stream with this content type consists of JSON messages."""
    kind = essence(content_type)
    return kind == "application/json" or kind.endswith("+json")


def is_text(content_type: str) -> bool:
    """Return whether events carry the stream as it is; all others travel in base64."""
    return is_json(content_type) or essence(content_type).startswith("text/")


def split_messages(body: bytes) -> list[bytes]:
    """Return the messages of a request's body, as they are spelled in it: the elements of an array, else one.

    Raises BAD_JSON if it is not JSON.
    """
    text = body.strip(_BLANK)
    try:
        text.decode()  # the decoder does not look into strings
        return [bytes(one) for one in _DECODE_ALL(text)] if text[:1] == b"[" else [bytes(_DECODE(text))]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise fail(FailureCode.BAD_JSON, f"the body is not JSON: {error}") from None
    except RecursionError:
        raise fail(FailureCode.BAD_JSON, "the body is nested too deeply") from None


def check_json(body: bytes) -> None:
    """Raise ValueError, with the reason, unless the bytes are one JSON value."""
    try:
        body.decode()
        _DECODE(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
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
