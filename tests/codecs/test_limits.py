"""Limits that protocols fix, in the numbers of their documents: a peer that keeps to these must not be refused."""

from __future__ import annotations

from penstock_codecs import limits
from penstock_codecs.limits import S3PLimits, SegmentLimits
from penstock_codecs.model import U64_MAX


def test_the_largest_numbers() -> None:
    assert U64_MAX == 18_446_744_073_709_551_615


def test_limits_of_s2() -> None:
    """Those of the S2 fact sheet."""
    assert (limits.S2S_MAX_FRAME_LENGTH, limits.S2S_MAX_PAYLOAD) == (2_097_152, 2_097_151)
    assert (limits.S2_MAX_BATCH_RECORDS, limits.S2_MAX_BATCH_BYTES, limits.S2_MAX_RECORD) == (
        1000,
        1_048_576,
        1_048_576,
    )
    assert (limits.S2_MAX_FENCING_TOKEN, limits.S2_MAX_REQUEST_TOKEN, limits.S2_MAX_ENCRYPTION_KEY) == (36, 36, 44)
    assert (limits.S2_MIN_BASIN_NAME, limits.S2_MAX_BASIN_NAME, limits.S2_MAX_STREAM_NAME) == (8, 48, 512)
    assert (limits.S2_MAX_LIST, limits.S2_MAX_UNARY_BODY, limits.S2_MAX_UNARY_WAIT_SECONDS) == (1000, 2_097_152, 60)
    assert limits.S2_HEARTBEAT_SECONDS == (5, 15)
    assert (limits.S2S_COMPRESSION_THRESHOLD, limits.S2_COMPRESS_RESPONSE_FROM) == (1024, 1024)


def test_limits_of_s3p() -> None:
    """Those of S3P 0.2.0, section 11, and the defaults of what it leaves open."""
    assert S3PLimits() == S3PLimits(256, 1000, 1_048_568, 1_048_576, 1000, 1000, 10_000, 64, 256)


def test_limits_of_segments() -> None:
    """Those of the segment fact sheet, and the defaults of what it leaves open."""
    assert (limits.SEGMENT_MAX_LENGTH, limits.SEGMENT_MAX_EVENT) == (16_777_215, 8_388_608)
    assert (limits.SEGMENT_MAX_TABLE_KEY, limits.SEGMENT_MAX_TABLE_VALUE) == (8192, 1_040_384)
    assert (limits.SEGMENT_MAX_NAME, limits.SEGMENT_MAX_ITEMS, limits.SEGMENT_VERSIONS) == (1024, 4096, (16, 5))
    assert SegmentLimits() == SegmentLimits(16_777_215, 16_777_232, 1_048_576, 10_000)
