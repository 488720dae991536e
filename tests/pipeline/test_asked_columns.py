"""Schemas that a user asks a format for."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from penstock_spark.columns import WrongSchema, check_columns
from penstock_spark.schemas import CONNECTIONS, RECORDS, spark_schema


def pair(first: str, second: str, kind: DataType | None = None) -> StructType:
    return StructType().add(first, BinaryType()).add(second, kind or BinaryType())


@pytest.mark.parametrize(
    ("columns", "faults"),
    [
        ({"seq_num": IntegerType()}, ["seq_num: is bigint, not int"]),
        ({"seqnum": LongType(), "body": StringType()}, ["seqnum: no such column", "body: is binary, not string"]),
        ({"headers": ArrayType(pair("name", "value", StringType()))}, ["headers: is array<"]),
        ({"headers": ArrayType(pair("value", "name"))}, ["headers: is array<"]),
        ({"timestamp": TimestampNTZType()}, ["timestamp: is timestamp, not timestamp_ntz"]),
        ({"body": BinaryType(), "BODY": BinaryType()}, ["BODY: twice"]),
        ({}, ["no columns are selected"]),
    ],
)
def test_columns_that_are_not_ours(columns: dict[str, DataType], faults: list[str]) -> None:
    with pytest.raises(WrongSchema) as caught:
        check_columns(
            "format x", spark_schema(RECORDS), StructType([StructField(name, kind) for name, kind in columns.items()])
        )
    assert len(caught.value.faults) == len(faults)
    assert all(found.startswith(wanted) for found, wanted in zip(caught.value.faults, faults, strict=True))


def test_some_columns_in_any_order_and_case_null_or_not() -> None:
    asked = StructType().add("Body", BinaryType(), nullable=False).add("SEQ_NUM", "long")
    check_columns(
        "format x", spark_schema(RECORDS), asked.add("headers", ArrayType(pair("name", "value"), containsNull=False))
    )
    texts = ArrayType(StringType(), containsNull=False)
    check_columns("format x", spark_schema(CONNECTIONS), StructType().add("notes", MapType(StringType(), texts)))
    with pytest.raises(WrongSchema, match=r"^format x: 1 columns are wrong\n  notes: is map<string,array<string>>"):
        check_columns(
            "format x", spark_schema(CONNECTIONS), StructType().add("notes", MapType(StringType(), StringType()))
        )


def test_an_error_can_be_handed_on() -> None:
    error = pickle.loads(pickle.dumps(WrongSchema("format x", ["a", "b"])))
    assert str(error) == "format x: 2 columns are wrong\n  a\n  b"
