"""The source of S3P items: the work for each piece does not grow with the bytes before it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock_s3p.codec.errors import S3PFault
from penstock_s3p.codec.source import InputBuffer


class Unread(list[bytes]):
    """A list that must not be iterated."""

    def __iter__(self) -> Iterator[bytes]:
        raise AssertionError("gone through")


@pytest.mark.parametrize("size", [1, 5, 16, 5000])
def test_what_was_found_is_not_gone_through_again(size: int) -> None:
    source, found = InputBuffer(), Unread()
    data = b"$1\r\nx\r\n" * 1000
    for at in range(0, len(data), size):
        source.receive(data[at : at + size])
        whole = source.refill() and source.bulks(found, 1000, 10, 1000, "record")
        assert whole is (at + size >= len(data))
    assert len(found) == 1000


@pytest.mark.parametrize("size", [1, 100, 5000])
def test_complete_records_of_the_usual_form_are_not_parsed_one_by_one(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(InputBuffer, "bulk")
    source, found = InputBuffer(), list[bytes]()
    source.receive(b"$%d\r\n%b\r\n" % (size, b"x" * size) * 50)
    assert source.refill() and source.bulks(found, 50, size, 50 * size, "record")
    assert found == [b"x" * size] * 50


def test_each_list_has_its_own_sum() -> None:
    source = InputBuffer()
    source.receive(b"$9\r\nxxxxxxxxx\r\n" * 4)
    assert source.refill()
    for _ in range(2):
        assert source.bulks([], 2, 9, 18, "record")
    source.receive(b"$9\r\nxxxxxxxxx\r\n$1\r\nx\r\n")
    assert source.refill()
    with pytest.raises(S3PFault, match="the 0 bytes that 9 in total leave"):
        source.bulks([], 2, 9, 9, "record")
