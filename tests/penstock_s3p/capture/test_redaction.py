"""S3P: bulk strings are searched and envelopes looked into; lines and lengths stay."""

from __future__ import annotations

from support.captures.redaction import CLIENT, SERVER, Tape, at_every_cut, leaks, redacted

from penstock.capture.pcapng import Chunk
from penstock.capture.redaction.rules import RedactionRules
from penstock.model.envelope import wrap
from penstock.model.records import Header, RecordId
from penstock.wire.codec import NEED_DATA
from penstock_s3p.codec import AppendRecords, ErrorReply, Records, S3PServer
from penstock_s3p.codec.encoding import encode_command, encode_reply

HUSH = b"hush-hush-4711"
RULES = RedactionRules(record_headers=(b"x-key",), patterns=(rb"hush-[a-z]+-[0-9]+", rb"[$*][0-9]+"))
BLANK = b"*" * len(HUSH)


def bodies(secret: bytes) -> list[bytes]:
    enveloped = wrap((Header(b"o", b"seen"), Header(b"x-key", secret[:9]), Header(b"x-key", b"")), b"body " + secret)
    return [b"a" + secret, b"\r\n$5\r\n" + secret, enveloped, b"", b"plain"]


def command(secret: bytes) -> bytes:
    return b"".join(encode_command(AppendRecords(b"orders", [body for body in bodies(secret) if body], 17)))


def test_commands_keep_their_framing() -> None:
    client, _ = at_every_cut([(CLIENT, command(HUSH) * 2)], RULES, "s3p")
    blanked = command(BLANK).replace(b"\r\n$5\r\n*", b"\r\n**\r\n*")
    assert client == blanked * 2
    assert not leaks(client, HUSH)
    server = S3PServer()
    server.receive(client)
    event = server.next_event()
    assert isinstance(event, AppendRecords)
    assert event.bodies[0] == b"a" + BLANK
    assert server.next_event() != NEED_DATA


def test_replies() -> None:
    def replies(secret: bytes) -> bytes:
        records = Records.of([(RecordId(1, number), body) for number, body in enumerate(bodies(secret)) if body])
        return encode_reply(records) + encode_reply(ErrorReply("ERR_X", f"no {secret.decode()} here")) + b"$-1\r\n"

    _, server = at_every_cut([(SERVER, replies(HUSH))], RULES, "s3p")
    assert server == replies(BLANK).replace(b"\r\n$5\r\n*", b"\r\n**\r\n*")


def test_what_is_no_s3p_is_searched_as_it_stands() -> None:
    client, _ = at_every_cut([(CLIENT, b"*1\r\n$x\r\n" + HUSH + b"\r\n")], RULES, "s3p")
    assert not leaks(client, HUSH)


def test_a_protocol_that_no_note_names() -> None:
    client, _ = at_every_cut([(CLIENT, command(HUSH))], RULES, "")
    assert client == command(BLANK).replace(b"\r\n$5\r\n*", b"\r\n**\r\n*")


def test_with_the_default_rules_all_goes_by() -> None:
    tape = Tape(protocol="s3p")
    data = command(HUSH)
    for _ in range(3):
        (chunk,) = tape.say(CLIENT, data)
        assert isinstance(chunk, Chunk)
        assert chunk.data is data
    assert tape.close()[0] == data * 3


def test_a_record_longer_than_is_waited_for_is_blanked() -> None:
    size = 5 * 1024 * 1024
    data = b"$%d\r\n" % size + HUSH + bytes(size - len(HUSH)) + b"\r\n$2\r\nhi\r\n"
    client, _ = redacted([(CLIENT, data)], RULES, "s3p", range(0, len(data), 65536))
    assert client == b"$%d\r\n" % size + b"*" * size + b"\r\n$2\r\nhi\r\n"


def test_a_header_in_a_line_of_another_protocol_is_no_reply() -> None:
    _, server = redacted([(SERVER, b"+set-cookie: hush\r\n")], None, "s2")
    assert server == b"+set-cookie:*****\r\n"
