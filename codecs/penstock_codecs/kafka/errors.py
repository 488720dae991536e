"""Kafka's error codes, and the code for each failure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from penstock_codecs.failures import Failure, FailureCode

__all__ = ["KafkaError", "error_of"]


class KafkaError(IntEnum):
    """The error codes that the gateway sends (`org.apache.kafka.common.protocol.Errors`)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    NETWORK_EXCEPTION = 13
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC_EXCEPTION = 17
    INVALID_REQUIRED_ACKS = 21
    TOPIC_AUTHORIZATION_FAILED = 29
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    FETCH_SESSION_ID_NOT_FOUND = 70
    UNSUPPORTED_COMPRESSION_TYPE = 76
    THROTTLING_QUOTA_EXCEEDED = 89
    INVALID_RECORD = 87
    PRODUCER_FENCED = 90


_ERRORS: Final[Mapping[FailureCode, KafkaError]] = {
    FailureCode.AUTHN: KafkaError.TOPIC_AUTHORIZATION_FAILED,
    FailureCode.PERMISSION_DENIED: KafkaError.TOPIC_AUTHORIZATION_FAILED,
    FailureCode.QUOTA_EXHAUSTED: KafkaError.POLICY_VIOLATION,
    FailureCode.BASIN_NOT_FOUND: KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
    FailureCode.STREAM_NOT_FOUND: KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
    FailureCode.BASIN_DELETION_PENDING: KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
    FailureCode.STREAM_DELETION_PENDING: KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
    FailureCode.REQUEST_TIMEOUT: KafkaError.REQUEST_TIMED_OUT,
    FailureCode.UPSTREAM_TIMEOUT: KafkaError.REQUEST_TIMED_OUT,
    FailureCode.RESOURCE_ALREADY_EXISTS: KafkaError.TOPIC_ALREADY_EXISTS,
    FailureCode.RANGE_NOT_SATISFIABLE: KafkaError.OFFSET_OUT_OF_RANGE,
    FailureCode.BAD_PATH: KafkaError.INVALID_TOPIC_EXCEPTION,
    FailureCode.INVALID: KafkaError.INVALID_REQUEST,
    FailureCode.BAD_FORMAT: KafkaError.CORRUPT_MESSAGE,
    FailureCode.LIMIT_EXCEEDED: KafkaError.MESSAGE_TOO_LARGE,
    FailureCode.NOT_REPRESENTABLE: KafkaError.INVALID_RECORD,
    FailureCode.STREAM_SEALED: KafkaError.POLICY_VIOLATION,
    FailureCode.FENCING_TOKEN_MISMATCH: KafkaError.POLICY_VIOLATION,
    FailureCode.ENCRYPTION_KEY: KafkaError.POLICY_VIOLATION,
    FailureCode.NON_MONOTONIC_TIMESTAMP: KafkaError.INVALID_RECORD,
    FailureCode.RATE_LIMITED: KafkaError.THROTTLING_QUOTA_EXCEEDED,
    FailureCode.STORAGE: KafkaError.KAFKA_STORAGE_ERROR,
    FailureCode.NOT_IMPLEMENTED: KafkaError.POLICY_VIOLATION,
    FailureCode.HOT_SERVER: KafkaError.NOT_LEADER_OR_FOLLOWER,
    FailureCode.SERVER_DRAINING: KafkaError.NOT_LEADER_OR_FOLLOWER,
    FailureCode.UNAVAILABLE: KafkaError.REQUEST_TIMED_OUT,
    FailureCode.TRANSACTION_CONFLICT: KafkaError.NOT_LEADER_OR_FOLLOWER,
}
"""Codes that clients retry for failures that a retry may mend: NOT_LEADER_OR_FOLLOWER if nothing was stored, for which
clients also look for the leader again; REQUEST_TIMED_OUT if it is unknown. For failures that a retry never mends,
POLICY_VIOLATION, which all clients know as final."""


def error_of(failure: Failure) -> KafkaError:
    """Return the error code for a failure; UNKNOWN_SERVER_ERROR for one that Kafka's clients have no word for."""
    return _ERRORS.get(failure.code, KafkaError.UNKNOWN_SERVER_ERROR)
