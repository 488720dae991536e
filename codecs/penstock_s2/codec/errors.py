"""Failures that S2 servers report over HTTP (S2 fact sheet, section 6). `http_failures` spells them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from penstock.model.failures import Failure, FailureCode
from penstock.model.records import U64_MAX
from penstock.wire.http_failures import SPELLING, STATUS

__all__ = ["failure_from_body", "failure_from_http"]

_C = FailureCode

# 412 and 416 never carry a code in S2; a code that is present nevertheless (a failure without details) is read.
_BY_SPELLING: Final[dict[str, FailureCode]] = {SPELLING[code]: code for code in STATUS if STATUS[code] != 422} | {
    "invalid": _C.INVALID,
    "bad_header": _C.BAD_HEADER,
}

_BY_STATUS: Final[dict[int, FailureCode]] = {
    401: _C.AUTHN,
    403: _C.PERMISSION_DENIED,
    408: _C.REQUEST_TIMEOUT,
    416: _C.RANGE_NOT_SATISFIABLE,
    429: _C.RATE_LIMITED,
    499: _C.CLIENT_HANGUP,
    501: _C.NOT_IMPLEMENTED,
    # A proxy's 502 proves nothing about side effects, so it is not read as `hot_server`.
    502: _C.UNAVAILABLE,
    503: _C.UNAVAILABLE,
    504: _C.UPSTREAM_TIMEOUT,
}
"""Code by status, if the body tells nothing: only what the status alone proves."""

_EXCERPT_BYTES: Final = 200
"""Bytes of an unknown body that are quoted in the message."""


def failure_from_http(status: int, body: bytes) -> Failure:
    """Return the failure that an S2 server's error answer or terminal frame reports.

    Never raises: a body that is not S2's (a proxy's page, an empty 404) gives the code that the status proves, with an
    excerpt of the body as message. `details["status"]` is the status if the code was derived from it.
    """
    understood = _understand(body)
    if understood is not None:
        return understood
    fallback = _C.INVALID if 400 <= status < 500 else _C.OTHER
    code = _BY_STATUS.get(status, fallback)
    return Failure(code, _guess_message(f"HTTP status {status}", body), {"status": status})


def failure_from_body(body: bytes) -> Failure:
    """Return the failure in the data of an SSE `error` event, which has no status; OTHER if unknown."""
    return _understand(body) or Failure(_C.OTHER, _guess_message("error", body))


def _understand(body: bytes) -> Failure | None:
    try:
        content = msgspec.json.decode(body)
    except (ValueError, RecursionError):  # msgspec's errors and UnicodeDecodeError are ValueErrors
        return None
    if not isinstance(content, dict):
        return None
    for key, read in _READ_SHAPE.items():
        if key in content:
            return read(content[key])
    message = content.get("message")
    code = content.get("code")
    known = _BY_SPELLING.get(code) if isinstance(code, str) else None
    return None if known is None else Failure(known, message if isinstance(message, str) else known.value)


def _read_seq_num(value: object) -> Failure | None:
    if not _is_u64(value):
        return None
    return Failure(_C.SEQ_NUM_MISMATCH, f"sequence number mismatch: the next is {value}", {"seq_num_mismatch": value})


def _read_fencing_token(value: object) -> Failure | None:
    if not isinstance(value, str):
        return None
    message = f"fencing token mismatch: the current one is {value!r}"
    return Failure(_C.FENCING_TOKEN_MISMATCH, message, {"fencing_token_mismatch": value})


def _read_tail(value: object) -> Failure | None:
    if not isinstance(value, Mapping):
        return None
    seq_num, timestamp = value.get("seq_num"), value.get("timestamp")
    if not (_is_u64(seq_num) and _is_u64(timestamp)):
        return None
    tail = {"seq_num": seq_num, "timestamp": timestamp}
    return Failure(_C.RANGE_NOT_SATISFIABLE, f"nothing to read: the tail is {seq_num}@{timestamp}", {"tail": tail})


_READ_SHAPE: Final[dict[str, Callable[[object], Failure | None]]] = {
    "seq_num_mismatch": _read_seq_num,
    "fencing_token_mismatch": _read_fencing_token,
    "tail": _read_tail,
}


def _is_u64(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= U64_MAX


def _guess_message(what: str, body: bytes) -> str:
    excerpt = body[:_EXCERPT_BYTES].decode("utf-8", "replace").strip()
    return f"{what}: {excerpt}" if excerpt else what
