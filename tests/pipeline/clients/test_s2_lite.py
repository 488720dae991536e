"""The client of S2 with S2's own server, `s2 lite`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from support.process import BASIN
from support.real_backs import S2Lite

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.records import Header
from penstock.wire.compression import Compression
from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.endpoint import Endpoint

pytestmark = pytest.mark.peer

BODIES = [b"%d " % number * (number % 400) for number in range(3000)]
STAMP = 1_700_000_000_000


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with S2Lite() as server:
        yield Endpoint(*server.address)


@pytest.mark.parametrize("compression", Compression)
def test_records_go_in_and_come_out(endpoint: Endpoint, compression: Compression) -> None:
    stream = f"{BASIN}/records/{compression.name} ä%?"
    with closing(StreamClient(replace(endpoint, compression=compression))) as client:
        assert client.create(stream, endless=True)
        assert not client.create(stream)
        assert list(client.streams(f"{BASIN}/records/{compression.name}")) == [stream]
        appender = client.appender(stream)
        for begin in range(0, len(BODIES), 250):
            stamps = [STAMP + number for number in range(begin, begin + 250)]
            appender.append(BODIES[begin : begin + 250], {0: (Header(b"k", b"v"),)}, stamps, begin)
        end = appender.flush()
        assert end is not None and end.seq_num == len(BODIES)
        assert client.tail(stream) == len(BODIES)
        for start, stop in ((0, len(BODIES)), (700, 701), (251, 2750)):
            batches = list(client.read(stream, start, stop))
            assert [body for rows in batches for body in rows.columns.bodies] == BODIES[start:stop]
            assert [number for rows in batches for number in rows.columns.seq_nums] == list(range(start, stop))
            assert [ms - STAMP for rows in batches for ms in rows.columns.timestamps] == list(range(start, stop))
        assert [client.at_timestamp(stream, STAMP + at) for at in (-1, 0, 1234, 2999, 3000)] == [
            *(0, 0, 1234, 2999, 3000)
        ]


def test_conditions_are_kept(client: StreamClient) -> None:
    stream = f"{BASIN}/conditions"
    client.create(stream)
    appender = client.appender(stream)
    appender.append([b"a"], {}, None, 0)
    with pytest.raises(OperationFailed) as raised:
        appender.append([b"b"], {}, None, 0)
        appender.flush()
    assert raised.value.failure.code is FailureCode.SEQ_NUM_MISMATCH
    assert raised.value.failure.details == {"seq_num_mismatch": 1}
    assert client.tail(stream) == 1


def test_what_was_trimmed_is_missed(client: StreamClient) -> None:
    stream = f"{BASIN}/trimmed"
    client.create(stream)
    appender = client.appender(stream)
    appender.append([b"a", b"b", b"c"], {}, None, 0)
    appender.flush()
    client.trim(stream, 2)
    while client.first(stream) != 2:
        pass
    with pytest.raises(OperationFailed, match="were trimmed") as raised:
        list(client.read(stream, 1, 3))
    assert raised.value.failure.details == {"first": 2}
    with pytest.raises(OperationFailed, match="its tail is 4"):
        list(client.read(stream, 2, 5))
    client.trim(stream, 5)
    while client.first(stream) != 5:
        pass
    assert client.tail(stream) == 5


def test_streams_come_and_go(client: StreamClient) -> None:
    with pytest.raises(OperationFailed) as raised:
        client.tail(f"{BASIN}/nowhere")
    assert raised.value.failure.code is FailureCode.STREAM_NOT_FOUND
    stream = f"{BASIN}/goes"
    assert client.create(stream)
    assert client.first(stream) == client.tail(stream) == client.at_timestamp(stream, 0) == 0
    client.delete(stream)
    client.delete(stream)
    assert stream not in list(client.streams())
