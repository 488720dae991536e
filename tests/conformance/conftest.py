"""Fixtures of the conformance tests: clients of one running gateway, and names for each test."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from support.process import BASIN, GatewayProcess, running_gateway
from support.s2.client import S2Client
from support.s3p.client import S3PClient
from support.segment.client import Address, DraftSocket, ReleasedSocket

_numbers = itertools.count()

TOKENS_CONFIG = """\
[listeners.s2]
bind = "127.0.0.1:{s2_port}"
auth_tokens = ["secret-one", "secret-two"]
default_basin = "token-basin"

[store]
directory = "{data}"

[log]
format = "json"
"""

SEED_CONFIG = """\
[listeners.s2]
bind = "127.0.0.1:{s2_port}"
sse_dialect = "seed"

[store]
directory = "{data}"

[log]
format = "json"
"""


@pytest.fixture(scope="session")
def s2(gateway: GatewayProcess) -> S2Client:
    """The checklist's basin, in which nothing is created unasked."""
    address = ("127.0.0.1", gateway.s2_port)
    return S2Client(address).ensure_basin("conf-basin-01", create_stream_on_append=False, create_stream_on_read=False)


@pytest.fixture
def new_name() -> str:
    """A stream name that nothing else uses."""
    return f"conf/{next(_numbers)}"


@pytest.fixture
def stream(s2: S2Client, new_name: str) -> str:
    """An empty stream of the checklist's basin; its name holds a slash, as the checklist's does."""
    return s2.ensure_stream(new_name)


@pytest.fixture
def own_basin(s2: S2Client) -> S2Client:
    """A client for a basin of the test's own, which it may list and configure."""
    return s2.ensure_basin(f"conf-own-{next(_numbers)}")


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


@pytest.fixture(scope="module")
def s2_with_tokens() -> Iterator[S2Client]:
    """A gateway that wants a bearer token, "secret-one" or "secret-two"; its default basin is not there yet."""
    with running_gateway(TOKENS_CONFIG) as process:
        yield S2Client(("127.0.0.1", process.s2_port))


@pytest.fixture(scope="module")
def s2_seed_dialect() -> Iterator[S2Client]:
    """A gateway that speaks the seeds' dialect of server-sent events."""
    with running_gateway(SEED_CONFIG) as process:
        yield S2Client(("127.0.0.1", process.s2_port)).ensure_basin("conf-basin-01")
