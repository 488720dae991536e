"""Messages that change the settings of topics.

The versions and fields are those of Apache Kafka's message definitions (`clients/src/main/resources/common/message`).
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock_kafka.codec.schema import Int8, Int16, Int32, KafkaMessage

__all__ = [
    "AlterConfigsRequest",
    "AlterConfigsResponse",
    "AlteredConfig",
    "AlteredResource",
    "AlteredResourceResult",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
    "ReplacedConfig",
    "ReplacedResource",
]


class AlteredConfig(KafkaMessage, kw_only=True):
    """A change to a setting. `config_operation`: 0 to set it, 1 to return to the default."""

    name: str
    config_operation: Int8
    value: str | None


class AlteredResource(KafkaMessage, kw_only=True):
    """A topic (type 2) or broker (type 4), and the changes to its settings."""

    resource_type: Int8
    resource_name: str
    configs: Sequence[AlteredConfig]


class IncrementalAlterConfigsRequest(KafkaMessage, kw_only=True):
    """Changes settings, or only checks whether they could be changed."""

    resources: Sequence[AlteredResource]
    validate_only: bool = False


class AlteredResourceResult(KafkaMessage, kw_only=True):
    """The outcome for one topic or broker."""

    error_code: Int16 = 0
    error_message: str | None = None
    resource_type: Int8
    resource_name: str


class IncrementalAlterConfigsResponse(KafkaMessage, kw_only=True):
    """The outcomes of an IncrementalAlterConfigs request."""

    throttle_time_ms: Int32 = 0
    responses: Sequence[AlteredResourceResult]


class ReplacedConfig(KafkaMessage, kw_only=True):
    """A setting."""

    name: str
    value: str | None


class ReplacedResource(KafkaMessage, kw_only=True):
    """A topic (type 2) or broker (type 4), and all settings that it is to have; the others return to the default."""

    resource_type: Int8
    resource_name: str
    configs: Sequence[ReplacedConfig]


class AlterConfigsRequest(KafkaMessage, kw_only=True):
    """Replaces settings, or only checks whether they could be replaced."""

    resources: Sequence[ReplacedResource]
    validate_only: bool = False


class AlterConfigsResponse(KafkaMessage, kw_only=True):
    """The outcomes of an AlterConfigs request."""

    throttle_time_ms: Int32 = 0
    responses: Sequence[AlteredResourceResult]
