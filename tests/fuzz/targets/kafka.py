"""Kafka: both ends of a connection, and record batches, with limits so narrow that short inputs reach them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import google_crc32c
from fuzz.laws import chosen, keeps_the_laws, pull

from penstock_codecs.codec import Role
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.kafka import PLUGIN, KafkaClient, KafkaRequest, KafkaServer
from penstock_codecs.kafka.batches import KafkaBatch, encode_batch, read_batches
from penstock_codecs.kafka.compression import KafkaCompression
from penstock_codecs.kafka.conversation import encode_request, read_request

MOST_FRAME: Final = 2000
MOST_ITEMS: Final = 50
MOST_BYTES: Final = 4000
ENDS: Final = (
    lambda: KafkaServer(max_frame=MOST_FRAME, max_items=MOST_ITEMS),
    lambda: KafkaClient(max_frame=MOST_FRAME, max_items=MOST_ITEMS, observer=True),
    None,
)
"""The server's end, the client's, and batches."""
REFUSALS: Final = {FailureCode.BAD_FORMAT, FailureCode.LIMIT_EXCEEDED, FailureCode.NOT_IMPLEMENTED}
WORDS: Final = (
    b"\0\0\0\x0a",
    b"\xff\xff\xff\xff",
    b"\0\x12\0\x03",
    b"\0\x03\0\x09",
    b"\x82SNAPPY\0",
    b"\x04\x22\x4d\x18",
)


def seeds() -> Iterator[bytes]:
    """Yield the sample of each end, and a batch with each compression."""
    for index, role in enumerate((Role.SERVER, Role.CLIENT)):
        yield bytes([index]) + PLUGIN.sample(role, "4")
    for codec in KafkaCompression:
        batch = KafkaBatch(
            compression=codec,
            keys=[None, b"key"],
            values=[b"value" * 20, None],
            timestamps=[5, 6],
            offsets=[0, 1],
            headers={1: ((b"name", b"content"), (b"null", None))},
        )
        yield b"\2" + encode_batch(batch)


def check(data: bytes) -> None:
    """Check the laws of codecs; that a request is encoded to bytes that give it again; and that batches are read, or
    refused with a documented error, whatever they hold: their checksums are made to fit first."""
    make, said = chosen(ENDS, data)
    if make is None:
        _check_batches(said)
        return
    keeps_the_laws(make, said, 2 * MOST_FRAME)
    if make is ENDS[0]:
        for event in pull(make(), said):
            if event.supported:
                _check_request(event)


def _check_request(event: KafkaRequest) -> None:
    frame = b"".join(encode_request(event))[4:]
    again = read_request(frame)
    assert again == event, f"{event!r} became {again!r}"


def _check_batches(said: bytes) -> None:
    if len(said) > 61:
        said = said[:8] + struct.pack(">i", len(said) - 12) + said[12:17] + b"\0\0\0\0" + said[21:]
        said = said[:17] + struct.pack(">I", google_crc32c.value(said[21:])) + said[21:]
    try:
        for batch in read_batches(said, max_bytes=MOST_BYTES, max_records=MOST_ITEMS):
            assert len(batch.values) == len(batch.keys) == len(batch.offsets) <= MOST_ITEMS
            assert sum(len(value or b"") for value in batch.values) <= MOST_BYTES
    except OperationFailed as error:
        assert error.failure.code in REFUSALS, error
