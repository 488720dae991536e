"""Kafka's front: requests become operations on a back, results become responses.

An API is a line in `penstock_kafka.codec.apis` and a handler. Handlers are grouped in classes by subject; each class
has a table of them, `handlers`, by class of request, and the front offers the APIs that have one. A client's requests
are answered in the order in which they came, as Kafka does; small Produce requests are in progress at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final
from zlib import crc32

import structlog
import trio

from penstock.backends.logged_tables import Lease
from penstock.core.address import Address
from penstock.core.back import Back
from penstock.model.failures import Failure, FailureCode, OperationFailed, RemoteProtocolError
from penstock.net.draining import Draining
from penstock.net.limits.work import Work
from penstock.observe.metrics.clients import count_error
from penstock.observe.taps.tap import CONNECTION
from penstock.tables.struct_table import StructTable
from penstock_kafka.codec import APIS, KafkaApi, KafkaMessage
from penstock_kafka.codec.cluster_messages import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from penstock_kafka.codec.config_messages import AlterConfigsRequest, IncrementalAlterConfigsRequest
from penstock_kafka.codec.group_messages import FindCoordinatorRequest, ListGroupsRequest, ListGroupsResponse
from penstock_kafka.codec.inspection_messages import (
    DescribeAclsRequest,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from penstock_kafka.codec.record_messages import InitProducerIdRequest
from penstock_kafka.codec.topic_messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
)
from penstock_kafka.front.access import KafkaAccess
from penstock_kafka.front.administration import AdministrationHandlers
from penstock_kafka.front.authentication import BEFORE_LOGIN, SaslHandlers
from penstock_kafka.front.call import NODE_ID, Broker, KafkaCall, KafkaHandler
from penstock_kafka.front.cluster import ClusterHandlers
from penstock_kafka.front.consumer_groups import ConsumerGroupHandlers
from penstock_kafka.front.fetching import FetchHandlers
from penstock_kafka.front.groups import GroupHandlers
from penstock_kafka.front.inspection import InspectionHandlers
from penstock_kafka.front.link import KafkaLink
from penstock_kafka.front.offsets import GroupOffsets, OffsetHandlers
from penstock_kafka.front.pipeline import RequestPipeline, is_pipelined
from penstock_kafka.front.positions import PositionHandlers
from penstock_kafka.front.producing import ProduceHandlers
from penstock_kafka.front.settings import KafkaSettings
from penstock_kafka.front.transactions import TransactionHandlers
from penstock_kafka.groups.service import GroupService
from penstock_kafka.topic_ids import TopicIds
from penstock_kafka.topics import KafkaTopics
from penstock_kafka.transactions.service import TransactionService

__all__ = ["KafkaFront"]

log = structlog.get_logger()

OF_ANY_BROKER: Final = (
    *(ApiVersionsRequest, SaslHandshakeRequest, SaslAuthenticateRequest),
    *(MetadataRequest, DescribeTopicPartitionsRequest, DescribeClusterRequest, FindCoordinatorRequest),
    *(CreateTopicsRequest, CreatePartitionsRequest, DeleteTopicsRequest, DescribeConfigsRequest),
    *(AlterConfigsRequest, IncrementalAlterConfigsRequest, DescribeAclsRequest),
)
"""Requests that a gateway answers although another one serves the clients. Clients send them to any broker, or learn
from them which one serves them."""
ASKED_OF_ALL: Final[Mapping[type[KafkaMessage], KafkaMessage]] = {
    ListGroupsRequest: ListGroupsResponse(),
    ListTransactionsRequest: ListTransactionsResponse(),
    DescribeLogDirsRequest: DescribeLogDirsResponse(),
}
"""Answers to requests that tools send to all brokers: a gateway that serves no clients has no groups, transactions and
partitions."""
_NODES: Final = (1 << 31) - 2


class KafkaFront:
    """Front that serves Kafka connections over one back. `table` keeps its groups; None: a table of `back`. `run` must
    be running while it serves: it keeps the time of groups.

    `lease`: of several gateways, the one that holds it serves all clients. The others tell them where it is, as brokers
    do of partitions that they do not lead.
    """

    def __init__(
        self,
        back: Back,
        settings: KafkaSettings | None = None,
        table: StructTable | None = None,
        lease: Lease | None = None,
    ) -> None:
        self.back = back
        self.settings = settings or KafkaSettings()
        self.draining = Draining()
        back.declare_partitioned(self.settings.names.basin)
        self._lease = lease
        self._served: set[trio.CancelScope] = set()
        self._begin(table or StructTable(back, "kafka"))

    def _begin(self, table: StructTable) -> None:
        """Begin with what is in the table: nothing else is known of groups and transactions."""
        back = self.back
        self.groups = GroupService(table, lambda: self.settings.groups)
        self.transactions = TransactionService(back, table, self.groups, limits=lambda: self.settings.transactions)
        self._sasl = SaslHandlers(self.settings)
        topics = KafkaTopics(back, self.settings.names)
        ids = TopicIds(topics)
        offsets = GroupOffsets(back, self.settings.names, topics)
        access = KafkaAccess(back, self.settings.names, self.groups, self.transactions)
        self.handlers: dict[type[KafkaMessage], KafkaHandler] = {
            **self._sasl.handlers,
            **ClusterHandlers(topics, ids, self.settings, self.apis).handlers,
            **AdministrationHandlers(back, topics, ids, self.settings, table).handlers,
            **InspectionHandlers(back, topics, ids, self.transactions, access).handlers,
            **GroupHandlers(self.groups, access).handlers,
            **ConsumerGroupHandlers(back, self.settings.names, self.groups, topics, ids, access).handlers,
            **OffsetHandlers(ids, self.groups, self.transactions, offsets, access).handlers,
            **TransactionHandlers(back, topics, self.groups, self.transactions, offsets, access).handlers,
            **ProduceHandlers(back, topics, ids, self.settings, self.transactions, access).handlers,
            **FetchHandlers(back, topics, ids, self.settings).handlers,
            **PositionHandlers(back, topics).handlers,
        }

    def apis(self) -> list[KafkaApi]:
        """Return the APIs that have a handler."""
        return [api for api in APIS.values() if api.request in self.handlers]

    async def run(self) -> None:
        """Coordinate the groups, and the transactions of producers, until cancelled; with a lease, while it is held."""
        if self._lease is None:
            await self._coordinate()
        else:
            await self._lease.run(self._lead)

    async def _coordinate(self) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.groups.run)
            nursery.start_soon(self.transactions.run)

    async def _lead(self, state: Back) -> None:
        """Be the broker that all gateways name, until cancelled; then the clients must ask for it again."""
        self._begin(StructTable(state, self.settings.table))
        try:
            await self._coordinate()
        finally:
            for scope in self._served:
                scope.cancel()

    def drain(self) -> None:
        """Begin to shut down: finish the requests in progress, then end the connections. Must be called within trio."""
        self.draining.begin()

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until it ends, and close it. Never raises for errors of a client or the back."""
        link = KafkaLink(stream, self.settings, self.draining)
        try:
            with trio.CancelScope() as scope:
                self._served.add(scope)
                await self._run(link)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
            log.debug("connection_lost", reason=type(error).__name__)
        except Exception:
            log.exception("connection_failed")
        finally:
            self._served.discard(scope)
            await link.cut()

    async def _run(self, link: KafkaLink) -> None:
        """Serve requests until the connection ends.

        A request that breaks the protocol, or fails where its response has no place for an error, has no response in
        Kafka: the connection is closed.
        """
        error: Exception | None = None
        async with trio.open_nursery() as nursery:
            pipeline = RequestPipeline(nursery, link, self.settings.max_batch_bytes)
            try:
                with pipeline.receiving:
                    await self._receive(link, pipeline)
            except Exception as raised:  # those in progress are answered before the connection ends
                error = raised
        try:
            if error := pipeline.error or error:
                raise error
        except RemoteProtocolError as refusal:
            if refusal.failure.code is not FailureCode.CLIENT_HANGUP:
                count_error(refusal.failure.code)
                log.info("protocol_error", code=refusal.failure.code.value, reason=refusal.failure.message)
        except OperationFailed as failed:
            count_error(failed.failure.code)
            log.info("request_failed", code=failed.failure.code.value, reason=failed.failure.message)
        finally:
            del error, pipeline.error  # which refer to this frame
        await link.close()

    async def _receive(self, link: KafkaLink, pipeline: RequestPipeline) -> None:
        """Receive requests and carry them out until the client has finished; those of `pipeline` may be in progress
        then."""
        own = self._own()
        while (request := await link.next_message()) is not None:
            if wait := link.quota.request():
                await trio.sleep(wait)
            is_alone = not is_pipelined(request.message)
            if is_alone:
                await pipeline.finish()
            if type(request.message) not in self.handlers:
                raise RemoteProtocolError(Failure(FailureCode.NOT_IMPLEMENTED, f"{request.api.name} is not there"))
            self._sasl.check(request.message, link.login)
            leader = self._leader(own)
            if leader != own and (nothing := ASKED_OF_ALL.get(type(request.message))) is not None:
                await link.send(request, nothing, link.work)
                continue
            if leader != own and not _of_any_broker(request.message):
                reason = "another gateway serves this listener's clients, or none does yet"
                raise RemoteProtocolError(Failure(FailureCode.HOT_SERVER, reason))
            work = link.work if is_alone else Work(link.quota)
            call = KafkaCall(request, link, leader, partial(self._brokers, own, leader), work)
            if is_alone:
                await self._respond(call, await self._carry_out(call))
            else:
                await pipeline.begin(call, self._carry_out, self._respond)

    async def _carry_out(self, call: KafkaCall) -> KafkaMessage | None:
        message = call.request.message
        return await call.work.carry_out(self.handlers[type(message)](message, call))

    async def _respond(self, call: KafkaCall, response: KafkaMessage | None) -> None:
        message, quota = call.request.message, call.link.quota
        if call.refusals and not quota.authenticated:
            await quota.rest_in_turn()
        elif not call.refusals and not isinstance(message, BEFORE_LOGIN):
            quota.admit()
        await call.link.send(call.request, response, call.work)
        if isinstance(message, SaslAuthenticateRequest) and call.refusals and quota.slowed:
            raise RemoteProtocolError(Failure(FailureCode.RATE_LIMITED, "too many logins failed"))

    def _own(self) -> Broker:
        """Return this gateway, as it is named on this connection."""
        address = self.settings.advertise or _connected_to()
        return Broker(NODE_ID, address) if self._lease is None else _broker(address)

    def _leader(self, own: Broker) -> Broker | None:
        """Return the gateway that serves all clients; None if none does now."""
        if self._lease is None or self._lease.held:
            return own
        holder = self._lease.holder()
        leader = None if holder is None else _broker(Address.parse(holder))
        return None if leader == own else leader  # it had the lease before it was started again

    def _brokers(self, own: Broker, leader: Broker | None) -> Sequence[Broker]:
        """Return all gateways. Those that listen at all addresses of their machine, and advertise none, are left
        out."""
        others = () if self._lease is None else map(Address.parse, self._lease.others())
        brokers = {own, *(_broker(gateway) for gateway in others if gateway == gateway.to_connect)}
        return sorted(brokers if leader is None else brokers | {leader})


def _broker(address: Address) -> Broker:
    """Return one of several gateways. Its node id is a hash of its address, so that all gateways name it alike."""
    return Broker(1 + crc32(str(address).encode()) % _NODES, address)


def _of_any_broker(request: KafkaMessage) -> bool:
    """Return whether a gateway that does not serve clients answers a request. Idempotent producers ask any broker for
    an id, and transactional ones their coordinator."""
    if isinstance(request, InitProducerIdRequest):
        return request.transactional_id is None
    return isinstance(request, OF_ANY_BROKER)


def _connected_to() -> Address:
    """Return the address at which the client has reached the gateway."""
    tap = CONNECTION.get()
    return Address("127.0.0.1", 9092) if tap is None else Address(*tap.conversation.server)
