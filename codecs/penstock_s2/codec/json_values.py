"""Shared parts of the S2 API's JSON: decoding with errors that say what is wrong and where.

Choices where JSON leaves them open: a key twice in an object is refused; unknown keys are ignored; a byte order mark,
trailing bytes, NaN and lone surrogates are refused; integers have no fraction and no exponent and lie in 0..2**64-1;
nesting is bounded by the interpreter's stack guard, far beyond any shape here.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated, Final, TypeVar

import msgspec

from penstock.model.failures import Failure, FailureCode, OperationFailed, RemoteProtocolError, fail, json_fault
from penstock.model.records import U64_MAX, StreamPosition

__all__ = [
    "IN_BODY",
    "MAX_CHECKED_TOKENS",
    "U64",
    "PositionShape",
    "bad_json",
    "check_u64",
    "check_unique_keys",
    "decode_answer",
    "decode_json",
    "decode_request",
    "remote_error",
    "remote_position",
    "spell_position",
]

U64 = Annotated[int, msgspec.Meta(ge=0)]
"""An unsigned integer; msgspec has no bounds above 2**63-1, so `check_u64` checks the upper one."""

IN_BODY: Final = "Failed to parse the request body as JSON"
"""Beginning of the message of BAD_JSON; that of JSON elsewhere has another one."""

S = TypeVar("S")
MAX_CHECKED_TOKENS: Final = 32_768
"""Commas and opening brackets of a body, up to which its keys are compared: that takes 0.3 us for each of them. A batch
of 1000 records has some thousands."""


class PositionShape(msgspec.Struct, gc=False):
    """The shape of a StreamPosition."""

    seq_num: U64
    timestamp: U64


def spell_position(position: StreamPosition) -> bytes:
    """Encode a position as JSON."""
    return b'{"seq_num":%d,"timestamp":%d}' % position


def remote_position(position: PositionShape) -> StreamPosition:
    """Return a server's position. Raises RemoteProtocolError(BAD_JSON) if it does not fit into 64 bits."""
    if position.seq_num > U64_MAX or position.timestamp > U64_MAX:
        raise remote_error(FailureCode.BAD_JSON, "a position does not fit into 64 bits")
    return StreamPosition(position.seq_num, position.timestamp)


def decode_json(decoder: msgspec.json.Decoder[S], body: bytes) -> S:
    """Decode a request body; `check_unique_keys` is the caller's. Raises OperationFailed(BAD_JSON) that says what is
    wrong and where."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_json(json_fault(error)) from None


def decode_request(decoder: msgspec.json.Decoder[S], body: bytes) -> S:
    """Decode a request body whose keys are unique. Raises as `decode_json`."""
    decoded = decode_json(decoder, body)
    check_unique_keys(body)
    return decoded


def check_unique_keys(body: bytes) -> None:
    """Raise OperationFailed(BAD_JSON) for a key that an object of this JSON has twice: msgspec takes the last one.

    A body with more than MAX_CHECKED_TOKENS commas and opening brackets, also in its strings, is not checked.
    """
    if sum(map(body.count, (b",", b"{", b"["))) <= MAX_CHECKED_TOKENS:
        try:
            _unique_keys.decode(body.decode())
        except (ValueError, RecursionError) as error:
            raise bad_json(json_fault(error)) from None


def _check_pairs(pairs: list[tuple[str, object]]) -> None:
    if len(pairs) > 1 and len(dict(pairs)) < len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"duplicate field `{name[:100]}`")


_unique_keys: Final = json.JSONDecoder(object_pairs_hook=_check_pairs, parse_int=float, strict=False)


def decode_answer(decoder: msgspec.json.Decoder[S], body: bytes) -> S:
    """Decode a server's answer. Raises RemoteProtocolError(BAD_JSON) if it is not of the decoder's shape."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise remote_error(FailureCode.BAD_JSON, f"unexpected JSON from the server: {json_fault(error)}") from None


def check_u64(value: int | None, where: str) -> None:
    """Raise OperationFailed(BAD_JSON), naming the place `where`, if the number does not fit into 64 bits."""
    if value is not None and value > U64_MAX:
        raise bad_json(f"Expected `int` <= {U64_MAX} - at `$.{where}`")


def bad_json(reason: str) -> OperationFailed:
    """Return BAD_JSON: the request body is not JSON, or not of the right shape (S2 fact sheet, section 6)."""
    return fail(FailureCode.BAD_JSON, f"{IN_BODY}: {reason}")


def remote_error(code: FailureCode, message: str) -> RemoteProtocolError:
    """Return the error that a client raises about a server."""
    return RemoteProtocolError(Failure(code, message))
