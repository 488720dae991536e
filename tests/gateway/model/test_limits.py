"""Limits that protocols fix, in the numbers of their documents: a peer that keeps to these must not be refused."""

from __future__ import annotations

from penstock.model import limits
from penstock.model.records import U64_MAX
from penstock_pravega.codec import limits as segment_limits
from penstock_pravega.codec.limits import SegmentLimits
from penstock_s2.codec import limits as s2_limits
from penstock_s2.codec.s2s import limits as s2s_limits
from penstock_s3p.codec.limits import S3PLimits


def test_the_largest_numbers() -> None:
    assert U64_MAX == 18_446_744_073_709_551_615


def test_limits_of_s2() -> None:
    """Those of the S2 fact sheet."""
    assert (s2s_limits.S2S_MAX_FRAME_LENGTH, s2s_limits.S2S_MAX_PAYLOAD) == (2_097_152, 2_097_151)
    assert (limits.MAX_BATCH_RECORDS, limits.MAX_BATCH_BYTES) == (1000, 1_048_576)
    assert (limits.MAX_RECORD_BYTES, limits.MAX_FENCING_TOKEN_BYTES) == (1_048_576, 36)
    assert (s2_limits.S2_MAX_REQUEST_TOKEN, s2_limits.S2_MAX_ENCRYPTION_KEY) == (36, 44)
    assert (limits.MIN_BASIN_NAME_BYTES, limits.MAX_BASIN_NAME_BYTES, limits.MAX_STREAM_NAME_BYTES) == (8, 48, 512)
    assert (s2_limits.S2_MAX_UNARY_BODY, s2_limits.S2_MAX_UNARY_WAIT_SECONDS) == (2_097_152, 60)
    assert (s2_limits.S2_MAX_LIST, s2_limits.S2_HEARTBEAT_SECONDS) == (1000, (5, 15))
    assert (s2s_limits.S2S_COMPRESSION_THRESHOLD, s2_limits.S2_COMPRESS_RESPONSE_FROM) == (1024, 1024)


def test_limits_of_s3p() -> None:
    """Those of S3P 0.2.0, section 11, and the defaults of what it leaves open."""
    assert S3PLimits() == S3PLimits(256, 1000, 1_048_568, 1_048_576, 1000, 1000, 10_000, 64, 256)


def test_limits_of_segments() -> None:
    """Those of the segment fact sheet, and the defaults of what it leaves open."""
    assert (segment_limits.SEGMENT_MAX_LENGTH, segment_limits.SEGMENT_MAX_EVENT) == (16_777_215, 8_388_608)
    assert (limits.MAX_TABLE_NAME_BYTES, limits.MAX_TABLE_KEY_BYTES) == (1024, 8192)
    assert limits.MAX_TABLE_VALUE_BYTES == 1_040_384
    assert (segment_limits.SEGMENT_MAX_NAME, segment_limits.SEGMENT_MAX_ITEMS) == (1024, 4096)
    assert segment_limits.SEGMENT_VERSIONS == (16, 5)
    assert SegmentLimits() == SegmentLimits(16_777_215, 16_777_232, 1_048_576, 10_000)
