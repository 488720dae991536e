"""The server that recorded clients speak to."""

import pytest
from support.replay import S3PDouble


@pytest.fixture
def server() -> S3PDouble:
    """Used with a clock that jumps where nobody has anything to do: no test really waits."""
    return S3PDouble()
