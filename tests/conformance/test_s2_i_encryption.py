"""Encryption of records at rest, as S2's clients see it (S2 fact sheet, 5.5). Other clients are refused by name."""

from __future__ import annotations

import base64
import http.client
import itertools
from collections.abc import Callable

import pytest
from support.s2.client import PROTOBUF, S2Client, b64, stream_path
from support.s2.frames import append_input
from support.s3p.client import S3PClient, S3PError
from support.segment.client import ReleasedSocket

from penstock_codecs.segment import append_messages, released
from penstock_proto import s2_pb2 as pb

_numbers = itertools.count()
KEY, OTHER = ({"s2-encryption-key": base64.b64encode(bytes([n]) * 32).decode()} for n in (1, 2))
CARRIERS = pytest.mark.parametrize("carrier", ["h1", "h2"])
ONE = {"records": [{"body": "in private", "headers": [["name", "value"]]}]}


@pytest.fixture(params=["aegis-256", "aes-256-gcm"])
def cipher(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def secret(s2: S2Client, cipher: str) -> S2Client:
    """A client for a basin whose streams get the cipher, with a stream `s` in it."""
    client = s2.ensure_basin(f"conf-secret-{next(_numbers)}", stream_cipher=cipher)
    client.ensure_stream("s")
    return client


def test_what_the_control_plane_says(secret: S2Client, cipher: str) -> None:
    assert secret.of(None).request("GET", f"/v1/basins/{secret.basin}").json()["stream_cipher"] == cipher
    (stream,) = secret.request("GET", "/v1/streams").json()["streams"]
    assert (stream["name"], stream["cipher"]) == ("s", cipher)
    assert "cipher" not in secret.request("GET", stream_path("s")).json(), "it is no part of the configuration"
    assert secret.send_json("POST", "/v1/streams", {"stream": "new"}).json(201)["cipher"] == cipher
    changed = secret.of(None).send_json("PATCH", f"/v1/basins/{secret.basin}", {"stream_cipher": None})
    assert changed.json()["stream_cipher"] is None
    assert secret.send_json("POST", "/v1/streams", {"stream": "plain"}).json(201)["cipher"] is None
    assert secret.send_json("PUT", stream_path("s"), {}).json()["cipher"] == cipher


@CARRIERS
def test_appends_and_reads_of_every_kind(secret: S2Client, carrier: str) -> None:
    secret.append_json("s", ONE, KEY).json()
    assert secret.append_proto("s", append_input(b"2"), KEY).status == 200
    with secret.append_session("s", carrier, KEY) as session:
        session.send(append_input(b"3"))
        assert session.ack().end.seq_num == 3
    expected = ["in private", "2", "3"]
    answer = secret.read("s", KEY, seq_num=0).json()["records"]
    assert [record["body"] for record in answer] == expected
    assert answer[0]["headers"] == [["name", "value"]]
    batch = pb.ReadBatch.FromString(secret.read("s", {**PROTOBUF, **KEY}, seq_num=0).body)
    assert [record.body.decode() for record in batch.records] == expected
    with secret.read_session("s", carrier, KEY, seq_num=0) as session:
        assert [record.body.decode() for record in session.records(3)] == expected
    with secret.events("s", carrier, KEY, seq_num=0, count=3) as events:
        found = [record for event in events.rest()[:-1] for record in event.json()["records"]]
    assert [record["body"] for record in found] == expected


@CARRIERS
def test_a_missing_key_is_told_before_anything_begins(secret: S2Client, cipher: str, carrier: str) -> None:
    refusals = [
        secret.append_json("s", ONE),
        secret.append_proto("s", append_input(b"2")),
        secret.read("s", seq_num=0),
        secret.read("s", {"accept": "text/event-stream"}, seq_num=0),
        secret.request("POST", stream_path("s") + "/records", b"", {"content-type": "s2s/proto"}),
        secret.request("GET", stream_path("s") + "/records", None, {"content-type": "s2s/proto"}),
    ]
    for refused in refusals:
        why = refused.fails(400, "bad_header")
        assert why.startswith(f"missing encryption key for stream cipher '{cipher}'")
    with secret.append_session("s", carrier) as session:
        assert session.stream.status == 400
    assert secret.tail("s") == {"seq_num": 0, "timestamp": 0}, "the tail needs no key"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("!!!!", "invalid encryption key for stream cipher '{}': invalid base64"),
        (b64(b"x" * 31), "invalid encryption key length for stream cipher '{}': 31"),
        (b64(b"x" * 33), "invalid encryption key length for stream cipher '{}': 33"),
        (
            "A" * 45,
            "Invalid header `s2-encryption-key`: invalid encryption key: key material length 45 is out of range",
        ),
        (" ", "Invalid header `s2-encryption-key`: invalid encryption key: key material length 0 is out of range"),
    ],
)
def test_malformed_keys(secret: S2Client, cipher: str, value: str, why: str) -> None:
    head = {"s2-encryption-key": value}
    assert secret.append_json("s", ONE, head).fails(400, "bad_header") == why.format(cipher)
    assert secret.read("s", head, seq_num=0).fails(400, "bad_header") == why.format(cipher)


