"""The client of a test file's endpoint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.endpoint import Endpoint


@pytest.fixture
def client(endpoint: Endpoint) -> Iterator[StreamClient]:
    """A client, closed after the test. `endpoint` is a fixture of each file."""
    client = StreamClient(endpoint)
    yield client
    client.close()
