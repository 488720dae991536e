"""Encryption at rest beyond S2's specification: the words of refusals, keys of appends, other protocols."""

from __future__ import annotations

import http.client

import pytest
from support.process import BASIN, GatewayProcess
from support.s2.client import S2Client, b64, stream_path
from support.s2.frames import append_input
from support.s3p.client import S3PClient, S3PError
from support.segment.client import ReleasedSocket

from penstock_pravega.codec import append_messages, released

KEY, OTHER = ({"s2-encryption-key": b64(bytes([number]) * 32)} for number in (1, 2))
RECORD = {"records": [{"body": "in private"}]}
CIPHERS = ("aegis-256", "aes-256-gcm")


@pytest.fixture(params=CIPHERS)
def cipher(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def secret(s2: S2Client, cipher: str) -> S2Client:
    """A client for a basin whose streams get the cipher, with an empty stream `s` in it."""
    client = s2.ensure_basin(f"served-{cipher}", stream_cipher=cipher)
    client.request("DELETE", stream_path("s"))
    client.ensure_stream("s")
    return client


OUT_OF_RANGE = "Invalid header `s2-encryption-key`: invalid encryption key: key material length {} is out of range"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("!!!!", "invalid encryption key for stream cipher '{}': invalid base64"),
        (b64(b"x" * 31), "invalid encryption key length for stream cipher '{}': 31"),
        (b64(b"x" * 33), "invalid encryption key length for stream cipher '{}': 33"),
        ("A" * 45, OUT_OF_RANGE.format(45)),
        (" ", OUT_OF_RANGE.format(0)),
    ],
)
def test_words_about_malformed_keys(secret: S2Client, cipher: str, value: str, words: str) -> None:
    head = {"s2-encryption-key": value}
    assert secret.append_json("s", RECORD, head).fails(400, "bad_header") == words.format(cipher)
    assert secret.read("s", head, seq_num=0).fails(400, "bad_header") == words.format(cipher)


@pytest.mark.parametrize("carrier", ["h1", "h2"])
def test_an_append_with_another_key_than_the_streams(secret: S2Client, carrier: str) -> None:
    """s2-lite takes it, and all readers fail at its records."""
    with secret.append_session("s", carrier, OTHER) as session:
        secret.append_json("s", RECORD, KEY).json()
        session.send(append_input(b"2"))
        status, body = session.failure()
    assert (status, body["code"], body["message"]) == (400, "decryption_failed", "record decryption failed")
    for refused in (secret.append_json("s", RECORD, OTHER), secret.append_proto("s", append_input(b"2"), OTHER)):
        assert refused.fails(400, "decryption_failed") == "record decryption failed"
    with secret.append_session("s", carrier, OTHER) as session:
        assert session.stream.status == 400
    assert secret.tail("s")["seq_num"] == 1
    secret.append_json("s", RECORD, KEY).json()


def test_a_request_leaves_no_key_for_the_next(secret: S2Client) -> None:
    """On one connection."""
    connection = http.client.HTTPConnection(*secret.address, timeout=10)
    statuses = []
    for key in (KEY, {}, KEY):
        head = {**secret.head(key), "content-type": "application/json"}
        connection.request("POST", stream_path("s") + "/records", b'{"records":[{"body":"x"}]}', head)
        response = connection.getresponse()
        statuses.append(response.status)
        response.read()
    connection.close()
    assert statuses == [200, 400, 200]


def test_clients_that_cannot_present_a_key_are_refused_by_name(
    gateway: GatewayProcess, shared_basin: S2Client, cipher: str
) -> None:
    for value in (cipher, None):  # the cipher is that of the basin when the stream is created
        patch = {"stream_cipher": value}
        shared_basin.of(None).send_json("PATCH", f"/v1/basins/{BASIN}", patch).json()
        name = shared_basin.ensure_stream(f"secret-{cipher}")
    shared_basin.append_json(name, RECORD, KEY).json()
    missing = f"missing encryption key for stream cipher '{cipher}': {BASIN}/{name} is encrypted"
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as s3p:
        assert s3p.read(name) == S3PError("ERR_ENCRYPTION_KEY", missing)
        assert s3p.append(name, b"x") == S3PError("ERR_ENCRYPTION_KEY", missing)
    with ReleasedSocket(("127.0.0.1", gateway.segment_port)) as client:
        segment = f"{BASIN}/{name}/0.#epoch.0"
        refused = client.read(segment, 0)
        assert isinstance(refused, released.ErrorMessage), refused
        assert refused.message == missing
        writer = client.writer(segment)
        refused = client.expect(released.ErrorMessage, *append_messages(writer, [b"x"], 1, client.next_id()))
        assert refused.message == missing
    assert shared_basin.tail(name)["seq_num"] == 1
