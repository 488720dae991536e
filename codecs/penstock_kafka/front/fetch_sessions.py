"""Fetch sessions (KIP-227): a client names its partitions once, and then only those that change; responses leave out
partitions without news.

A session is known by its id and by the number of the next request in it (its epoch), so requests that were lost or
repeated are noticed: the client then begins a new session. A session belongs to the client that began it, and any
connection of that client may go on with it; each read is checked against the permissions of the client. All requests of
a session name topics by their names, or all by their ids.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import Final, NamedTuple, Self

import msgspec
import trio

from penstock.core.identity import CLIENT, Client
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.record_messages import FetchPartition, FetchPartitionResult, FetchRequest
from penstock_kafka.front.call import KafkaCall
from penstock_kafka.front.client_names import viewer
from penstock_kafka.sequences import KafkaRefusal
from penstock_kafka.topic_ids import TopicKey

__all__ = ["FetchOwner", "FetchSession", "FetchSessions", "FetchedTopics"]

PartitionKey = tuple[TopicKey, int]

MOST_SESSIONS: Final = 1000
"""Sessions of a listener; also Kafka's default."""
MOST_PARTITIONS: Final = 100_000
"""Partitions of all sessions, about 500 bytes each."""
_IDLE_SECONDS: Final = 120.0
"""Time without a request after which a session gives way to a new one."""
_WITHOUT, _FIRST = -1, 0
"""Epochs of requests that name all their partitions: without a session, and of the first one in a session."""
_LAST_EPOCH: Final = (1 << 31) - 1


class FetchOwner(NamedTuple):
    """The client that a session belongs to: what it proved to be, else its address without a port, and the client id
    that it names itself by."""

    client: Client
    address: str
    client_id: str

    @classmethod
    def of(cls, client_id: str) -> FetchOwner:
        """Return the current client."""
        client = viewer()
        is_proved = bool(client.identity or client.token)
        return cls(client, "" if is_proved else CLIENT.get().address.rpartition(":")[0], client_id)


class _Told(NamedTuple):
    """The positions of a partition that a client was told."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class FetchMember(msgspec.Struct):
    """A partition of a request or a session. `told` None: its client was told nothing yet."""

    wanted: FetchPartition
    told: _Told | None = None


class FetchedTopics:
    """The topics of a Fetch request, `by_id` or by name. `wanted`: its partitions. `forgotten`: those that leave its
    session."""

    def __init__(self, request: FetchRequest, *, by_id: bool) -> None:
        self.session_id = request.session_id
        self.session_epoch = request.session_epoch
        self.by_id = by_id
        self.wanted: dict[PartitionKey, FetchMember] = {}
        self.forgotten: list[PartitionKey] = []

    @classmethod
    async def of(cls, request: FetchRequest, call: KafkaCall, *, by_id: bool) -> Self:
        """Return the topics of a request."""
        topics = cls(request, by_id=by_id)
        async for topic in call.each(request.topics):
            async for partition in call.each(topic.partitions):
                topics.wanted[topic.topic_id if by_id else topic.topic, partition.partition] = FetchMember(partition)
        async for forgotten in call.each(request.forgotten_topics):
            name = forgotten.topic_id if by_id else forgotten.topic
            topics.forgotten += [(name, number) for number in forgotten.partitions]
        return topics


class FetchSession(msgspec.Struct, eq=False):
    """A session. `owner`: its client. `epoch`: of the next request. `partitions`: those that had no records for longest
    come first, so that each has its turn when a response is full."""

    id: int
    owner: FetchOwner
    by_id: bool
    epoch: int = 1
    used_at: float = 0.0
    partitions: OrderedDict[PartitionKey, FetchMember] = msgspec.field(default_factory=OrderedDict)

    def is_news(self, topic: TopicKey, result: FetchPartitionResult) -> bool:
        """Remember a result for the next response; return whether the client has yet to learn it."""
        partition = topic, result.partition_index
        member = self.partitions.get(partition)
        if member is None:
            return False  # another request has removed it meanwhile
        told = _Told(result.high_watermark, result.last_stable_offset, result.log_start_offset)
        is_news = bool(result.records or result.error_code or told != member.told)
        member.told = None if result.error_code else told
        if result.records:
            self.partitions.move_to_end(partition)
        return is_news


class FetchSessions:
    """The sessions of a listener."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # the one that was used last is last
        self._size = 0

    def session_of(self, request: FetchedTopics, owner: FetchOwner) -> FetchSession | None:
        """Return the session of a request, as the request changes it; None: it has none, and names all its partitions.

        A session begins only if there is room for it. Raises KafkaRefusal for a session that `owner` does not have, or
        if the request is not the next one in it.
        """
        session = self._sessions.get(request.session_id)
        if session is not None and session.owner != owner:
            session = None
        if request.session_epoch in (_WITHOUT, _FIRST):
            if session is not None:
                self._drop(session.id)
            return None if request.session_epoch == _WITHOUT else self._begin(request, owner)
        if session is None:
            raise KafkaRefusal(KafkaError.FETCH_SESSION_ID_NOT_FOUND, f"there is no session {request.session_id}")
        if request.session_epoch != session.epoch:
            reason = f"the next request of session {session.id} is {session.epoch}, not {request.session_epoch}"
            raise KafkaRefusal(KafkaError.INVALID_FETCH_SESSION_EPOCH, reason)
        if request.by_id is not session.by_id:
            reason = f"session {session.id} does not name its topics as the request does"
            raise KafkaRefusal(KafkaError.FETCH_SESSION_TOPIC_ID_ERROR, reason)
        session.epoch = session.epoch + 1 if session.epoch < _LAST_EPOCH else 1
        self._size -= len(session.partitions)
        for partition in request.forgotten:
            session.partitions.pop(partition, None)
        self._take(session, request)
        if self._size > MOST_PARTITIONS:
            self._drop(session.id)
            raise KafkaRefusal(KafkaError.FETCH_SESSION_ID_NOT_FOUND, "there is no room for the session any more")
        return session

    def _begin(self, request: FetchedTopics, owner: FetchOwner) -> FetchSession | None:
        count = len(request.wanted)
        idle_since = trio.current_time() - _IDLE_SECONDS
        while len(self._sessions) >= MOST_SESSIONS or self._size + count > MOST_PARTITIONS:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or oldest.used_at > idle_since:
                return None
            self._drop(oldest.id)
        session = FetchSession(secrets.randbelow(_LAST_EPOCH) + 1, owner, request.by_id)
        if session.id in self._sessions:
            return None
        self._sessions[session.id] = session
        self._take(session, request)
        return session

    def _take(self, session: FetchSession, request: FetchedTopics) -> None:
        """Take the partitions of a request into a session."""
        for partition, member in request.wanted.items():
            session.partitions.setdefault(partition, member).wanted = member.wanted
        self._size += len(session.partitions)
        session.used_at = trio.current_time()
        self._sessions.move_to_end(session.id)

    def _drop(self, session_id: int) -> None:
        if (session := self._sessions.pop(session_id, None)) is not None:
            self._size -= len(session.partitions)
