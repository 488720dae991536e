"""Names of streams in URLs."""

from __future__ import annotations

import pytest

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.records import StreamRef
from penstock_durable.names import DurableNames

NAMES = DurableNames("/v1/stream/", "penstock")


@pytest.mark.parametrize("path", ["__ds", "__ds/subscriptions", "%5F_ds%2Fx"])
def test_paths_that_the_protocol_reserves_are_no_streams(path: str) -> None:
    with pytest.raises(OperationFailed, match="reserves __ds/") as refused:
        NAMES.to_stream(f"/v1/stream/{path}")
    assert refused.value.failure.code is FailureCode.BAD_PATH
    with pytest.raises(OperationFailed, match="reserves __ds/"):
        NAMES.path_of(StreamRef("penstock", "__ds/x"))


@pytest.mark.parametrize("name", ["__dsx", "a/__ds/x", "a b"])
def test_other_names_come_back(name: str) -> None:
    stream = StreamRef("penstock", name)
    assert NAMES.to_stream(NAMES.path_of(stream)) == stream
