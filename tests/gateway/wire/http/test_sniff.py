"""Recognition of the protocol from the first bytes."""

import pytest

from penstock.wire.http import PREFACE, sniff


def test_every_cut_of_the_preface_asks_for_more() -> None:
    for length in range(len(PREFACE)):
        assert sniff(PREFACE[:length]) is None
    assert sniff(PREFACE) == "h2"
    assert sniff(memoryview(PREFACE + b"more")) == "h2"


@pytest.mark.parametrize("at", range(len(PREFACE)))
def test_any_other_byte_is_http1(at: int) -> None:
    assert sniff(PREFACE[:at] + b"\x7f") == "http/1.1"


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1", b"POST", b"PRI * HTTP/1.1", b"PATCH /x"])
def test_requests_are_http1(start: bytes) -> None:
    assert sniff(start) == "http/1.1"
