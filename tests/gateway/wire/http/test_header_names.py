"""Names of headers as text."""

from __future__ import annotations

import pytest

from penstock.wire.http import header_names
from penstock.wire.http.header_names import header_name


def test_a_name_is_one_object_for_all_messages() -> None:
    assert header_name(b"x-made-up-" + b"a") is header_name(b"x-made-up-" + b"a")
    assert header_name(b"x-\xe9") == "x-\xe9"


@pytest.mark.parametrize("name", [b"x" * 65, b"x" * 60_000])
def test_what_a_client_makes_up_does_not_stay(name: bytes) -> None:
    """Neither names that are long nor many names."""
    before = header_names._kept.cache_info().currsize
    assert header_name(name) == name.decode()
    assert header_names._kept.cache_info().currsize == before
    for number in range(2000):
        header_name(b"x-%d" % number)
    assert header_names._kept.cache_info().currsize <= 512
