"""The server that recorded clients speak to."""

import pytest
from support.captures.replay import S3PDouble


@pytest.fixture
def server() -> S3PDouble:
    """A server used with a clock that jumps while all tasks are idle: no test really waits."""
    return S3PDouble()
