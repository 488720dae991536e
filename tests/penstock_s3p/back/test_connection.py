"""One connection to an S3P server."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.limits import MIB
from penstock.net.upstream import Upstream, UpstreamSettings
from penstock_s3p.back.connection import S3PConnection
from penstock_s3p.codec import AppendRecords
from penstock_s3p.codec.limits import S3PLimits


async def test_a_writer_hears_of_a_loss_that_the_reader_saw() -> None:
    """Both run side by side: the reader sees the end first, and the writer has something to send in the same moment."""
    ours, theirs = trio.testing.memory_stream_pair()
    connection = S3PConnection(ours, Upstream(UpstreamSettings(name="far", host="127.0.0.1", port=1)), S3PLimits(), MIB)
    command = AppendRecords(b"stream", [b"body"])
    await connection.send([command])
    await theirs.aclose()
    with pytest.raises(OperationFailed):
        await connection.reply()
    with pytest.raises(OperationFailed) as caught:
        await connection.send([command])
    assert caught.value.failure.code is FailureCode.UNAVAILABLE
