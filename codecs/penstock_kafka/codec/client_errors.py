"""The errors of Kafka's brokers as failures, for the client's side.

`errors` has the opposite direction: the codes that the gateway sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.model.failures import Failure, FailureCode

__all__ = ["STALE_LEADER", "UNKNOWN_PRODUCER", "broker_failure"]

_ERRORS: Final[Mapping[int, tuple[str, FailureCode]]] = {
    1: ("OFFSET_OUT_OF_RANGE", FailureCode.RANGE_NOT_SATISFIABLE),
    3: ("UNKNOWN_TOPIC_OR_PARTITION", FailureCode.STREAM_NOT_FOUND),
    5: ("LEADER_NOT_AVAILABLE", FailureCode.HOT_SERVER),
    6: ("NOT_LEADER_OR_FOLLOWER", FailureCode.HOT_SERVER),
    7: ("REQUEST_TIMED_OUT", FailureCode.UPSTREAM_TIMEOUT),
    8: ("BROKER_NOT_AVAILABLE", FailureCode.HOT_SERVER),
    9: ("REPLICA_NOT_AVAILABLE", FailureCode.HOT_SERVER),
    10: ("MESSAGE_TOO_LARGE", FailureCode.LIMIT_EXCEEDED),
    13: ("NETWORK_EXCEPTION", FailureCode.UNAVAILABLE),
    14: ("COORDINATOR_LOAD_IN_PROGRESS", FailureCode.HOT_SERVER),
    15: ("COORDINATOR_NOT_AVAILABLE", FailureCode.HOT_SERVER),
    16: ("NOT_COORDINATOR", FailureCode.HOT_SERVER),
    17: ("INVALID_TOPIC_EXCEPTION", FailureCode.NOT_REPRESENTABLE),
    18: ("RECORD_LIST_TOO_LARGE", FailureCode.LIMIT_EXCEEDED),
    19: ("NOT_ENOUGH_REPLICAS", FailureCode.HOT_SERVER),
    20: ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", FailureCode.UNAVAILABLE),
    29: ("TOPIC_AUTHORIZATION_FAILED", FailureCode.PERMISSION_DENIED),
    31: ("CLUSTER_AUTHORIZATION_FAILED", FailureCode.PERMISSION_DENIED),
    32: ("INVALID_TIMESTAMP", FailureCode.INVALID),
    33: ("UNSUPPORTED_SASL_MECHANISM", FailureCode.NOT_IMPLEMENTED),
    36: ("TOPIC_ALREADY_EXISTS", FailureCode.RESOURCE_ALREADY_EXISTS),
    40: ("INVALID_CONFIG", FailureCode.INVALID),
    41: ("NOT_CONTROLLER", FailureCode.HOT_SERVER),
    44: ("POLICY_VIOLATION", FailureCode.QUOTA_EXHAUSTED),
    45: ("OUT_OF_ORDER_SEQUENCE_NUMBER", FailureCode.STALE_WRITER_POSITION),
    46: ("DUPLICATE_SEQUENCE_NUMBER", FailureCode.STALE_WRITER_POSITION),
    47: ("INVALID_PRODUCER_EPOCH", FailureCode.STALE_WRITER_POSITION),
    56: ("KAFKA_STORAGE_ERROR", FailureCode.HOT_SERVER),
    58: ("SASL_AUTHENTICATION_FAILED", FailureCode.PERMISSION_DENIED),
    59: ("UNKNOWN_PRODUCER_ID", FailureCode.STALE_WRITER_POSITION),
    73: ("TOPIC_DELETION_DISABLED", FailureCode.NOT_IMPLEMENTED),
    74: ("FENCED_LEADER_EPOCH", FailureCode.HOT_SERVER),
    75: ("UNKNOWN_LEADER_EPOCH", FailureCode.HOT_SERVER),
    78: ("OFFSET_NOT_AVAILABLE", FailureCode.HOT_SERVER),
    87: ("INVALID_RECORD", FailureCode.NOT_REPRESENTABLE),
    89: ("THROTTLING_QUOTA_EXCEEDED", FailureCode.RATE_LIMITED),
    100: ("UNKNOWN_TOPIC_ID", FailureCode.HOT_SERVER),
    103: ("INCONSISTENT_TOPIC_ID", FailureCode.HOT_SERVER),
}
STALE_LEADER: Final = frozenset({3, 5, 6, 8, 9, 56, 74, 75, 100, 103})
"""Errors after which the leader of the partition is looked up again: the broker asked is not it, or not yet.

For the last two, the topic may also have been created again."""
UNKNOWN_PRODUCER: Final = frozenset({45, 46, 47, 59})
"""Errors that say that the broker does not know the producer, or not up to this batch."""


def broker_failure(code: int, where: str, message: str | None = None) -> Failure:
    """Return the failure for an error code; UPSTREAM_FAULT for one that answers none of the gateway's requests."""
    name, kind = _ERRORS.get(code, (f"error {code}", FailureCode.UPSTREAM_FAULT))
    return Failure(kind, f"{where}: {name}" + (f" ({message})" if message else ""))
