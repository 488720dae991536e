"""Kafka: both ends of a connection, responses in every version, record batches in every compression, subscriptions of
groups, and messages of SASL, with limits so narrow that short inputs reach them."""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from itertools import accumulate
from typing import Final

import google_crc32c
from fuzz.laws import chosen, keeps_the_laws, pull

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.records import event_time_of
from penstock.wire.codec import UNFINISHED, Role
from penstock_kafka.codec import PLUGIN, KafkaClient, KafkaRequest, KafkaServer
from penstock_kafka.codec.apis import APIS
from penstock_kafka.codec.batches import KafkaBatch, encode_batch, read_batches
from penstock_kafka.codec.carrying import ENCODING, parts_of
from penstock_kafka.codec.client_records import read_fetched
from penstock_kafka.codec.cluster_messages import ApiVersionsRequest
from penstock_kafka.codec.compression import KafkaCompression
from penstock_kafka.codec.conversation import encode_request, encode_response, read_request, read_response
from penstock_kafka.codec.kept import keep
from penstock_kafka.codec.sasl import ScramClient, ScramServer, plain_credentials, plain_message
from penstock_kafka.codec.wire import KafkaFault
from penstock_kafka.groups.messages import GroupRecord, MemberRecord
from penstock_kafka.groups.subscriptions import subscribed_topics

MOST_FRAME: Final = 2000
MOST_ITEMS: Final = 50
MOST_BYTES: Final = 4000
NONCE: Final = "n" * 8
REFUSALS: Final = {
    FailureCode.AUTHN,
    FailureCode.BAD_FORMAT,
    FailureCode.LIMIT_EXCEEDED,
    FailureCode.NOT_IMPLEMENTED,
    FailureCode.NOT_REPRESENTABLE,
}
WORDS: Final = (
    b"\0\0\0\x0a",
    b"\xff\xff\xff\xff",
    b"\0\x12\0\x03",
    b"\0\x03\0\x09",
    b"\x82SNAPPY\0",
    b"\x04\x22\x4d\x18",
    b"\x28\xb5\x2f\xfd",
    b"n,,n=name,r=",
    b"c=biws,r=",
    b",s=c2FsdA==,i=4096",
    b",p=",
)


def seeds() -> Iterator[bytes]:
    """Yield the sample of each end, a response in the first and the newest version of each API, a batch with each
    compression, a subscription, and the messages of SASL."""
    for index, role in enumerate((Role.SERVER, Role.CLIENT)):
        yield bytes([index]) + PLUGIN.sample(role, "4")
    for key, api in APIS.items():
        for version in (api.oldest, api.newest):
            yield bytes([2, key, version]) + bytes(40)
    for codec in KafkaCompression:
        batch = KafkaBatch(
            compression=codec,
            keys=[None, b"key"],
            values=[b"value" * 20, None],
            timestamps=[5, 6],
            offsets=[0, 1],
            headers={1: ((b"name", b"content"), (b"null", None))},
        )
        yield b"\3" + encode_batch(batch)
    yield b"\4\0\1\0\0\0\2\0\1a\0\6orders\0\0\0\0"
    yield b"\5\0" + plain_message("name", "secret")
    client = ScramClient("SCRAM-SHA-256", "name", "secret", NONCE)
    yield b"\5\1" + client.first()
    yield b"\5\2r=%bx,s=c2FsdA==,i=4096" % NONCE.encode()
    yield b"\5\3c=biws,r=%bserver,p=%b" % (NONCE.encode(), b"A" * 43 + b"=")


def check(data: bytes) -> None:
    """Check the laws of codecs; that a request, and a response, is encoded to bytes that give it again; and that
    batches, subscriptions and messages of SASL are read, or refused with a documented error, whatever they hold: the
    checksums of batches are made to fit first."""
    parse, said = chosen(
        (_check_server, _check_client, _check_response, _check_batches, _check_topics, _check_sasl), data
    )
    try:
        parse(said)
    except OperationFailed as error:
        assert error.failure.code in REFUSALS, error


def _server() -> KafkaServer:
    return KafkaServer(max_frame=MOST_FRAME, max_items=MOST_ITEMS)


def _client() -> KafkaClient:
    return KafkaClient(max_frame=MOST_FRAME, max_items=MOST_ITEMS, observer=True)


