"""Access tokens as they are stored."""

from __future__ import annotations

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
    validate_token_id,
)
from penstock.model.failures import FailureCode, OperationFailed

STORED = (
    b'{"id":"x","expires_at":"2030-01-01T00:00:00Z","auto_prefix_streams":true,"scope":{"streams":{"prefix":"a/"},'
    b'"op_groups":{"stream":{"read":true,"write":false}},"ops":["append","list-basins"]}}'
)


def test_the_stored_form_never_changes() -> None:
    scope = Scope(
        streams=ResourceSet(prefix="a/"),
        op_groups=OpGroups(stream=ReadWrite(read=True)),
        ops=(Op.APPEND, Op.LIST_BASINS),
    )
    info = AccessTokenInfo(id="x", expires_at="2030-01-01T00:00:00Z", auto_prefix_streams=True, scope=scope)
    assert encode_info(info) == STORED
    assert decode_info(STORED) == info


@pytest.mark.parametrize("token_id", ["x", "é" * 48])
def test_an_id_of_1_to_96_bytes_is_valid(token_id: str) -> None:
    assert validate_token_id(token_id, FailureCode.INVALID) == token_id


@pytest.mark.parametrize("token_id", ["", "x" * 97, "é" * 48 + "x", "a\0", "\ud800"])
def test_other_ids_are_refused(token_id: str) -> None:
    with pytest.raises(OperationFailed, match="1 to 96 bytes of UTF-8 without NUL") as caught:
        validate_token_id(token_id, FailureCode.BAD_PATH)
    assert caught.value.failure.code is FailureCode.BAD_PATH
