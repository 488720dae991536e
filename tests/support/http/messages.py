"""Handwritten HTTP/1.1 messages of S2 clients and servers, and the events that a dialogue makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.captures.dialogues import conversation, cut_up, events, hear, parts

from penstock.capture.dialogue import Message, Problem, SeenRecord
from penstock.capture.dialogue.http.dialogue import HttpDialogue
from penstock.capture.pcapng import Sender
from penstock_proto import s2_pb2 as pb

__all__ = [
    "EVENTS",
    "INPUT",
    "JSON",
    "LAST",
    "OPEN",
    "PATH",
    "PROTO",
    "READ",
    "SESSION",
    "STAMPED",
    "Heard",
    "ack",
    "answer",
    "batch",
    "chunk",
    "head",
    "heard",
    "known",
    "request",
    "whole",
]

PATH = "/v1/streams/s/records"
INPUT = pb.AppendInput(records=[pb.AppendRecord(body=b"one"), pb.AppendRecord(body=b"two")]).SerializeToString()
STAMPED = pb.AppendInput(records=[pb.AppendRecord(body=b"x", timestamp=n) for n in (5, 6, 7)]).SerializeToString()


def ack(start: int, end: int, stamps: tuple[int, int] = (9, 9)) -> bytes:
    first, last = ((start, stamps[0]), (end, stamps[1]))
    positions = [pb.StreamPosition(seq_num=seq_num, timestamp=stamp) for seq_num, stamp in (first, last, last)]
    return pb.AppendAck(start=positions[0], end=positions[1], tail=positions[2]).SerializeToString()


def batch(first: int, *bodies: bytes) -> bytes:
    records = [pb.SequencedRecord(seq_num=first + n, timestamp=9, body=body) for n, body in enumerate(bodies)]
    return pb.ReadBatch(records=records).SerializeToString()


def head(first: str, *fields: str) -> bytes:
    return "\r\n".join([first, *fields, "", ""]).encode()


def request(method: str, *fields: str, path: str = PATH) -> bytes:
    return head(f"{method} {path} HTTP/1.1", "host: h", "s2-basin: basin-one", *fields)


def whole(first: bytes, body: bytes) -> bytes:
    return first[:-2] + b"content-length: %d\r\n\r\n%b" % (len(body), body)


def answer(status: int, content_type: str, body: bytes, *fields: str) -> bytes:
    return whole(head(f"HTTP/1.1 {status} X", f"content-type: {content_type}", *fields), body)


SESSION = request("POST", "content-type: s2s/proto", "transfer-encoding: chunked")
READ = request("GET", "content-type: s2s/proto")
OPEN = head("HTTP/1.1 200 OK", "content-type: s2s/proto", "transfer-encoding: chunked")
EVENTS = head("HTTP/1.1 200 OK", "content-type: text/event-stream", "transfer-encoding: chunked")
JSON = "content-type: application/json"
PROTO = "content-type: application/protobuf"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"

Heard = tuple[list[Message], list[Problem], list[SeenRecord]]


def heard(*said: tuple[Sender, bytes], closed: Sequence[Sender] = ()) -> Heard:
    of = conversation("s2")
    found = parts(hear(HttpDialogue(of), events(of, said, closed=closed)))
    again = parts(hear(HttpDialogue(of), events(of, cut_up(said, 3), closed=closed)))
    assert [(each.kind, each.offset, each.length) for each in again[0]] == [
        (each.kind, each.offset, each.length) for each in found[0]
    ]
    assert [(each.rule, each.offset) for each in again[1]] == [(each.rule, each.offset) for each in found[1]]
    return found


def known(records: Sequence[SeenRecord]) -> list[tuple[Any, ...]]:
    return [(each.body, each.seq_num, each.timestamp, each.acknowledged, each.failure) for each in records]
