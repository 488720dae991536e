"""Cases about JSON, protobuf, events and S2S together: they are ways to one stream (S2 fact sheet, 5.2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from penstock.protocols.conformance import Cases, require_equal
from penstock_proto import s2_pb2 as pb
from penstock_s2.conformance.session import (
    BASE64,
    EVENTS,
    SESSION,
    S2TestSession,
    append_frame,
    append_input,
    b64,
    parse_message,
    record,
    value_of,
)

__all__ = ["CASES"]

CASES: Final = Cases[S2TestSession]()
_ROUNDS: Final = 10
_BATCH: Final = 3
"""Records of a batch of one of several writers."""


@CASES.case("transports")
async def same_records_by_every_way(session: S2TestSession) -> None:
    """A record is the same by every way, however it was appended."""
    await session.create()
    body, headers = bytes(range(256)), [(b"\x00\xff", b"value"), (b"name", b""), (b"name", b"\r\n")]
    value = {"headers": [[b64(name), b64(text)] for name, text in headers], "body": b64(body)}
    message = record(body, *headers)
    await session.expect(200, "POST", session.records, {"records": [value]}, BASE64)
    await session.append_protobuf(append_input(message))
    async with session.exchange("POST", SESSION) as exchange:
        await exchange.send(append_frame(message))
        await exchange.acks(1)
    by_json = (await session.read(200, BASE64, seq_num=0))["records"]
    require_equal([(each["headers"], each["body"]) for each in by_json], [(value["headers"], value["body"])] * 3)
    async with session.exchange("GET", EVENTS, BASE64, seq_num=0, count=3) as exchange:
        *batches, _ = await exchange.events()
        require_equal([each for event in batches for each in value_of(event["data"])["records"]], by_json)
    async with session.exchange("GET", SESSION, seq_num=0, count=3) as exchange:
        frames = await exchange.messages()
    by_session = [each for frame in frames for each in parse_message(pb.ReadBatch, bytes(frame.payload)).records]
    require_equal(list((await session.read_protobuf(seq_num=0)).records), by_session)
    got = [([(each.name, each.value) for each in got.headers], got.body) for got in by_session]
    require_equal(got, [(headers, body)] * 3)


@CASES.case("transports")
async def acknowledged_records_are_visible(session: S2TestSession) -> None:
    """However a record was appended, once it is acknowledged the next request of any kind sees it."""
    await session.create()
    async with session.exchange("POST", SESSION) as exchange:
        for number in range(_ROUNDS):
            body = b"%d" % number
            if number % 3 == 0:
                await session.append(body.decode())
            elif number % 3 == 1:
                await session.append_protobuf(append_input(body))
            else:
                await exchange.send(append_frame(body))
                await exchange.acks(1)
            await session.require_tail(number + 1)
            require_equal(await session.bodies(tail_offset=1), [body.decode()])
            require_equal([each.body for each in (await session.read_protobuf(seq_num=number)).records], [body])
            for media in (EVENTS, SESSION):
                require_equal(await session.read_all_bodies(media, seq_num=number, count=1), [body.decode()])


@CASES.case("transports")
async def writers_of_every_kind(session: S2TestSession) -> None:
    """Batches of writers of every kind make one sequence without a gap, each whole, and each writer's in order."""
    await session.create()

    async def by_json(bodies: list[bytes]) -> None:
        await session.append(*(body.decode() for body in bodies))

    async def by_protobuf(bodies: list[bytes]) -> None:
        require_equal((await session.append_protobuf(append_input(*bodies))).status, 200)

    async def write(writer: str, append: Callable[[list[bytes]], Awaitable[None]]) -> None:
        for number in range(_ROUNDS):
            await append(_bodies(writer, number))

    async def write_session(writer: str) -> None:
        async with session.exchange("POST", SESSION) as exchange:
            for number in range(_ROUNDS):
                await exchange.send(append_frame(*_bodies(writer, number)))
            await exchange.acks(_ROUNDS)

    async with trio.open_nursery() as nursery:
        for name in ("json-1", "json-2"):
            nursery.start_soon(write, name, by_json)
        nursery.start_soon(write, "protobuf", by_protobuf)
        for name in ("session-1", "session-2"):
            nursery.start_soon(write_session, name)
    records = (await session.read_protobuf(seq_num=0)).records
    require_equal([each.seq_num for each in records], list(range(5 * _ROUNDS * _BATCH)))
    require_equal([each.timestamp for each in records], sorted(each.timestamp for each in records))
    numbers: dict[str, int] = {}
    for first in range(0, len(records), _BATCH):
        writer = records[first].body.decode().split()[0]
        number = numbers.get(writer, 0)
        require_equal([each.body for each in records[first : first + _BATCH]], _bodies(writer, number))
        numbers[writer] = number + 1


def _bodies(writer: str, number: int) -> list[bytes]:
    return [f"{writer} {number} {index}".encode() for index in range(_BATCH)]


@CASES.case("transports")
async def one_winner_per_position(session: S2TestSession) -> None:
    """Of appends at once with the same match_seq_num exactly one is applied."""
    await session.create()
    statuses: list[int] = []

    async def append(name: str, seq_num: int) -> None:
        batch = append_input(f"{name} {seq_num}".encode(), match_seq_num=seq_num)
        response = await session.append_protobuf(batch)
        if response.status == 412:
            require_equal(value_of(response.body), {"seq_num_mismatch": seq_num + 1})
        statuses.append(response.status)

    for seq_num in range(_ROUNDS):
        statuses.clear()
        async with trio.open_nursery() as nursery:
            for name in "abcde":
                nursery.start_soon(append, name, seq_num)
        require_equal(sorted(statuses), [200, *[412] * 4])
    bodies = await session.bodies(seq_num=0)
    require_equal([body[2:] for body in bodies], [str(seq_num) for seq_num in range(_ROUNDS)])
