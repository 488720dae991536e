"""Bytes that cannot be searched are withheld: their message is marked, and its sender is not blamed for them."""

from __future__ import annotations

import pytest
from support.captures.redaction import CLIENT, SERVER, Said, conversation

from penstock.capture.dialogue import Message, Problem
from penstock.capture.dialogue.dialogues import Dialogues
from penstock.capture.dialogue.failures import Failures
from penstock.capture.pcapng import CaptureEvent, CaptureReader, CaptureWriter, Chunk, Closed, Opened
from penstock.capture.redaction.redactor import Redactor
from penstock.capture.redaction.rules import RedactionRules
from penstock.recorder.captures.judging import judged

LONG = b"x" * (5 << 20)
JSON = b'{"records":[{"body":"%b"}]}' % LONG
POST = b"POST /v1/streams/one/records HTTP/1.1\r\nhost: basin-1.example\r\ncontent-type: application/json\r\n"
ACK = b'{"start":%b,"end":%b,"tail":%b}' % ((b'{"seq_num":0,"timestamp":0}',) * 3)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\ncontent-type: application/json\r\n\r\n%b" % (len(ACK), ACK)


def items(protocol: str, said: Said) -> list[Message | Problem]:
    """Return the items of a conversation that was redacted, written to a file and read again."""
    redactor = Redactor(RedactionRules(patterns=(rb"card-[0-9]+",)))
    of, offsets = conversation(protocol), {CLIENT: 0, SERVER: 0}
    events: list[CaptureEvent] = [Opened(of, 0)]
    for sender, data in said:
        events.append(Chunk(of, 1, sender, offsets[sender], data))
        offsets[sender] += len(data)
    events += [Closed(of, 2, sender) for sender in (CLIENT, SERVER)]
    writer, reader = CaptureWriter("test"), CaptureReader()
    reader.receive(b"".join(writer.begin()))
    for event in events:
        reader.receive(b"".join(block for each in redactor.redact(event) for block in writer.encode(each)))
    dialogues = Dialogues()
    return [item for event in reader.events() for item in dialogues.receive(event)]


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ("s2", [(CLIENT, POST + b"content-length: %d\r\n\r\n%b" % (len(JSON), JSON)), (SERVER, OK)]),
        ("s2", [(CLIENT, POST + b"content-encoding: br\r\ncontent-length: 9\r\n\r\nwhat else"), (SERVER, OK)]),
    ],
)
def test_what_cannot_be_searched_is_marked_and_not_judged(protocol: str, said: Said) -> None:
    found = items(protocol, said)
    assert sum(item.withheld for item in found) > 0
    assert not any(map(Failures().counts, found))
    assert not any(judgement.violations for judgement in judged(found))
