"""Settings of topics: of their streams, and inert ones.

Some settings have a counterpart in a stream's configuration: `retention.ms`, `retention.bytes`,
`message.timestamp.type`. Others tell a broker how to lay out its files or to replicate them: nothing here depends on
them, and programs (Kafka Streams, tools that compare a topic with its declaration) set them and read them again. These
inert ones are kept in the listener's table, with the creation time of the topic, so that a later topic of the same name
does not have them. All others ask for something that streams do not have, and are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.limits import MIB
from penstock.model.streams import (
    DEFAULT_STREAM_CONFIG,
    INFINITE,
    Retention,
    StreamConfig,
    StreamConfigPatch,
    TimestampingMode,
)
from penstock.model.table_operations import NOT_EXISTS
from penstock.tables.struct_table import Conflict, Prefix, StructTable
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.batches import LARGEST
from penstock_kafka.codec.topic_messages import ConfigEntry
from penstock_kafka.sequences import KafkaRefusal
from penstock_kafka.topics import KafkaTopics

__all__ = [
    "INT",
    "SETTINGS",
    "InertSettings",
    "SettingsChange",
    "config_entry",
    "settings_change",
    "topic_settings",
]

_OWN, _DEFAULT = 1, 5
"""Sources of a setting: the topic's own, or the default."""
_BOOL, _STRING, INT, _LONG, _DOUBLE, _LIST = 1, 2, 3, 5, 6, 7
"""Types of settings."""
_RETENTION: Final = "retention.ms"
_TIMESTAMPS: Final = "message.timestamp.type"
_POLICY: Final = "cleanup.policy"
_SIZE: Final = "retention.bytes"
_LARGEST_BATCH: Final = "max.message.bytes"
_ARRIVAL: Final = "LogAppendTime"
_CREATION: Final = "CreateTime"

_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_VALUES: Final = {
    _BOOL: re.compile("true|false"),
    INT: re.compile("[0-9]{1,10}"),
    _LONG: _NUMBER,
    _DOUBLE: re.compile(r"[01](\.[0-9]{1,17})?"),
    _STRING: re.compile("producer|uncompressed|none|gzip|snappy|lz4|zstd"),
}
_INERT: Final[Mapping[str, tuple[int, str | None]]] = {
    _LARGEST_BATCH: (INT, str(1 * MIB)),
    "compression.type": (_STRING, "producer"),
    "min.insync.replicas": (INT, "1"),
    "segment.bytes": (INT, None),
    "segment.ms": (_LONG, None),
    "segment.jitter.ms": (_LONG, None),
    "segment.index.bytes": (INT, None),
    "index.interval.bytes": (INT, None),
    "flush.messages": (_LONG, None),
    "flush.ms": (_LONG, None),
    "file.delete.delay.ms": (_LONG, None),
    "preallocate": (_BOOL, None),
    "unclean.leader.election.enable": (_BOOL, None),
    "message.downconversion.enable": (_BOOL, None),
    "delete.retention.ms": (_LONG, None),
    "min.cleanable.dirty.ratio": (_DOUBLE, None),
    "min.compaction.lag.ms": (_LONG, None),
    "max.compaction.lag.ms": (_LONG, None),
}
"""The type of each inert setting, and its default, None if topics without the setting are described without it."""
SETTINGS: Final = (_RETENTION, _TIMESTAMPS, _POLICY, _SIZE, *_INERT)
"""The settings that can be set and reset."""
_NO_COMPACTION: Final = (
    "there is no compaction: cleanup.policy = delete with retention.ms = -1 keeps all records; in Kafka Streams, "
    "repartition topics work, and stores do withLoggingDisabled()"
)


class SettingsChange(NamedTuple):
    """A change to the settings of a topic: of its streams, and of inert ones, where None resets."""

    patch: StreamConfigPatch
    inert: Mapping[str, str | None]


def settings_change(changes: Mapping[str, str | None], max_batch_bytes: int) -> SettingsChange:
    """Return the change that sets settings, or resets those whose value is None. Raises KafkaRefusal."""
    fields: dict[str, Any] = {}
    inert: dict[str, str | None] = {}
    for name, value in changes.items():
        if name not in SETTINGS:
            raise KafkaRefusal(KafkaError.INVALID_CONFIG, f"{name!r:.80}: {', '.join(SETTINGS)} can be set")
        if name in _INERT:
            if value is not None:
                _check_inert(name, value, max_batch_bytes)
            inert[name] = value
        else:
            fields |= _fields_of(name, value)
    return SettingsChange(StreamConfigPatch(**fields), inert)


