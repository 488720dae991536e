"""Fetch sessions (KIP-227): what requests and responses may leave out, and when a session ends."""

from __future__ import annotations

import pytest
import trio
from support.kafka.front import Client, fetched, fetching
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedBack
from penstock.model.operations import Append, CreateStream
from penstock.model.records import StreamRef, metered_size
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.record_messages import FetchRequest, FetchResponse, ForgottenTopic
from penstock_kafka.front import fetch_sessions

A, B = StreamRef("penstock", "t"), StreamRef("penstock", "u")


async def append(back: EmbeddedBack, stream: StreamRef, *bodies: bytes) -> None:
    await back.perform(Append(stream, list(bodies), metered_size(bodies, {})))


async def begin(client: Client, *topics: str) -> FetchResponse:
    request = fetching({(topic, 0): 0 for topic in topics})
    request.session_epoch = 0
    return await client.call(request, FetchResponse)


def next_of(
    session: FetchResponse | int,
    epoch: int,
    offsets: dict[str, int] | None = None,
    *forgotten: str,
    most: int = 1 << 20,
) -> FetchRequest:
    request = fetching({(topic, 0): offset for topic, offset in (offsets or {}).items()}, most=most)
    request.session_id = session if isinstance(session, int) else session.session_id
    request.session_epoch = epoch
    request.forgotten_topics = [ForgottenTopic(topic=topic, partitions=[0]) for topic in forgotten]
    return request


def topics_of(response: FetchResponse) -> list[str]:
    assert response.error_code == 0
    return [topic.topic for topic in response.topics]


@pytest.fixture
async def session(client: Client, back: EmbeddedBack) -> FetchResponse:
    """A session of two partitions, of which one has a record."""
    await back.perform(CreateStream(B))
    await append(back, A, b"a")
    found = await begin(client, "t", "u")
    assert found.session_id > 0 and topics_of(found) == ["t", "u"]
    return found


async def test_only_news_are_told(client: Client, back: EmbeddedBack, session: FetchResponse) -> None:
    first = await client.call(next_of(session, 1, {"t": 1}), FetchResponse)
    assert topics_of(first) == [] and first.session_id == session.session_id
    await append(back, B, b"b")
    second = await client.call(next_of(session, 2), FetchResponse)
    assert topics_of(second) == ["u"]
    assert fetched(second.topics[0].partitions[0]) == [(0, None, b"b")]
    third = await client.call(next_of(session, 3, {}, "u"), FetchResponse)
    assert topics_of(third) == []


async def test_records_come_again_until_their_offset_is_passed(client: Client, session: FetchResponse) -> None:
    for epoch in (1, 2):
        assert topics_of(await client.call(next_of(session, epoch), FetchResponse)) == ["t"]


async def test_errors_are_told_each_time(client: Client, back: EmbeddedBack, session: FetchResponse) -> None:
    for epoch in (1, 2):
        found = await client.call(next_of(session, epoch, {"t": 1, "missing": 0}), FetchResponse)
        assert topics_of(found) == ["missing"]


async def test_each_partition_has_its_turn(client: Client, back: EmbeddedBack, session: FetchResponse) -> None:
    """With room for a single record, both partitions deliver."""
    await append(back, B, b"b")
    turns = [topics_of(await client.call(next_of(session, epoch, most=1), FetchResponse)) for epoch in range(1, 5)]
    assert {one for turn in turns for one in turn} == {"t", "u"}


async def test_a_request_out_of_order_is_refused(client: Client, session: FetchResponse) -> None:
    for epoch in (2, 7):
        found = await client.call(next_of(session, epoch), FetchResponse)
        assert found.error_code == KafkaError.INVALID_FETCH_SESSION_EPOCH
    unknown = await client.call(next_of(5, 1), FetchResponse)
    assert unknown.error_code == KafkaError.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [0, -1])
async def test_a_full_request_ends_the_session(client: Client, session: FetchResponse, epoch: int) -> None:
    full = await client.call(next_of(session, epoch, {"t": 0, "u": 0}), FetchResponse)
    assert topics_of(full) == ["t", "u"]
    assert (full.session_id != 0) == (epoch == 0)
    old = await client.call(next_of(session, 1), FetchResponse)
    assert old.error_code == KafkaError.FETCH_SESSION_ID_NOT_FOUND


async def test_sessions_are_bounded(
    client: Client, session: FetchResponse, clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one gets no session while all others are in use, and takes the place of one that is not."""
    monkeypatch.setattr(fetch_sessions, "MOST_SESSIONS", 1)
    assert (await begin(client, "t")).session_id == 0
    await trio.sleep(121)
    assert (await begin(client, "t")).session_id != 0
    assert (await client.call(next_of(session, 1), FetchResponse)).error_code == KafkaError.FETCH_SESSION_ID_NOT_FOUND


async def test_partitions_of_all_sessions_are_bounded(
    client: Client, session: FetchResponse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "MOST_PARTITIONS", 2)
    assert (await begin(client, "t")).session_id == 0
    found = await client.call(next_of(session, 1, {"v": 0}), FetchResponse)
    assert found.error_code == KafkaError.FETCH_SESSION_ID_NOT_FOUND
    assert (await begin(client, "t")).session_id != 0
