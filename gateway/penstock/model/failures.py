"""The errors that all protocols share. A failure is a value; each codec spells it in its own protocol's words.

The codes are those of the S2 API (fact sheet, section 6) and those that other protocols need beside them. The table
below records for each code whether a retry may help and whether a side effect may have happened: clients with a
no-side-effects retry policy rely on the difference, so a code is chosen by what is *known*.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from msgspec import Struct, field

__all__ = [
    "Failure",
    "FailureCode",
    "LocalProtocolError",
    "OperationFailed",
    "RemoteProtocolError",
    "fail",
    "json_fault",
    "printable",
]

MAX_SHOWN: Final = 64


class FailureCode(Enum):
    """The kind of a failure. The value is the code's spelling in the S2 API, if it has one."""

    BAD_FRAME = "bad_frame"
    BAD_HEADER = "bad_header"
    BAD_JSON = "bad_json"
    BAD_PATH = "bad_path"
    BAD_PROTO = "bad_proto"
    BAD_QUERY = "bad_query"
    ENCRYPTION_KEY = "encryption_key"  # a stream's key is missing or malformed
    DECRYPTION_FAILED = "decryption_failed"  # a record was encrypted with another key than the reader's
    BAD_FORMAT = "bad_format"  # malformed command, option or value
    LIMIT_EXCEEDED = "limit_exceeded"  # well formed, larger than configured
    AUTHN = "authn"
    PERMISSION_DENIED = "permission_denied"
    QUOTA_EXHAUSTED = "quota_exhausted"
    ACCESS_TOKEN_NOT_FOUND = "access_token_not_found"
    BASIN_NOT_FOUND = "basin_not_found"
    STREAM_NOT_FOUND = "stream_not_found"
    REQUEST_TIMEOUT = "request_timeout"
    TRANSACTION_CONFLICT = "transaction_conflict"
    BASIN_DELETION_PENDING = "basin_deletion_pending"
    STREAM_DELETION_PENDING = "stream_deletion_pending"
    RESOURCE_ALREADY_EXISTS = "resource_already_exists"
    SEQ_NUM_MISMATCH = "seq_num_mismatch"  # details: {"seq_num_mismatch": next}
    FENCING_TOKEN_MISMATCH = "fencing_token_mismatch"  # details: {"fencing_token_mismatch": current}
    NON_MONOTONIC_TIMESTAMP = "non_monotonic_timestamp"  # a given time lies before the last one
    RANGE_NOT_SATISFIABLE = "range_not_satisfiable"  # details: {"tail": {...}}
    INVALID = "invalid"
    STREAM_SEALED = "stream_sealed"  # nothing is ever appended to it again
    OFFSET_MISMATCH = "offset_mismatch"  # details: {"offset": the end of the stream in bytes}
    OFFSET_TRUNCATED = "offset_truncated"  # details: {"offset": the first byte that is kept}
    STALE_WRITER_POSITION = "stale_writer_position"  # details: {"position": the writer's last}
    TABLE_KEY_VERSION = "table_key_version"  # details: {"key": bytes}: it has another version than was expected
    TABLE_KEY_NOT_FOUND = "table_key_not_found"  # details: {"key": bytes}
    TABLE_NOT_EMPTY = "table_not_empty"
    NOT_REPRESENTABLE = "not_representable"  # a record that this protocol cannot carry
    RATE_LIMITED = "rate_limited"
    CLIENT_HANGUP = "client_hangup"
    OTHER = "other"
    STORAGE = "storage"
    DAMAGED = "damaged"  # stored records differ from what was written: a retry does not help, other records can be read
    NOT_IMPLEMENTED = "not_implemented"
    HOT_SERVER = "hot_server"
    SERVER_DRAINING = "server_draining"
    UNAVAILABLE = "unavailable"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    UPSTREAM_FAULT = "upstream_fault"  # a server behind the gateway breaks its protocol; what it did is unknown


class _Nature(NamedTuple):
    retryable: bool
    side_effect_possible: bool


_FINAL = _Nature(retryable=False, side_effect_possible=False)
_NATURES: dict[FailureCode, _Nature] = {
    FailureCode.REQUEST_TIMEOUT: _Nature(True, True),
    FailureCode.TRANSACTION_CONFLICT: _Nature(True, False),
    FailureCode.RATE_LIMITED: _Nature(True, False),
    FailureCode.CLIENT_HANGUP: _Nature(False, True),
    FailureCode.OTHER: _Nature(True, True),
    FailureCode.STORAGE: _Nature(True, True),
    FailureCode.HOT_SERVER: _Nature(True, False),
    FailureCode.SERVER_DRAINING: _Nature(True, False),
    FailureCode.UNAVAILABLE: _Nature(True, True),
    FailureCode.UPSTREAM_TIMEOUT: _Nature(True, True),
    FailureCode.UPSTREAM_FAULT: _Nature(True, True),
}


class Failure(Struct, frozen=True):
    """A failed operation as a value: code, message for people, details that a protocol carries beside them."""

    code: FailureCode
    message: str
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def retryable(self) -> bool:
        """True if the same request may succeed later."""
        return _NATURES.get(self.code, _FINAL).retryable

    @property
    def side_effect_possible(self) -> bool:
        """True if the operation may have been executed nevertheless."""
        return _NATURES.get(self.code, _FINAL).side_effect_possible

    def __str__(self) -> str:
        return f"{self.code.value}: {self.message}"


class OperationFailed(Exception):
    """An operation could not be executed; `failure` has the reason. Its connection can still be used."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class RemoteProtocolError(Exception):
    """The peer broke the protocol. Everything it sent before was delivered; nothing it sends after will be read."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class LocalProtocolError(Exception):
    """We asked a codec for something that the protocol does not allow now: a bug on our side."""


def fail(code: FailureCode, message: str, **details: object) -> OperationFailed:
    """Shorthand: `raise fail(FailureCode.INVALID, "...")`."""
    return OperationFailed(Failure(code, message, details))


def json_fault(error: Exception) -> str:
    """Return what is wrong with JSON that a decoder refused, in words. `error`: a RecursionError or the decoder's."""
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def printable(data: bytes) -> str:
    """Return the peer's bytes as ASCII for a message: escaped like a Python literal, at most 64 bytes of them."""
    shown = repr(data[:MAX_SHOWN])[2:-1]
    return shown if len(data) <= MAX_SHOWN else f"{shown}..."
