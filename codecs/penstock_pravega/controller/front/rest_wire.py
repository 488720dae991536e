"""The JSON of Pravega's REST API (its `Controller.yaml`, and what release 0.13 answers), and the controller's types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.model.failures import FailureCode, fail, json_fault
from penstock_pravega.controller.controller.records import (
    NO_LIMIT,
    Configuration,
    ReaderGroup,
    RetentionType,
    ScaleType,
)
from penstock_pravega.controller.controller.topology import Epoch

__all__ = [
    "NewScope",
    "NewState",
    "NewStream",
    "StreamPolicies",
    "config_in",
    "decode",
    "spell_event",
    "spell_group",
    "spell_stream",
]

T = TypeVar("T")

_DAY: Final = 86_400_000
_HOUR: Final = 3_600_000
_MINUTE: Final = 60_000
_MEGABYTE: Final = 1 << 20

Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Days = Annotated[int, Meta(ge=0, le=NO_LIMIT // _DAY)]
Megabytes = Annotated[int, Meta(ge=0, le=NO_LIMIT // _MEGABYTE)]
Amount = Annotated[int, Meta(ge=0, le=NO_LIMIT)]
Tags = Annotated[list[Annotated[str, Meta(max_length=256)]], Meta(max_length=128)]


class FixedNumber(Struct, rename="camel", tag="FIXED_NUM_SEGMENTS"):
    """A scaling policy: the stream keeps its number of segments."""

    min_segments: Positive


class ByKilobytes(Struct, rename="camel", tag="BY_RATE_IN_KBYTES_PER_SEC"):
    """A scaling policy: segments are split and merged by their rate, in KB a second."""

    target_rate: Positive
    scale_factor: Positive
    min_segments: Positive


class ByEvents(ByKilobytes, tag="BY_RATE_IN_EVENTS_PER_SEC"):
    """A scaling policy: segments are split and merged by their rate, in events a second."""


class Duration(Struct):
    """A time in days, hours and minutes."""

    days: Days = 0
    hours: Amount = 0
    minutes: Amount = 0


class ByTime(Struct, rename="camel", omit_defaults=True, tag="LIMITED_DAYS"):
    """Retention by time, in days, or if these are 0 by the more exact duration. Without a maximum there is none."""

    value: Days
    time_based_retention: Duration | None = None
    max_value: Days | None = None
    max_time_based_retention: Duration | None = None


class BySize(Struct, rename="camel", omit_defaults=True, tag="LIMITED_SIZE_MB"):
    """Retention by size, in MB of 2**20 bytes."""

    value: Megabytes
    max_value: Megabytes | None = None


class StreamPolicies(Struct, rename="camel"):
    """The body of a request that configures a stream."""

    scaling_policy: FixedNumber | ByKilobytes | ByEvents
    retention_policy: ByTime | BySize | None = None
    stream_tags: Tags | None = None
    timestamp_aggregation_timeout: Amount | None = None
    rollover_size_bytes: Amount | None = None


class NewStream(StreamPolicies, rename="camel", kw_only=True):
    """The body of a request that creates a stream."""

    stream_name: str


class NewScope(Struct, rename="camel"):
    """The body of a request that creates a scope, and a scope in an answer."""

    scope_name: str


class NewState(Struct, rename="camel"):
    """The body of a request that seals a stream, and of its answer."""

    stream_state: Literal["SEALED"]


class _Stream(Struct, rename="camel", kw_only=True):
    scope_name: str
    stream_name: str
    scaling_policy: FixedNumber | ByKilobytes | ByEvents
    retention_policy: ByTime | BySize | UnsetType = UNSET
    tags: Sequence[str]
    timestamp_aggregation_timeout: int
    rollover_size_bytes: int


def decode(body: bytes, kind: type[T]) -> T:
    """Return the body as this type. Numbers may be strings, as in Pravega. Raises INVALID, which names the field."""
    try:
        return msgspec.json.decode(body, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise fail(FailureCode.INVALID, f"the body is not as it must be: {json_fault(error)}") from None


def config_in(policies: StreamPolicies) -> Configuration:
    """Return the configuration in a request."""
    scaling = policies.scaling_policy
    kind, least, most = _retention_in(policies.retention_policy)
    return Configuration(
        segments=scaling.min_segments,
        scale_type=_SCALE_TYPES[type(scaling)],
        target_rate=scaling.target_rate if isinstance(scaling, ByKilobytes) else 0,
        scale_factor=scaling.scale_factor if isinstance(scaling, ByKilobytes) else 0,
        retention_type=kind,
        retention=least,
        retention_max=most,
        tags=tuple(policies.stream_tags or ()),
        timestamp_aggregation_timeout=policies.timestamp_aggregation_timeout or 0,
        rollover_size_bytes=policies.rollover_size_bytes or 0,
    )


def spell_stream(scope: str, name: str, config: Configuration) -> bytes:
    """Return a stream with its configuration. A maximum of retention is in it too, which Pravega leaves out."""
    return msgspec.json.encode(
        _Stream(
            scope_name=scope,
            stream_name=name,
            scaling_policy=_spell_scaling(config),
            retention_policy=_spell_retention(config),
            tags=config.tags,
            timestamp_aggregation_timeout=config.timestamp_aggregation_timeout,
            rollover_size_bytes=config.rollover_size_bytes,
        )
    )


def spell_group(scope: str, name: str, group: ReaderGroup, online: Sequence[str]) -> bytes:
    """Return a reader group with its streams and its readers."""
    streams = dict.fromkeys(f"{cut.scope}/{cut.stream}" for cut in group.start)
    response = {"scopeName": scope, "readerGroupName": name, "streamList": [*streams], "onlineReaderIds": online}
    return msgspec.json.encode(response)


def spell_event(epoch: Epoch, began: Sequence[int], number: int) -> bytes:
    """Return the scaling event by which epoch `number` began; `began`: the times of all epochs."""
    segments: Iterator[dict[str, Any]] = (
        {
            "number": segment.number,
            "epoch": segment.epoch,
            "start": began[segment.epoch],
            "keyStart": segment.low,
            "keyEnd": segment.high,
        }
        for segment in epoch.segments
    )
    return msgspec.json.encode(
        {"timestamp": began[number], "segments": [*segments], "splits": epoch.splits, "merges": epoch.merges}
    )


_SCALE_TYPES: Final = {
    FixedNumber: ScaleType.FIXED,
    ByKilobytes: ScaleType.KILOBYTES,
    ByEvents: ScaleType.EVENTS,
}
_RATED: Final = {ScaleType.KILOBYTES: ByKilobytes, ScaleType.EVENTS: ByEvents}


def _spell_scaling(config: Configuration) -> FixedNumber | ByKilobytes | ByEvents:
    rated = _RATED.get(config.scale_type)
    if rated is None:
        return FixedNumber(config.segments)
    return rated(config.target_rate, config.scale_factor, config.segments)


def _retention_in(policy: ByTime | BySize | None) -> tuple[RetentionType, int, int]:
    """Return the unit, the least and the most that is kept."""
    if policy is None:
        return RetentionType.NONE, 0, 0
    if isinstance(policy, BySize):
        most = NO_LIMIT if policy.max_value is None else policy.max_value * _MEGABYTE
        return RetentionType.SIZE, policy.value * _MEGABYTE, most
    least = _time_in(policy.value, policy.time_based_retention)
    if policy.max_value is None and policy.max_time_based_retention is None:
        return RetentionType.TIME, least, NO_LIMIT
    return RetentionType.TIME, least, _time_in(policy.max_value or 0, policy.max_time_based_retention)


def _time_in(days: int, exact: Duration | None) -> int:
    if days or exact is None:
        return days * _DAY
    return min(exact.days * _DAY + exact.hours * _HOUR + exact.minutes * _MINUTE, NO_LIMIT)


def _spell_retention(config: Configuration) -> ByTime | BySize | UnsetType:
    limited = config.most_kept < NO_LIMIT
    if config.retention_type is RetentionType.SIZE:
        return BySize(config.retention // _MEGABYTE, config.retention_max // _MEGABYTE if limited else None)
    if config.retention_type is RetentionType.TIME:
        most = _spell_time(config.retention_max) if limited else (None, None)
        return ByTime(*_spell_time(config.retention), *most)
    return UNSET


def _spell_time(milliseconds: int) -> tuple[int, Duration]:
    """Return the days, 0 unless they are exact, and the time in days, hours and minutes."""
    days, rest = divmod(milliseconds, _DAY)
    hours, rest_of_hour = divmod(rest, _HOUR)
    return 0 if rest else days, Duration(days, hours, rest_of_hour // _MINUTE)
