"""The segment codec against Pravega's own protocol classes (Java, 0.13.0): messages, and both ends' appends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.examples import examples
from support.pravega.java import MAVEN_SECONDS, JavaProgram, running_java
from support.segment.messages import MESSAGES, WRITER, joined, message_of, pull

from penstock_pravega.codec import (
    BlockAppended,
    Dialect,
    SegmentMessage,
    SegmentServer,
    append_messages,
    encode,
    join_events,
    released,
    split_events,
)
from penstock_pravega.codec.layout import HEADER, HEADER_BYTES

JAVA = Path(__file__).parent / "java"


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProgram]:
    with running_java(JAVA, "Oracle", tmp_path_factory.mktemp("oracle")) as program:
        yield program


def test_the_oracle_refuses_what_is_no_message(oracle: JavaProgram) -> None:
    assert oracle.ask("message", "0000006300000000") == ["refused", "InvalidMessageException"]


NOT_ASKED = {
    released.LocateOffset: "wire version 17, which is not released",
    released.OffsetLocated: "wire version 17, which is not released",
    released.Event: "Java reads it inside others only; it is in the appends below",
    released.AppendBlock: "Java's class writes its writer id only; it is in the appends below",
}
CLASSES = [
    pytest.param(cls, id=cls.__name__)
    for dialect, cls in MESSAGES
    if dialect is Dialect.RELEASED and cls not in NOT_ASKED
]
CODES = {"AuthTokenCheckFailed": (-1, 1), "ErrorMessage": (-1, 0)}
"""The error codes that Java knows; it writes others as -1."""


@pytest.mark.timeout(MAVEN_SECONDS + 120)
@pytest.mark.parametrize("cls", CLASSES)
def test_messages(cls: type[SegmentMessage], oracle: JavaProgram) -> None:
    """Java reads the messages that we encode, and encodes them to the same bytes."""

    @examples(least=40, most=40)
    @given(message_of(cls))
    def check(message: SegmentMessage) -> None:
        if cls.__name__ in CODES:
            lowest, highest = CODES[cls.__name__]
            if not lowest <= getattr(message, "error_code") <= highest:  # noqa: B009
                return
        if hasattr(message, "reserved"):
            message = replace(message, reserved=b"")  # type: ignore[type-var]  # Java reads it and writes nothing
        assert oracle.ask("message", joined(message).hex()) == [cls.__name__, joined(message).hex()]

    check()


@pytest.mark.timeout(MAVEN_SECONDS + 120)
@pytest.mark.parametrize("cls", CLASSES)
def test_short_forms(cls: type[SegmentMessage], oracle: JavaProgram) -> None:
    """Java's defaults for optional fields that are missing are ours."""
    if not any(field.tail for field in cls.fields):
        return

    @examples(most=10)
    @given(message_of(cls))
    def check(message: SegmentMessage) -> None:
        short = b"".join(encode(message, tail=False))
        filled = {field.name: field.default if field.tail else getattr(message, field.name) for field in cls.fields}
        assert oracle.ask("message", short.hex()) == [cls.__name__, joined(cls(**filled)).hex()]

    check()


def test_a_server_of_theirs_hears_our_appends(oracle: JavaProgram) -> None:
    @examples(least=40, most=300)
    @given(st.lists(st.binary(max_size=30), min_size=1, max_size=6), st.none() | st.integers(0, 300))
    def check(bodies: list[bytes], size: int | None) -> None:
        if size is not None:
            size = max(size, len(join_events(bodies[:-1])))
        setup = released.SetupAppend(1, WRITER, "seg")
        said = joined(setup, *append_messages(WRITER, bodies, 9, 4, block_size=size))
        assert oracle.ask("appends", said.hex()) == ["appends", f"9,{len(bodies)},4,{join_events(bodies).hex()}"]

    check()


def messages_in(data: bytes) -> list[tuple[int, bytes]]:
    """Type and body of each message."""
    found, at = [], 0
    while at < len(data):
        type_id, length = HEADER.unpack_from(data, at)
        at += HEADER_BYTES + length
        found.append((type_id, data[at - length : at]))
    return found


def test_a_client_of_theirs_is_heard(oracle: JavaProgram) -> None:
    """With blocks of sizes that it did not know the content for: PartialEvent and Padding are really used."""
    wrappers = set()

    @examples(least=40, most=300)
    @given(st.integers(0, 300), st.lists(st.integers(1, 200), min_size=1, max_size=12))
    def check(block: int, sizes: list[int]) -> None:
        (word, said) = oracle.ask("client", block, *sizes)
        assert word == "client"
        data = bytes.fromhex(said)
        blocks = [body[16:] for type_id, body in messages_in(data) if type_id == released.AppendBlock.type_id]
        for content in blocks:
            wrappers.update(kind for kind in (b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe") if kind in content)
        server = SegmentServer()
        server.receive(data)
        hello, setup, *appends, keep_alive = pull(server)
        assert (hello, keep_alive) == (released.Hello(16, 5), released.KeepAlive())
        assert setup == released.SetupAppend(1, WRITER, "seg")
        assert all(isinstance(append, BlockAppended) for append in appends)
        events = split_events(b"".join(append.data for append in appends))
        assert events == [bytes([number]) * size for number, size in enumerate(sizes, 2)]
        assert sum(append.number_of_events for append in appends) == len(sizes)
        assert appends[-1].last_event_number == len(sizes)

    check()
    assert wrappers == {b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe"}
