"""The loss policy of S3P, both ways, and what it means for READ and APPEND through a front and a real store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from support.s3p.front import BASIN, serving, store_with_basin
from trio.testing import MockClock

from penstock.core.back import Back
from penstock.model.envelope import ENVELOPE_MARK, wrap
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.features import Feature, feature_of
from penstock.model.operations import Append, CreateStream
from penstock.model.records import Columns, Header, Headers, RecordBatch, RecordId, StreamRef, metered_size
from penstock.routing.loss.loss import Loss, LossPolicy, carry, take_in
from penstock_s3p.codec import AppendedId, AppendRecords, Command, ErrorReply, ReadRecords, Records, Reply
from penstock_s3p.front import S3PFront, S3PSettings

TAGGED = (Header(b"k", b"v"),)
FENCE = (Header(b"", b"fence"),)
POLICIES = st.builds(LossPolicy, st.sampled_from(Loss), st.sampled_from(Loss), st.sampled_from(Loss))
HEADERS = st.sampled_from([(), (), TAGGED, FENCE, (Header(b"a", b""), Header(b"\xff", b"x"))])
BODIES = st.sampled_from(
    [b"", b"x", b"body", ENVELOPE_MARK, ENVELOPE_MARK + b"\x01", wrap(TAGGED, b"inside"), wrap((), b"")]
)
RECORDS = st.lists(st.tuples(HEADERS, BODIES), min_size=1, max_size=8)


def batch_of(records: list[tuple[Headers, bytes]]) -> RecordBatch:
    count = len(records)
    headers = {index: some for index, (some, _) in enumerate(records) if some}
    timestamps = [10 + index // 3 for index in range(count)]
    return RecordBatch(
        Columns(range(count), timestamps, [body for _, body in records], headers), first_id=RecordId(10, 0)
    )


def test_the_defaults() -> None:
    """Refuse what would be lost; leave out commands, which have been carried out already."""
    assert LossPolicy() == LossPolicy(headers=Loss.REFUSE, empty_body=Loss.REFUSE, command_records=Loss.DROP)
    assert not LossPolicy().envelopes


@given(RECORDS, POLICIES)
def test_carry(records: list[tuple[Headers, bytes]], policy: LossPolicy) -> None:
    """Record by record: kept as it is, enveloped, dropped and counted, or refused, which ends the batch."""
    carried = carry(batch_of(records), policy)
    delivered = list(zip(map(RecordId, carried.timestamps, carried.seqs), carried.bodies, strict=True))
    dropped = 0
    for index, (headers, body) in enumerate(records):
        record_id = RecordId(10 + index // 3, index % 3)
        feature = feature_of(headers, body)
        if feature is Feature.HEADERS and policy.headers is Loss.DROP:
            dropped += 1
            headers, feature = (), feature_of((), body)
        loss = None if feature is None else policy.about(feature)
        if loss is Loss.REFUSE:
            assert carried.refusal == (record_id, feature)
            break
        if loss is Loss.DROP:
            dropped += 1
            continue
        looks_like_one = policy.envelopes and body.startswith(ENVELOPE_MARK)
        expected = wrap(headers, body) if loss is Loss.ENVELOPE or looks_like_one else body
        assert delivered.pop(0) == (record_id, expected)
    else:
        assert carried.refusal is None
    assert not delivered and carried.dropped.total() == dropped


@given(RECORDS)
def test_with_envelopes_nothing_is_lost(records: list[tuple[Headers, bytes]]) -> None:
    """A record that an S3P client reads and appends again is unchanged."""
    policy = LossPolicy(Loss.ENVELOPE, Loss.ENVELOPE, Loss.ENVELOPE)
    bodies, headers = take_in(carry(batch_of(records), policy).bodies, policy)
    assert [(headers.get(index, ()), body) for index, body in enumerate(bodies)] == records


@given(st.lists(BODIES.filter(bool), min_size=1))
def test_without_envelopes_bodies_are_what_they_are(bodies: list[bytes]) -> None:
    assert take_in(bodies, LossPolicy()) == (bodies, {})


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (ENVELOPE_MARK, "record 2 begins like an envelope, but envelope version missing is not known"),
        (ENVELOPE_MARK + b"\x02", "version 2 is not known"),
        (wrap(FENCE, b"token"), "the record in the envelope of record 2 is a command, which is not enveloped here"),
        (wrap((), b""), "has an empty body"),
    ],
)
def test_envelopes_that_are_refused(body: bytes, why: str) -> None:
    """A broken one, and one whose record could not be read back by those who see only S3P."""
    with pytest.raises(OperationFailed, match=why) as caught:
        take_in([b"x", body], LossPolicy(headers=Loss.ENVELOPE))
    assert caught.value.failure.code is FailureCode.NOT_REPRESENTABLE


# ---- through a front -------------------------------------------------------------------------------------------------


STREAM = StreamRef(BASIN, "s")


async def put(back: Back, ms: int, bodies: list[bytes], headers: Mapping[int, Headers]) -> None:
    """Append as a client of another protocol."""
    append = Append(STREAM, bodies, metered_size(bodies, headers), headers=headers, exact_timestamp=ms)
    await back.perform(append)


async def say(front: S3PFront, *commands: Command) -> list[Reply | None]:
    """The replies to pipelined commands, over a connection of their own."""
    async with serving(front) as connect:
        return await connect().call(*commands)


async def test_refusal_names_the_record_and_the_way_past_it(tmp_path: Path, clock: MockClock) -> None:
    async with store_with_basin(tmp_path) as back:
        await back.perform(CreateStream(STREAM))
        await put(back, 5, [b"a", b"b", b"", b"d"], {1: TAGGED})
        first, second, third, fourth = await say(
            S3PFront(back),
            ReadRecords(b"s"),
            ReadRecords(b"s", min_id=RecordId(5, 1)),
            ReadRecords(b"s", min_id=RecordId(5, 2)),
            ReadRecords(b"s", min_id=RecordId(5, 3)),
        )
        assert first == Records([5], [0], [b"a"]), "what stands before the refused record is given"
        assert second == ErrorReply(
            "ERR_NOT_REPRESENTABLE",
            "record 5-1 of stream penstock/s has headers, which S3P cannot carry; read from MIN_ID 5-2 to skip it",
        )
        assert isinstance(third, ErrorReply) and "record 5-2" in third.message and "empty body" in third.message
        assert fourth == Records([5], [3], [b"d"])


async def test_drop_goes_on_behind_what_it_leaves_out(tmp_path: Path, clock: MockClock) -> None:
    """If the first COUNT records are all dropped, the READ finds later ones; each dropped record is counted."""
    policy = LossPolicy(Loss.DROP, Loss.DROP, Loss.DROP)
    async with store_with_basin(tmp_path) as back:
        await back.perform(CreateStream(STREAM))
        for ms in range(4):
            await put(back, ms, [b""] * 700, {})
        await put(back, 9, [b"tok", b"plain", b"tagged", b""], {0: FENCE, 2: TAGGED, 3: TAGGED})
        front = S3PFront(back, S3PSettings(loss=policy))
        replies = await say(front, ReadRecords(b"s", 3), ReadRecords(b"s", 3, min_id=RecordId(9, 3)))
        assert replies == [Records([9, 9], [1, 2], [b"plain", b"tagged"]), Records([], [], [])]
        assert front.dropped == {Feature.EMPTY_BODY: 2802, Feature.COMMAND: 1, Feature.HEADERS: 3}


async def test_drop_gives_no_more_than_count(tmp_path: Path, clock: MockClock) -> None:
    async with store_with_basin(tmp_path) as back:
        await back.perform(CreateStream(STREAM))
        await put(back, 1, [b""] * 5 + [b"%d" % n for n in range(10)], {})
        front = S3PFront(back, S3PSettings(loss=LossPolicy(empty_body=Loss.DROP)))
        assert await say(front, ReadRecords(b"s", 3), ReadRecords(b"s", 7)) == [
            Records([1] * 3, [5, 6, 7], [b"0", b"1", b"2"]),
            Records([1] * 2, [5, 6], [b"0", b"1"]),
        ]


async def test_dropped_records_do_not_end_a_wait(tmp_path: Path, clock: MockClock) -> None:
    async with store_with_basin(tmp_path) as back, trio.open_nursery() as nursery:
        await back.perform(CreateStream(STREAM))
        front = S3PFront(back)
        began = trio.current_time()

        async def command_then_record() -> None:
            for ms in range(3):
                await trio.sleep(1)
                await put(back, ms, [b"token"], {0: FENCE})
            await trio.sleep(3)
            await put(back, 9, [b"record"], {})

        nursery.start_soon(command_then_record)
        first, second = await say(front, ReadRecords(b"s", 1, 4000), ReadRecords(b"s", 1, 9000))
        assert first == Records([], [], []), "neither ended nor prolonged"
        assert second == Records([9], [0], [b"record"])
        assert 5.5 <= trio.current_time() - began <= 8
        assert front.dropped == {Feature.COMMAND: 6}, "each of the two READs came past all three"


async def test_envelopes_both_ways(tmp_path: Path, clock: MockClock) -> None:
    policy = LossPolicy(headers=Loss.ENVELOPE, empty_body=Loss.ENVELOPE)
    async with store_with_basin(tmp_path) as back:
        await back.perform(CreateStream(STREAM))
        await put(back, 1, [b"plain", b"tagged", b"", ENVELOPE_MARK], {1: TAGGED})
        front = S3PFront(back, S3PSettings(loss=policy))
        sent = [wrap(TAGGED, b"again"), b"plain", wrap((), b"plain too")]
        replies = await say(
            front,
            AppendRecords(b"s", sent, 2),
            AppendRecords(b"s", [ENVELOPE_MARK], 2),
            AppendRecords(b"s", [b"last"], 2),
            ReadRecords(b"s"),
        )
        assert replies[0] == AppendedId(RecordId(2, 2))
        assert isinstance(replies[1], ErrorReply) and replies[1].code == "ERR_NOT_REPRESENTABLE"
        assert replies[2] == AppendedId(RecordId(2, 3)), "a refused APPEND is nothing to the one behind it"
        assert isinstance(replies[3], Records)
        assert replies[3].bodies == [
            b"plain",
            wrap(TAGGED, b"tagged"),
            wrap((), b""),
            wrap((), ENVELOPE_MARK),
            wrap(TAGGED, b"again"),
            b"plain",
            b"plain too",
            b"last",
        ]
