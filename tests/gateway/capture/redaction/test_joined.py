"""Preludes of connections that are recorded from their middle hold no secrets, and let what follows be read."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.captures.redaction import CLIENT, conversation

from penstock.capture.pcapng import CaptureEvent, Chunk, Joined, Opened
from penstock.capture.redaction.redactor import Redactor
from penstock.capture.redaction.rules import RedactionRules
from penstock.wire.codec import Role
from penstock.wire.http import Body, HttpCodec, Received, RequestHead, connection
from penstock_proto import s2_pb2
from penstock_s2.codec.s2s.frames import encode_frame

SECRET = "hush-hush-4711"
RULES = RedactionRules(patterns=(rb"hush-[a-z]+-[0-9]+",))


def output(codec: HttpCodec) -> bytes:
    return b"".join(bytes(part) for part in codec.output(1 << 20))


def asking(client: HttpCodec, token: str, target: str = "/v1/streams/s/records", kind: str = "text/plain") -> bytes:
    """A request whose body is still to come."""
    number = client.new_stream()
    headers = [("authorization", f"Bearer {token}"), ("content-type", kind), ("transfer-encoding", "chunked")]
    client.send(RequestHead(number, "POST", target, headers, "example.test"))
    return output(client)


def joined(alpn: str, target: str = "/v1/streams/s/records", kind: str = "text/plain") -> tuple[HttpCodec, Joined]:
    """A client in the middle of a request with a secret, and what a server that heard it all knows."""
    client, server = connection(alpn, Role.CLIENT), connection(alpn, Role.SERVER)
    data = asking(client, SECRET, target, kind)
    server.receive(data)
    while isinstance(server.next_event(), Received):
        pass
    preludes = server.preludes()
    assert preludes is not None and SECRET.encode() in preludes.received and not preludes.held
    offsets = len(data), len(output(server))
    return client, Joined(conversation(), 1, server.version, *offsets, preludes.received, preludes.sent)


def redacted(rules: RedactionRules, joined: Joined, *data: bytes) -> list[CaptureEvent]:
    redactor = Redactor(rules)
    offset = joined.client_offset
    out = redactor.redact(Opened(joined.conversation, 0, offset, joined.server_offset))
    out += redactor.redact(joined)
    for each in data:
        out += redactor.redact(Chunk(joined.conversation, 2, CLIENT, offset, each))
        offset += len(each)
    assert not redactor.failures
    return out + redactor.flush()


@pytest.mark.parametrize("rules", [RedactionRules(), RULES])
@pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
def test_secrets_are_blanked_and_lengths_kept(alpn: str, rules: RedactionRules) -> None:
    _, event = joined(alpn)
    (told,) = [each for each in redacted(rules, event) if isinstance(each, Joined)]
    assert SECRET.encode() not in told.client and b"*" * len(SECRET) in told.client
    assert replace(told, client=b"") == replace(event, client=b"")
    assert len(told.client) == len(event.client)


def test_a_secret_in_a_target_is_blanked() -> None:
    for alpn in ("http/1.1", "h2"):
        _, event = joined(alpn, f"/v1/streams/{SECRET}/records")
        (told,) = [each for each in redacted(RULES, event) if isinstance(each, Joined)]
        assert SECRET.encode() not in told.client


def test_a_head_that_refers_to_a_secret_before_goes_on_as_it_is() -> None:
    """It is an index, which leads to asterisks in the redacted table; a new secret is blanked in its place."""
    client, event = joined("h2")
    known, new = asking(client, SECRET), asking(client, "another-secret")
    chunks = [each for each in redacted(RedactionRules(), event, known, new) if isinstance(each, Chunk)]
    said = b"".join(bytes(each.data) for each in chunks)
    assert said.startswith(known) and len(said) == len(known) + len(new)
    assert said[len(known) :] != new


def test_a_session_is_not_taken_to_begin_where_the_recording_does() -> None:
    """The rest of a frame would be taken for frames, of which one hides what follows."""
    rules = RedactionRules(record_headers=(b"x-key",))
    message = s2_pb2.AppendInput()
    message.records.add(body=b"body").headers.add(name=b"x-key", value=SECRET.encode())
    frame = b"".join(bytes(piece) for piece in encode_frame([message.SerializeToString()]))
    misleading = (len(frame) + 200).to_bytes(3, "big") + b"\0"
    for alpn in ("http/1.1", "h2"):
        client, event = joined(alpn, kind="s2s/proto")
        client.send(Body(1, [misleading, frame, frame]))
        chunks = [each for each in redacted(rules, event, output(client)) if isinstance(each, Chunk)]
        assert SECRET.encode() not in b"".join(bytes(each.data) for each in chunks)


def test_what_is_no_prelude_is_not_written() -> None:
    _, event = joined("h2")
    broken = replace(event, client=event.client[:-3])
    assert not [each for each in redacted(RULES, broken) if isinstance(each, Joined)]
