"""Fixtures of the conformance tests: clients of one running gateway, and names for each test."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from support.process import BASIN, GatewayProcess
from support.s2.client import S2Client
from support.s3p.client import S3PClient
from support.segment.client import Address, DraftSocket, ReleasedSocket

_numbers = itertools.count()


@pytest.fixture
def gateway_s3p(gateway: GatewayProcess) -> Callable[[], S3PClient]:
    """Opens S3P connections."""
    return lambda: S3PClient(("127.0.0.1", gateway.s3p_port))


@pytest.fixture
def s3p(gateway: GatewayProcess) -> Iterator[S3PClient]:
    """An S3P connection."""
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as client:
        yield client


@pytest.fixture
def segment_address(gateway: GatewayProcess) -> Address:
    """Address of the segment listener."""
    return "127.0.0.1", gateway.segment_port


@pytest.fixture
def released_socket(segment_address: Address) -> Callable[..., ReleasedSocket]:
    """Opens connections in the released dialect, Hello done."""
    return lambda **options: ReleasedSocket(segment_address, **options)


@pytest.fixture
def draft_socket(segment_address: Address) -> Callable[..., DraftSocket]:
    """Opens connections in the draft dialect."""
    return lambda **options: DraftSocket(segment_address, **options)


@pytest.fixture
def segment() -> str:
    """The name of a segment that is not there yet, and whose stream the clients of other protocols see."""
    return f"{BASIN}/conf-segment-{next(_numbers)}/0.#epoch.0"


@pytest.fixture
def shared_basin(gateway: GatewayProcess) -> S2Client:
    """A client for the basin that holds the S3P listener's streams."""
    return S2Client(("127.0.0.1", gateway.s2_port), BASIN)
