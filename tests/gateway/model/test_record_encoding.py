"""The encoding of stored records. tests/penstock_s2/codec/test_protobuf.py holds it against S2's ReadBatch."""

from __future__ import annotations

import pytest

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.record_encoding import RECORDS, cut_records, decode_bodies, decode_records, encode_records
from penstock.model.records import Columns, Header

COLUMNS = Columns(range(1, 4), [1000] * 3, [b"hi", b"", b"x" * 200], {0: (Header(b"k", b"v"),)})
STORED = [
    "0a11" + "0801" + "10e807" + "1a060a016b120176" + "22026869",
    "0a05" + "0802" + "10e807",
    "0ad001" + "0803" + "10e807" + "22c801" + "78" * 200,
]


def test_stored_bytes_and_their_name_never_change() -> None:
    assert RECORDS == "s2.v1.ReadBatch.records"
    assert encode_records(COLUMNS).hex() == "".join(STORED)
    assert decode_records(bytes.fromhex("".join(STORED))) == COLUMNS
    assert decode_bodies(bytes.fromhex("".join(STORED))) == COLUMNS.bodies


@pytest.mark.parametrize(("most", "sizes"), [(1, [1, 1, 1]), (2, [2, 1]), (3, [3]), (9, [3])])
def test_a_payload_is_cut_between_records(most: int, sizes: list[int]) -> None:
    payloads = list(cut_records(encode_records(COLUMNS), most))
    assert [len(decode_bodies(payload)) for payload in payloads] == sizes
    assert b"".join(payloads) == encode_records(COLUMNS)


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (encode_records(COLUMNS)[:-1], "the records end within one"),
        (encode_records(COLUMNS) + b"\x0a", "the records end within one"),
        (encode_records(COLUMNS) + b"\x12\x00", "byte 237 begins no record"),
    ],
)
def test_a_damaged_payload_is_not_cut(damaged: bytes, reason: str) -> None:
    with pytest.raises(OperationFailed, match=reason) as caught:
        list(cut_records(damaged, 9))
    assert caught.value.failure.code is FailureCode.BAD_PROTO


def test_bytes_that_are_no_records_are_named_as_s2_names_them() -> None:
    with pytest.raises(OperationFailed, match=r"not a valid ReadBatch: .*'s2\.v1\.ReadBatch'"):
        decode_records(b"\x0a\x7f")
    with pytest.raises(OperationFailed, match=r"not a valid Header: .*'s2\.v1\.Header'"):
        decode_records(b"\x0a\x03\x1a\x01\x00")