def _check_server(said: bytes) -> None:
    keeps_the_laws(_server, said, 2 * MOST_FRAME)
    for event in pull(_server(), said):
        if event.supported:
            frame = b"".join(encode_request(event))[4:]
            again = read_request(frame)
            assert again == event, f"{event!r} became {again!r}"
            steps = event.message.encode_in_steps(event.version, flexible=event.api.is_flexible(event.version))
            assert frame.endswith(b"".join(_result_of(steps))), event
            server = KafkaServer(steps_from=0)
            server.receive(len(frame).to_bytes(4, "big") + frame)
            while (again_in_steps := server.next_event()) is UNFINISHED:
                pass
            assert again_in_steps == event, f"{event!r} became {again_in_steps!r}"


def _result_of(steps: Generator[None, None, list[bytes]]) -> list[bytes]:
    try:
        while True:
            next(steps)
    except StopIteration as end:
        pieces: list[bytes] = end.value
        return pieces


def _check_client(said: bytes) -> None:
    keeps_the_laws(_client, said, 2 * MOST_FRAME)


def _check_response(said: bytes) -> None:
    """Read it as one of the API and version that two bytes select."""
    api, said = chosen(list(APIS.values()), said)
    version, said = chosen(range(api.oldest, api.newest + 1), said)
    request = KafkaRequest(api, version, int.from_bytes(said[:4], "big", signed=True), None, ApiVersionsRequest())
    try:
        message = read_response(request, said, MOST_ITEMS)
    except KafkaFault:
        return
    frame = b"".join(encode_response(api, version, request.correlation_id, message))[4:]
    again = read_response(request, frame)
    assert again == message, f"{message!r} became {again!r}"


def _check_batches(said: bytes) -> None:
    if len(said) > 61:
        said = said[:8] + struct.pack(">i", len(said) - 12) + said[12:17] + b"\0\0\0\0" + said[21:]
        said = said[:17] + struct.pack(">I", google_crc32c.value(said[21:])) + said[21:]
    for batch in read_batches(said, max_bytes=MOST_BYTES, max_records=MOST_ITEMS):
        assert len(batch.values) == len(batch.keys) == len(batch.offsets) <= MOST_ITEMS
        assert sum(len(value or b"") for value in batch.values) <= MOST_BYTES
        _check_kept(batch)
    start = int.from_bytes(said[:8], "big", signed=True)
    found = read_fetched(said, start, max_bytes=MOST_BYTES)
    numbers = [number for run in found.runs for number in run.columns.seq_nums]
    assert all(start <= number < found.next_offset for number in numbers), found


def _check_kept(batch: KafkaBatch) -> None:
    """Check that a batch which can be kept holds the records that an append of it has, wherever it is placed."""
    wire = keep(batch) if len(batch) else None
    if wire is None:
        return
    [part] = parts_of(batch, whole=True)
    for timestamps in ([7] * len(batch), list(range(len(batch)))):
        placed = ENCODING.place(wire.data, 5, timestamps, False)
        assert placed is not None
        columns = ENCODING.decode(placed, 0)
        assert (columns.bodies, columns.headers) == (part.bodies, part.headers)
        assert list(columns.timestamps) == list(timestamps)
        assert columns.seq_nums == range(5, 5 + len(batch))
    if None in part.timestamps:
        return
    risen = list(accumulate((min(time, 1 << 41) for time in batch.timestamps), max))
    placed = ENCODING.place(wire.data, 5, risen, True)
    assert placed is not None
    columns = ENCODING.decode(placed, risen[0])
    assert list(columns.timestamps) == risen
    own = [event_time_of(columns.headers.get(index, ())) for index in range(len(batch))]
    assert [risen[index] if time is None else time for index, time in enumerate(own)] == list(batch.timestamps)


def _check_topics(said: bytes) -> None:
    """Read it as a member's subscription."""
    member = MemberRecord(member="m", session_timeout=1, rebalance_timeout=1, protocols=(("range", said),))
    topics = subscribed_topics(GroupRecord(protocol_type="consumer", members=(member,)))
    assert topics is None or sum(map(len, topics)) <= len(said)


def _check_sasl(said: bytes) -> None:
    """Read it as the message that one byte selects: of PLAIN, or the next one in an exchange of SCRAM."""
    step, said = chosen(range(4), said)
    server = ScramServer("SCRAM-SHA-256", lambda _name: ["secret"], lambda _name: b"salt", "server")
    client = ScramClient("SCRAM-SHA-256", "name", "secret", NONCE)
    if step == 0:
        found = plain_credentials(said)
        assert plain_credentials(plain_message(*found)) == found
    elif step == 1:
        assert server.first(said).startswith(b"r=")
    elif step == 2:
        assert client.final(said).startswith(b"c=biws,r=" + NONCE.encode())
    else:
        server.first(client.first())
        assert server.final(said)[0] == "secret"
