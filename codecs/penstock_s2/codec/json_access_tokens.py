"""Access tokens in the S2 API's JSON: requests for one, and the answers (S2 fact sheet, 1.3).

Requests raise OperationFailed(BAD_JSON) for JSON of another shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.model.access_tokens import AccessTokenInfo, Scope, utc_time, validate_token_id
from penstock.model.failures import FailureCode, fail
from penstock_s2.codec.json_values import decode_request

__all__ = ["decode_issue", "encode_issued", "encode_page"]

_encode: Final = msgspec.json.Encoder().encode


class _Issue(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    scope: Scope
    expires_at: str | None = None
    auto_prefix_streams: bool | None = None


class _Page(msgspec.Struct):
    access_tokens: list[AccessTokenInfo]
    has_more: bool


_issue: Final = msgspec.json.Decoder(_Issue)


def decode_issue(body: bytes) -> AccessTokenInfo:
    """Decode the body of a request for a token. Raises BAD_JSON, and INVALID for a token without permissions."""
    issue = decode_request(_issue, body)
    info = AccessTokenInfo(
        id=validate_token_id(issue.id, FailureCode.BAD_JSON),
        expires_at=_utc_time(issue.expires_at),
        auto_prefix_streams=bool(issue.auto_prefix_streams),
        scope=issue.scope,
    )
    streams = info.scope.streams
    if info.auto_prefix_streams and (streams is None or not streams.prefix):
        raise fail(FailureCode.INVALID, "Auto prefixing is only allowed for streams with prefix matching")
    if info.scope.permits_nothing:
        raise fail(FailureCode.INVALID, "Access token permissions cannot be empty")
    return info


def _utc_time(text: str | None) -> str | None:
    try:
        return None if text is None else utc_time(text)
    except ValueError as error:
        raise fail(FailureCode.BAD_JSON, f"expires_at: {error}") from None


def encode_issued(token: str) -> bytes:
    """Return the answer with a new token's secret, which is shown only once."""
    return _encode({"access_token": token})


def encode_page(tokens: Sequence[AccessTokenInfo], has_more: bool) -> bytes:
    """Return the answer to a listing."""
    return _encode(_Page(list(tokens), has_more))
