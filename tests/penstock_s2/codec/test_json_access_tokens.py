"""Requests for access tokens as S2's libraries spell them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.model.access_tokens import (
    AccessTokenInfo,
    Op,
    OpGroups,
    ReadWrite,
    ResourceSet,
    Scope,
    decode_info,
    encode_info,
)
from penstock.model.failures import FailureCode, OperationFailed
from penstock_s2.codec.json_access_tokens import decode_issue

NULLS = dict.fromkeys(("basins", "streams", "access_tokens", "op_groups", "ops", "groups", "transactional_ids"))


def issue(scope: dict[str, Any], **more: Any) -> AccessTokenInfo:
    return decode_issue(json.dumps({"id": "x", "scope": scope, **more}).encode())


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({**NULLS, "op_groups": {"stream": {"read": True, "write": None}}}, {"stream": ReadWrite(read=True)}),
        (
            {**NULLS, "op_groups": {"account": None, "basin": {"read": None, "write": True}, "stream": None}},
            {"basin": ReadWrite(write=True)},
        ),
        (
            {**NULLS, "ops": None, "op_groups": {"account": {"read": True}, "basin": {"read": None, "write": None}}},
            {"account": ReadWrite(read=True), "basin": ReadWrite()},
        ),
    ],
)
def test_null_is_what_is_not_given(said: dict[str, Any], meant: dict[str, ReadWrite]) -> None:
    info = issue(said, expires_at=None, auto_prefix_streams=None)
    assert info == AccessTokenInfo(id="x", scope=Scope(op_groups=OpGroups(**meant)))
    assert b"null" not in json.dumps(json.loads(encode_info(info))["scope"]).encode()
    assert decode_info(encode_info(info)) == info


def test_null_beside_names_and_operations() -> None:
    info = issue({**NULLS, "ops": ["read"], "streams": {"exact": None, "prefix": "a/"}, "op_groups": None})
    assert info.scope == Scope(streams=ResourceSet(prefix="a/"), ops=(Op.READ,))


@pytest.mark.parametrize(
    "scope",
    [
        {},
        NULLS,
        {"ops": []},
        {"op_groups": {}},
        {"op_groups": {"account": None, "basin": {}, "stream": {"read": False, "write": None}}, "ops": None},
        {"streams": {"prefix": ""}, "basins": {"prefix": ""}},
    ],
)
def test_a_token_that_permits_nothing_is_refused(scope: dict[str, Any]) -> None:
    with pytest.raises(OperationFailed) as refused:
        issue(scope)
    failure = refused.value.failure
    assert (failure.code, failure.message) == (FailureCode.INVALID, "Access token permissions cannot be empty")


@pytest.mark.parametrize("streams", [None, {"exact": "a"}, {"prefix": ""}])
def test_names_are_prefixed_with_a_prefix(streams: dict[str, str] | None) -> None:
    with pytest.raises(OperationFailed) as refused:
        issue({"streams": streams, "ops": ["read"]}, auto_prefix_streams=True)
    failure = refused.value.failure
    assert failure.code is FailureCode.INVALID
    assert failure.message == "Auto prefixing is only allowed for streams with prefix matching"


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"])
def test_an_expiry_before_year_1_or_after_9999_in_utc_is_refused(time: str) -> None:
    with pytest.raises(OperationFailed, match=r"expires_at.* year") as caught:
        issue({"ops": ["append"]}, expires_at=time)
    assert caught.value.failure.code is FailureCode.BAD_JSON


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z"),
        ("2030-01-01t01:30:00.123456789+01:30", "2030-01-01T00:00:00.123456789Z"),
        ("0001-01-01T00:00:00.500z", "0001-01-01T00:00:00.5Z"),
        ("9999-12-31T23:59:59.999999999-00:00", "9999-12-31T23:59:59.999999999Z"),
    ],
)
def test_an_expiry_keeps_its_nanoseconds(said: str, kept: str) -> None:
    info = issue({"ops": ["append"]}, expires_at=said)
    assert info.expires_at == kept
    assert decode_info(encode_info(info)) == info


def test_an_expiry_as_a_number() -> None:
    info = issue({"ops": ["append"]}, expires_at="1970-01-01T00:00:01.000000007Z")
    assert (info.expires_ns, info.expires_ms) == (1_000_000_007, 1000)
    assert issue({"ops": ["append"]}).expires_ns is None


@pytest.mark.parametrize(
    "time",
    [
        "2030-01-01",
        "2030-01-01T00:00:00",
        "2030-01-01 00:00:00Z",
        "2030-01-01T00:00Z",
        "2030-01-01T00:00:00.Z",
        "2030-01-01T00:00:00.1234567891Z",
        "2030-02-29T00:00:00Z",
        "2030-01-01T24:00:00Z",
        "2030-01-01T00:00:60Z",
        "2030-01-01T00:00:00+24:00",
        "٢٠٣٠-01-01T00:00:00Z",
        "",
    ],
)
def test_what_is_no_time_is_refused(time: str) -> None:
    with pytest.raises(OperationFailed, match="expires_at: ") as caught:
        issue({"ops": ["append"]}, expires_at=time)
    assert caught.value.failure.code is FailureCode.BAD_JSON
