"""Reader groups' readers that are online, by the events that the Java client 0.13.0 wrote."""

from __future__ import annotations

from struct import pack

import pytest
from support.controller import event

from penstock.model.failures import FailureCode, OperationFailed
from penstock_pravega.controller.controller.online import OnlineReaders

NEW = bytes.fromhex("00000001 00000003 00 00000000")
COMPACTED = bytes.fromhex(
    "0000000100010003000000013273000003000000002200000000000075300000000000000bb801000573632f73740001000573632f737400"
    "010000002600000000000075300000000000000bb801000573632f73740001000573632f73740000000003020000001900ffffffffffffff"
    "ff000000000000000000000000000000003e0000020000000030010005636865636b010005636865636b03000667c3a46d6d610005616c70"
    "6861000462657461010005636865636b000001000000010103000667c3a46d6d617fffffffffffffff0004626574617fffffffffffffff00"
    "05616c7068617fffffffffffffff01001073632f73742f322e2365706f63682e3101000000000000000103000667c3a46d6d61000005616c"
    "7068610000046265746101001073632f73742f312e2365706f63682e3000000000000000070000010000006001001073632f73742f312e23"
    "65706f63682e30000000000000000702001073632f73742f312e2365706f63682e303fe00000000000003ff0000000000000001073632f73"
    "742f322e2365706f63682e3100000000000000003ff0000000000000020000000100"
)
"""A whole state: readers alpha, beta and gämma, of whom only one has a segment, and a segment that is to come."""


def structure(kind: int, fields: bytes) -> bytes:
    return bytes((0, kind, 0, 1, 0)) + pack(">i", len(fields)) + fields


def text(name: str) -> bytes:
    return pack(">H", len(name.encode())) + name.encode()


def updates(*structures: bytes) -> bytes:
    return event(pack(">i", 2) + b"".join(pack(">i", len(one)) + one for one in structures))


def came(name: str) -> bytes:
    return structure(2, text(name))


def went(name: str) -> bytes:
    return structure(3, text(name) + bytes((1,)) + text("sc/st/0.#epoch.0") + bytes(8))


SEGMENT = structure(5, text("one") + text("sc/st/0.#epoch.0"))
STREAM = event(NEW) + updates(came("one"), came("two")) + updates(SEGMENT) + updates(went("one"), came("three"))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_readers_come_and_go(size: int) -> None:
    readers = OnlineReaders()
    for at in range(0, len(STREAM), size):
        readers.receive(STREAM[at : at + size])
    assert readers.names == {"two", "three"}


def test_a_whole_state_replaces_what_was_before() -> None:
    readers = OnlineReaders()
    readers.receive(STREAM + event(COMPACTED))
    assert readers.names == {"alpha", "beta", "gämma"}
    readers.receive(updates(went("alpha")))
    assert readers.names == {"beta", "gämma"}
    readers.receive(event(NEW))
    assert readers.names == set()


@pytest.mark.parametrize(
    "data",
    [
        event(b""),
        event(pack(">i", 3)),
        event(pack(">i", 2) + pack(">i", 20) + came("one")[:8]),
        updates(structure(2, b"\0\7one")),
        updates(b"\1" + came("one")[1:]),
        event(COMPACTED[:100]),
        event(COMPACTED.replace(b"alpha", b"al")),
        event(pack(">i", 2) + pack(">i", -4) + came("one")),
        b"\0\0\0\1" + bytes(8),
        pack(">iI", 0, 1 << 30),
    ],
)
def test_anything_else_is_an_error(data: bytes) -> None:
    with pytest.raises(OperationFailed) as failed:
        OnlineReaders().receive(data)
    assert failed.value.failure.code is FailureCode.STORAGE
