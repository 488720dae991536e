"""S2's requirements of an append (S2 fact sheet, 5.1 and 5.3)."""

import pytest

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Append
from penstock.model.records import NO_HEADERS, Header, Headers, StreamRef, metered_size
from penstock_s2.codec.validation import validate_append

MIB = 1_048_576


def append(bodies: list[bytes], headers: dict[int, Headers] | None = None, token: str | None = None) -> Append:
    some = NO_HEADERS if headers is None else headers
    return Append(StreamRef("b", "s"), bodies, metered_size(bodies, some), headers=some, fencing_token=token)


def refusal(some: Append) -> str:
    with pytest.raises(OperationFailed) as caught:
        validate_append(some)
    assert caught.value.failure.code is FailureCode.INVALID
    return caught.value.failure.message


def command(name: bytes) -> dict[int, Headers]:
    return {0: (Header(b"", name),)}


@pytest.mark.parametrize(
    "valid",
    [
        append([b""]),
        append([b"x"] * 1000),
        append([b"x" * (MIB - 8)]),
        append([b""], {0: (Header(b"k", b""),) * 262_000}),
        append([b"x" * (MIB // 4 - 8)] * 4),
        append([b"x" * (MIB - 8 - 2 - 3)], {0: (Header(b"k", b"vv"),)}),
        append([b"x"], token=""),
        append([b"x"], token="x" * 36),
        append([b"x"], token="ä" * 18),
        append([b""], command(b"fence")),
        append([b"t" * 36], command(b"fence")),
        append([b"\xff" * 8], command(b"trim")),
        append([b"x"], {0: (Header(b"k", b""), Header(b"k", b""))}),
    ],
)
def test_valid(valid: Append) -> None:
    validate_append(valid)


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        (append([]), "record batch must not be empty"),
        (append([b""] * 1001), "record batch must not exceed 1000 records"),
        (append([b"x" * (MIB - 7)]), "record must have metered size less than 1 MiB"),
        (append([b"x" * (MIB - 10)], {0: (Header(b"k", b""),)}), "record must have metered size less than 1 MiB"),
        (
            append([b"x" * (MIB - 8 - 2 - 3), b""], {0: (Header(b"k", b"vv"),)}),
            "record batch must not exceed a metered size of 1 MiB",
        ),
        (append([b"x" * (MIB - 8), b""]), "record batch must not exceed a metered size of 1 MiB"),
        (append([b"x"], command(b"bogus")), "unknown command"),
        (append([b"x"], command(b"")), "unknown command"),
        (append([b"x"], command(b"Fence")), "unknown command"),
        (
            append([b"1234567"], command(b"trim")),
            "invalid `trim` command: earliest sequence number to trim to was 7 bytes, must be 8",
        ),
        (
            append([b""], command(b"trim")),
            "invalid `trim` command: earliest sequence number to trim to was 0 bytes, must be 8",
        ),
        (append([b"x"], {0: (Header(b"", b"fence"), Header(b"k", b""))}), "invalid header: empty name"),
        (append([b"x"], {0: (Header(b"k", b"v"), Header(b"", b"fence"))}), "invalid header: empty name"),
    ],
)
def test_invalid(invalid: Append, message: str) -> None:
    assert refusal(invalid) == message


@pytest.mark.parametrize("body", [b"t" * 37, b"\xff", "ä".encode() * 19])
def test_bad_fences(body: bytes) -> None:
    assert refusal(append([b"fine", body], {1: (Header(b"", b"fence"),)})).startswith("invalid `fence` command: ")


@pytest.mark.parametrize("token", ["t" * 37, "ä" * 19])
def test_long_fencing_tokens(token: str) -> None:
    assert "fencing token" in refusal(append([b"x"], token=token))


def test_a_bad_record_is_reported_before_a_bad_batch() -> None:
    assert refusal(append([b""] * 1001, command(b"bogus"))) == "unknown command"


def test_a_record_with_more_headers_than_a_frame_holds() -> None:
    """Every record that is accepted can be read: 262,000 headers of two bytes fit into a frame, more might not."""
    headers = (Header(b"k", b"v"),)
    validate_append(append([b""], {0: headers * 262_000}))
    assert refusal(append([b""], {0: headers * 262_001})) == "record must not have more than 262000 headers"