def _check_inert(name: str, value: str, max_batch_bytes: int) -> None:
    if not _VALUES[_INERT[name][0]].fullmatch(value) or (_INERT[name][0] == _LONG and int(value) > LARGEST):
        raise KafkaRefusal(KafkaError.INVALID_CONFIG, f"{name} = {value!r:.80} is no value of this setting")
    if name == _LARGEST_BATCH and int(value) > max_batch_bytes:
        reason = f"{name} = {value}: batches of at most {max_batch_bytes} bytes are taken (limits.max_batch_bytes)"
        raise KafkaRefusal(KafkaError.INVALID_CONFIG, reason)


def _fields_of(name: str, value: str | None) -> dict[str, Any]:
    """Return the fields of a stream's configuration that a setting gives. Raises KafkaRefusal."""
    reason = ""
    if name == _RETENTION:
        if value is None:
            return {"retention": None}
        if _NUMBER.fullmatch(value) and int(value) <= LARGEST:
            return {"retention": INFINITE if int(value) < 0 else Retention(max(1, int(value) // 1000))}
    elif name == _TIMESTAMPS:
        if value is None:
            return {"timestamping_mode": None}
        if value in (_CREATION, _ARRIVAL):
            mode = TimestampingMode.ARRIVAL if value == _ARRIVAL else TimestampingMode.CLIENT_PREFER
            return {"timestamping_mode": mode}
    elif name == _POLICY:
        if value in (None, "delete"):
            return {}
        reason = _NO_COMPACTION
    elif name == _SIZE:
        if value is None:
            return {"retention_bytes": None}
        if _NUMBER.fullmatch(value) and int(value) <= LARGEST:
            return {"retention_bytes": 0 if int(value) < 0 else max(1, int(value))}
    reason = reason or "no value of this setting"
    raise KafkaRefusal(KafkaError.INVALID_CONFIG, f"{name} = {value!r:.80}: {reason}")


def topic_settings(config: StreamConfig, inert: Mapping[str, str | None]) -> Iterator[ConfigEntry]:
    """Yield the settings of a topic; `config` is resolved, `inert`: those of its own."""
    retention = config.retention or INFINITE
    age = -1 if retention.age_seconds is None else retention.age_seconds * 1000
    by_arrival = config.timestamping_mode is TimestampingMode.ARRIVAL
    yield config_entry(_POLICY, "delete", _LIST)
    yield config_entry(_RETENTION, str(age), _LONG, own=config.retention != DEFAULT_STREAM_CONFIG.retention)
    yield config_entry(_TIMESTAMPS, _ARRIVAL if by_arrival else _CREATION, _STRING, own=by_arrival)
    yield config_entry(_SIZE, str(config.retention_bytes or -1), _LONG, own=bool(config.retention_bytes))
    for name, (kind, default) in _INERT.items():
        value = inert.get(name) or default
        if value is not None:
            yield config_entry(name, value, kind, own=bool(inert.get(name)))


def config_entry(name: str, value: str, kind: int, *, own: bool = False) -> ConfigEntry:
    """Return a setting as DescribeConfigs has it. `own`: it is not the default."""
    return ConfigEntry(name=name, value=value, config_source=_OWN if own else _DEFAULT, config_type=kind)


class _Inert(msgspec.Struct, frozen=True):
    """The inert settings of a topic. `created_at`: of its first partition, None if it could not be told."""

    created_at: int | None
    values: dict[str, str]

    def are_of(self, created_at: int | None) -> bool:
        """Return whether they belong to the topic that was created at this time."""
        return created_at is None or self.created_at in (None, created_at)


_TOPICS: Final = Prefix("topic/", _Inert)


class InertSettings:
    """The inert settings of a listener's topics."""

    def __init__(self, table: StructTable, topics: KafkaTopics) -> None:
        self._table = table
        self._topics = topics

    async def of(self, topic: str) -> Mapping[str, str]:
        """Return the inert settings of a topic. Raises OperationFailed."""
        entry = await self._table.get(_TOPICS.key(topic))
        return entry.value.values if entry is not None and entry.value.are_of(await self._created_at(topic)) else {}

    async def update(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Set settings of a topic, or remove those that are None. Raises OperationFailed."""
        key, is_new = _TOPICS.key(topic), any(value is not None for value in changes.values())
        while (entry := await self._table.get(key)) is not None or is_new:
            created_at = await self._created_at(topic)
            values = dict(entry.value.values) if entry is not None and entry.value.are_of(created_at) else {}
            merged = {name: value for name, value in (values | dict(changes)).items() if value is not None}
            with suppress(Conflict):
                await self._table.put(key, _Inert(created_at, merged), NOT_EXISTS if entry is None else entry.version)
                return

    async def discard(self, topic: str) -> None:
        """Remove the settings of a topic that was deleted. Raises OperationFailed."""
        key = _TOPICS.key(topic)
        if await self._table.get(key) is not None:
            await self._table.discard(key)

    async def _created_at(self, topic: str) -> int | None:
        try:
            first = await self._topics.first_partition(topic)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.PERMISSION_DENIED:
                raise
            return None
        return None if first is None else first.created_at
