"""The client of a test file's endpoint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock_spark.clients import Endpoint, StreamClient, open_client


@pytest.fixture
def client(endpoint: Endpoint) -> Iterator[StreamClient]:
    """A client, closed after the test. `endpoint` is a fixture of each file."""
    client = open_client(endpoint)
    yield client
    client.close()
