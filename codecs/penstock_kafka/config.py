"""Configuration table of Kafka; see docs/configuration.md."""

from typing import Annotated, Literal

from penstock.core.config_fields import DEFAULT_BASIN, Token, check_address, check_basin, check_server, key
from penstock.model.limits import KIB, MIB
from penstock.protocols.tables import (
    LOST_ACK,
    MAX_CONNECTIONS,
    Anonymous,
    BackTable,
    ListenerLimits,
    ListenerName,
    ListenerTable,
    Recover,
)
from penstock_kafka.names import is_topic

__all__ = ["KafkaBackTable", "KafkaListener", "KafkaListenerLimits"]


class KafkaListenerLimits(ListenerLimits, frozen=True, kw_only=True):
    """Limits of one Kafka listener."""

    max_connections: Annotated[int, MAX_CONNECTIONS] = 10_000
    max_request_bytes: Annotated[
        int, key("Largest request. A larger one ends the connection.", least=64 * KIB, most=64 * MIB)
    ] = 16 * MIB
    max_request_items: Annotated[
        int,
        key(
            "Most topics, partitions, groups and other elements of one request, all counted together. A request with "
            "more ends the connection.",
            least=1000,
            most=100_000,
        ),
    ] = 10_000
    max_batch_bytes: Annotated[
        int,
        key(
            "Most bytes of the records for one partition in a request, decompressed. While a request has so many in "
            "memory, its other partitions wait.",
            least=1 * MIB,
            most=64 * MIB,
        ),
    ] = 16 * MIB
    max_partitions: Annotated[int, key("Most partitions of a topic that clients create.", least=1, most=1000)] = 100
    max_fetch_bytes: Annotated[
        int,
        key(
            "Most bytes of records in one answer to a Fetch request, whatever it asks for; one record is always sent.",
            least=1,
            most=64 * MIB,
        ),
    ] = 8 * MIB
    max_fetch_wait_ms: Annotated[
        int, key("Longest wait of a Fetch request for records, in milliseconds.", least=0, most=300_000)
    ] = 30_000
    max_groups: Annotated[int, key("Most consumer groups.", least=1)] = 10_000
    max_group_members: Annotated[int, key("Most members of a consumer group.", least=1, most=2000)] = 1000
    max_transaction_seconds: Annotated[
        float,
        key(
            "Longest time-out of a transaction that a producer may ask for; one that is open longer is aborted.",
            least=1,
        ),
    ] = 900.0
    max_transactional_ids: Annotated[
        int, key("Most transactional ids, each of which has one open transaction at most.", least=1)
    ] = 10_000
    max_transaction_bytes: Annotated[int, key("Most bytes of batches of a transaction.", least=1 * MIB)] = 256 * MIB
    idle_timeout_seconds: Annotated[
        float, key("Time after which a client is disconnected if it sends no request.", least=1)
    ] = 600.0
    send_timeout_seconds: Annotated[
        float, key("Time after which a client is disconnected if it accepts none of its answers.", least=1)
    ] = 30.0


