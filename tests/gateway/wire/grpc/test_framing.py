"""gRPC: messages with their prefix, in pieces, compressed, hostile."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire import conformance
from penstock.wire.grpc import Code, GrpcError, MessageReader, frame


def prefixed(message: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + len(message).to_bytes(4, "big") + message


def read(data: bytes, encoding: str | None = None, limit: int = 1000, cuts: list[int] | None = None) -> bytes:
    reader = MessageReader(encoding, limit)
    for piece in conformance.pieces_of(data, cuts or []):
        reader.receive(piece)
        assert reader.held <= len(data)
    return reader.finish()


def refused(data: bytes, encoding: str | None = None, limit: int = 1000) -> tuple[Code, str]:
    with pytest.raises(GrpcError) as caught:
        read(data, encoding, limit)
    return caught.value.code, caught.value.message


@given(message=st.binary(max_size=1000), cuts=st.lists(st.integers(0, 1005), max_size=5))
def test_a_message_in_any_pieces(message: bytes, cuts: list[int]) -> None:
    assert read(frame(message), cuts=cuts) == message
    assert read(prefixed(gzip.compress(message), 1), "gzip", cuts=cuts) == message


@given(st.binary(max_size=40), st.sampled_from([None, "identity", "gzip", "br"]))
def test_garbage_gives_a_message_or_a_status(data: bytes, encoding: str | None) -> None:
    try:
        message = read(data, encoding)
    except GrpcError as error:
        assert error.code in (Code.INTERNAL, Code.RESOURCE_EXHAUSTED, Code.UNIMPLEMENTED)
    else:
        assert frame(message) == data or data[0] == 1


def test_an_uncompressed_message_needs_no_known_encoding() -> None:
    assert read(frame(b"hello"), "br") == b"hello"


def test_an_unknown_encoding_is_unimplemented_and_the_known_are_listed() -> None:
    code, message = refused(prefixed(b"x", 1), "br")
    assert code is Code.UNIMPLEMENTED
    assert "identity,gzip" in message


@pytest.mark.parametrize("encoding", [None, "identity"])
def test_a_compressed_message_without_an_encoding(encoding: str | None) -> None:
    assert refused(prefixed(gzip.compress(b"x"), 1), encoding)[0] is Code.INTERNAL


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0",
        frame(b"hello")[:-1],
        frame(b"hello") + b"\0",
        frame(b"one") + frame(b"two"),
        prefixed(b"x", 2),
        prefixed(b"", 1),
        prefixed(gzip.compress(b"hello", mtime=0)[:-1], 1),
        prefixed(b"not gzip", 1),
    ],
)
def test_what_is_no_single_whole_message(data: bytes) -> None:
    assert refused(data, "gzip")[0] is Code.INTERNAL


def test_a_long_message_is_refused_by_its_prefix() -> None:
    assert read(frame(bytes(1000))) == bytes(1000)
    assert refused(prefixed(bytes(1001))[:5])[0] is Code.RESOURCE_EXHAUSTED
    assert refused(prefixed(bytes(4000), 1)[:5], "gzip")[0] is Code.RESOURCE_EXHAUSTED


def test_a_bomb_is_refused() -> None:
    bomb = gzip.compress(bytes(100_000_000))
    assert len(bomb) < 100_000
    code, message = refused(prefixed(bomb, 1), "gzip", 1_000_000)
    assert code is Code.RESOURCE_EXHAUSTED
    assert "1000000" in message
