"""Batches that are larger than one APPEND may be."""

from __future__ import annotations

from penstock.backs.s3p.settings import S3PBackSettings
from penstock_codecs.failures import FailureCode, fail

__all__ = ["split"]


def split(bodies: list[bytes], settings: S3PBackSettings) -> list[list[bytes]]:
    """A batch's bodies in pieces that the server takes: one, where it fits. Raises LIMIT_EXCEEDED for a record that is
    too large for it, and for a batch that is and must not be split."""
    limits = settings.limits
    size = 0
    for index, body in enumerate(bodies):
        size += len(body)
        if len(body) > limits.max_record_bytes:
            raise fail(
                FailureCode.LIMIT_EXCEEDED,
                f"record {index + 1} of the batch has {len(body)} bytes; the server takes {limits.max_record_bytes}",
            )
    if len(bodies) <= limits.max_records_per_append and size <= limits.max_append_bytes:
        return [bodies]
    if not settings.split_appends:
        raise fail(
            FailureCode.LIMIT_EXCEEDED,
            f"a batch of {len(bodies)} records and {size} bytes; the server takes {limits.max_records_per_append} "
            f"records and {limits.max_append_bytes} bytes at once",
        )
    pieces: list[list[bytes]] = [[]]
    room = limits.max_append_bytes
    for body in bodies:
        if pieces[-1] and (len(pieces[-1]) >= limits.max_records_per_append or len(body) > room):
            pieces.append([])
            room = limits.max_append_bytes
        pieces[-1].append(body)
        room -= len(body)
    return pieces