class KafkaListener(ListenerTable, frozen=True, kw_only=True):
    """Kafka over TCP or TLS. Omit the table to switch the listener off."""

    name: ListenerName = None
    bind: Annotated[str, key("Address, as HOST:PORT, or [::1]:9092 for IPv6; port 0 lets the system choose.")] = (
        "127.0.0.1:9092"
    )
    advertise: Annotated[
        str | None,
        key(
            "HOST:PORT at which clients connect again; absent: the address that they are connected to. Needed behind a "
            "proxy or a translation of addresses.",
            example="kafka.example.org:9092",
        ),
    ] = None
    basin: Annotated[str, key("Basin of all streams (docs/names.md). A second listener serves a second basin.")] = (
        DEFAULT_BASIN
    )
    partitions: Annotated[
        int, key("Number of partitions of a topic that is created without a number.", least=1, most=1000)
    ] = 1
    first_rebalance_seconds: Annotated[
        float,
        key(
            "Time that a consumer group without members waits for more of them, after each one that joins.",
            least=0,
            most=300,
        ),
    ] = 3.0
    consumer_session_seconds: Annotated[
        float,
        key(
            "Time without a heartbeat after which a member of a group of the consumer protocol is taken for lost.",
            least=1,
            most=1800,
        ),
    ] = 45.0
    consumer_heartbeat_seconds: Annotated[
        float, key("Time between two heartbeats of such a member.", least=0.1, most=300)
    ] = 5.0
    offset_retention_seconds: Annotated[
        float,
        key("Time for which committed offsets are kept after the last member of their group has left.", least=60),
    ] = 604_800.0
    auth_tokens: Annotated[
        tuple[Token, ...],
        key(
            "Secrets for SASL, each of which permits everything; empty, and without [access]: clients need not "
            "authenticate."
        ),
    ] = ()
    anonymous: Anonymous = False
    limits: KafkaListenerLimits = KafkaListenerLimits()

    def __post_init__(self) -> None:
        check_address("bind", self.bind)
        check_basin("basin", self.basin)
        if self.advertise is not None:
            check_server("advertise", self.advertise)
        if self.partitions > self.limits.max_partitions:
            most = self.limits.max_partitions
            raise ValueError(f"partitions: {self.partitions} is more than limits.max_partitions, {most}")
        if self.consumer_heartbeat_seconds >= self.consumer_session_seconds:
            session = self.consumer_session_seconds
            reason = f"{self.consumer_heartbeat_seconds:g} is not less than consumer_session_seconds, {session:g}"
            raise ValueError(f"consumer_heartbeat_seconds: {reason}")
        self.check_tls()


class KafkaBackTable(BackTable, frozen=True, kw_only=True, tag_field="kind", tag="kafka"):
    """A cluster of Kafka. Offsets are the sequence numbers."""

    address: Annotated[str, key("HOST:PORT of a broker. It names the others.", example="127.0.0.1:9094")]
    more_addresses: Annotated[
        tuple[str, ...], key("HOST:PORT of further brokers, which are asked if that one does not answer.")
    ] = ()
    basin: Annotated[str, key("Basin of all topics (docs/names.md). A second back serves a second basin.")] = (
        DEFAULT_BASIN
    )
    create_streams: Annotated[
        bool, key("Create a missing stream when a client appends to it, if the client's request allows that.")
    ] = False
    mechanism: Annotated[
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"],
        key("Mechanism of SASL by which the gateway logs in as `username`. PLAIN sends the password: use it with tls."),
    ] = "SCRAM-SHA-512"
    username: Annotated[
        str | None,
        key("User name of the gateway at the brokers (SASL); absent: no authentication.", example="penstock"),
    ] = None
    password_file: Annotated[
        str | None,
        key("File with the password of username, read at the start.", example="password", path=True),
    ] = None
    replicas: Annotated[
        int, key("Replicas of topics that the gateway creates; -1: the cluster's default.", least=-1, most=1000)
    ] = -1
    max_batch_bytes: Annotated[
        int,
        key(
            "`max.message.bytes` of topics that the gateway creates: the largest append that they take.",
            least=64 * KIB,
            most=64 * MIB,
        ),
    ] = 2 * MIB
    state_topic: Annotated[
        str | None,
        key(
            "Compacted topic, of one partition, for everything that the gateway would otherwise keep in its store's "
            "directory (docs/scaling.md); created if it is missing. Gateways with the same topic share it.",
            example="penstock-state",
        ),
    ] = None
    state_max_bytes: Annotated[
        int,
        key("Most memory for the content of state_topic. Changes that need more are refused.", least=1 * MIB),
    ] = 256 * MIB
    recover_seconds: Recover = 30.0
    delivery: Annotated[Literal["exactly-once", "at-least-once", "refuse"], key(LOST_ACK)] = "exactly-once"

    def __post_init__(self) -> None:
        self.check()
        for address in (self.address, *self.more_addresses):
            check_server("address", address)
        if (self.username is None) != (self.password_file is None):
            raise ValueError("username and password_file go together: give both or neither")
        check_basin("basin", self.basin)
        if self.state_topic is not None and not is_topic(self.state_topic):
            raise ValueError(f"state_topic: {self.state_topic!r} is not the name of a topic")
