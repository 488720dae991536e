"""Options and schemas of the source, checked before anything is read."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StringType, StructType

from penstock_spark.capture.datasource import CaptureDataSource
from penstock_spark.capture.options import capture_options
from penstock_spark.columns import WrongSchema
from penstock_spark.options import WrongOptions
from penstock_spark.schemas import CAPTURE_TABLES


def test_defaults_and_all_that_can_be_said() -> None:
    least = capture_options({"path": "/x"})
    assert (least.paths, least.table, least.groups, least.settle_seconds) == (("/x",), "records", None, 10.0)
    given = {"paths": '["/x", "/y"]', "table": "messages", "groups": "3", "together": "true", "envelopes": "true"}
    given |= {"skip_unreadable": "true", "max_files_per_batch": "7", "settle_seconds": "0.5"}
    most = capture_options(given)
    assert most.paths == ("/x", "/y") and (most.table, most.groups, most.max_files_per_batch) == ("messages", 3, 7)
    assert most.together and most.envelopes and most.skip_unreadable and most.settle_seconds == 0.5


def test_every_fault_is_named_at_once() -> None:
    with pytest.raises(WrongOptions) as caught:
        capture_options({"tabel": "x", "table": "x", "groups": "0", "paths": "{}", "settle_seconds": "soon"})
    assert "is it table?" in str(caught.value)
    assert [fault.partition(":")[0] for fault in caught.value.faults] == [
        *("groups", "paths", "settle_seconds", "tabel", "table")
    ]
    with pytest.raises(WrongOptions, match="path: is missing"):
        capture_options({})


@pytest.mark.parametrize("table", sorted(CAPTURE_TABLES))
def test_schemas(table: str) -> None:
    source = CaptureDataSource({"path": "/x", "table": table})
    assert source.schema().names == [column.name for column in CAPTURE_TABLES[table]]
    source.reader(source.schema())
    wrong = StructType().add("conversation", StringType()).add("nothing", LongType())
    with pytest.raises(WrongSchema, match=f"table {table}: 2 .*\n  conversation: is bigint, not string\n  nothing: no"):
        source.reader(wrong)


def test_a_stream_reads_recordings_apart() -> None:
    source = CaptureDataSource({"path": "/x", "together": "true"})
    with pytest.raises(WrongOptions, match="together"):
        source.streamReader(source.schema())