@CARRIERS
def test_a_wrong_key_on_reads_of_every_kind(secret: S2Client, carrier: str) -> None:
    secret.append_json("s", ONE, KEY).json()
    assert secret.read("s", OTHER, seq_num=0).fails(400, "decryption_failed") == "record decryption failed"
    with secret.read_session("s", carrier, OTHER, seq_num=0) as session:
        assert session.stream.status == 200
        status, body = session.failure()
    assert (status, body["code"]) == (400, "decryption_failed")
    with secret.events("s", carrier, OTHER, seq_num=0) as events:
        (event,) = events.rest()
    assert (event.name, event.json()["code"]) == ("error", "decryption_failed")


@CARRIERS
def test_a_wrong_key_on_appends_of_every_kind(secret: S2Client, carrier: str) -> None:
    early = secret.append_session("s", carrier, OTHER)
    with early as session:
        secret.append_json("s", ONE, KEY).json()
        session.send(append_input(b"2"))
        status, body = session.failure()
    assert (status, body["code"], body["message"]) == (400, "decryption_failed", "record decryption failed")
    for refused in (secret.append_json("s", ONE, OTHER), secret.append_proto("s", append_input(b"2"), OTHER)):
        assert refused.fails(400, "decryption_failed") == "record decryption failed"
    with secret.append_session("s", carrier, OTHER) as session:
        assert session.stream.status == 400
    assert secret.tail("s")["seq_num"] == 1
    secret.append_json("s", ONE, KEY).json()


def test_a_reader_with_the_wrong_key_learns_it_with_the_first_record(secret: S2Client) -> None:
    with secret.read_session("s", "h1", OTHER, seq_num=0) as session:
        assert not session.batch().records
        secret.append_json("s", ONE, KEY).json()
        status, body = session.failure()
    assert (status, body["code"]) == (400, "decryption_failed")


def test_plain_streams_ignore_keys(s2: S2Client, stream: str) -> None:
    for head in (KEY, OTHER, {"s2-encryption-key": "!!!!"}):
        s2.append_json(stream, ONE, head).json()
    assert len(s2.read(stream, seq_num=0).json()["records"]) == 3
    s2.append_json(stream, ONE, {"s2-encryption-key": "A" * 45}).fails(400, "bad_header")


def test_one_request_leaves_no_key_for_the_next(secret: S2Client, cipher: str) -> None:
    """On one connection."""
    connection = http.client.HTTPConnection(*secret.address, timeout=10)
    statuses = []
    for head in (KEY, {}, KEY):
        connection.request(
            "POST",
            stream_path("s") + "/records",
            b'{"records":[{"body":"x"}]}',
            {**secret.head(head), "content-type": "application/json"},
        )
        response = connection.getresponse()
        statuses.append(response.status)
        response.read()
    connection.close()
    assert statuses == [200, 400, 200]


def test_conditions_commands_and_bounds(secret: S2Client) -> None:
    keyed = S2Client(secret.address, secret.basin)
    records = {"records": [{"body": "x" * 92}] * 10, "match_seq_num": 0}
    keyed.append_json("s", records, KEY).json()
    assert keyed.append_json("s", records, KEY).json(412) == {"seq_num_mismatch": 10}
    for most, count in ((99, 0), (100, 1), (999, 9)):
        assert len(keyed.read("s", KEY, seq_num=0, bytes=most).json()["records"]) == count
    with keyed.events("s", headers=KEY, seq_num=0, count=3) as events:
        assert events.batch().id == "2,3,300"
    fence = {"records": [{"headers": [["", "fence"]], "body": "token"}]}
    keyed.append_json("s", fence, KEY).json()
    assert keyed.append_json("s", {**ONE, "fencing_token": "x"}, KEY).json(412) == {"fencing_token_mismatch": "token"}
    found = keyed.read("s", KEY, seq_num=10).json()["records"]
    assert (found[0]["headers"], found[0]["body"]) == ([["", "fence"]], "token")


def test_streams_created_on_append(s2: S2Client, cipher: str) -> None:
    client = s2.ensure_basin(f"conf-secret-{next(_numbers)}", stream_cipher=cipher, create_stream_on_append=True)
    client.append_json("new", ONE, KEY).json()
    assert client.read("new", KEY, seq_num=0).json()["records"][0]["body"] == "in private"
    client.read("new", seq_num=0).fails(400, "bad_header")


def test_clients_that_cannot_present_a_key_are_refused_by_name(
    shared_basin: S2Client,
    new_name: str,
    cipher: str,
    s3p: S3PClient,
    released_socket: Callable[..., ReleasedSocket],
) -> None:
    for value in (cipher, None):  # the cipher is that of the basin when the stream is created
        patch = {"stream_cipher": value}
        shared_basin.of(None).send_json("PATCH", f"/v1/basins/{shared_basin.basin}", patch).json()
        name = shared_basin.ensure_stream(new_name.replace("/", "-"))
    shared_basin.append_json(name, ONE, KEY).json()
    stream = f"{shared_basin.basin}/{name}"
    missing = f"missing encryption key for stream cipher '{cipher}': {stream} is encrypted"
    assert s3p.read(name) == S3PError("ERR_ENCRYPTION_KEY", missing)
    assert s3p.append(name, b"x") == S3PError("ERR_ENCRYPTION_KEY", missing)
    with released_socket() as client:
        segment = f"{stream}/0.#epoch.0"
        refused = client.read(segment, 0)
        assert isinstance(refused, released.ErrorMessage), refused
        assert refused.message == missing
        writer = client.writer(segment)
        refused = client.expect(released.ErrorMessage, *append_messages(writer, [b"x"], 1, client.next_id()))
        assert refused.message == missing
    assert shared_basin.tail(name)["seq_num"] == 1
