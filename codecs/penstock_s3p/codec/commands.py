"""Parse commands for servers (S3P 0.2.0, sections 4, 7 and 8), in the order of the bytes.

The parser is one generator per connection: at an incomplete item it yields NEED_DATA and resumes from the same place.
It raises Fault at the first byte that cannot be part of a command.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from penstock.model.failures import printable
from penstock.model.records import RecordId
from penstock.wire.codec import NEED_DATA, Pull
from penstock_s3p.codec.events import FIRST_ID, AppendRecords, Command, Create, Delete, ReadRecords, TrimRecords
from penstock_s3p.codec.limits import S3PLimits
from penstock_s3p.codec.source import InputBuffer
from penstock_s3p.codec.values import parse_integer, parse_ms

__all__ = ["SCHEMAS", "Schema", "parse_commands"]

Option = Callable[[InputBuffer, S3PLimits, bytes], Any]


def _id(source: InputBuffer, _limits: S3PLimits, value: bytes) -> Any:
    milliseconds = parse_ms(value)
    if milliseconds is None:
        raise source.bad_format(f"ID '{printable(value)}' is not an unsigned 64-bit integer")
    return milliseconds


def _min_id(source: InputBuffer, _limits: S3PLimits, value: bytes) -> Any:
    record_id = RecordId.parse(value)
    if record_id is None:
        raise source.bad_format(f"MIN_ID '{printable(value)}' is not <ms>-<seq> of unsigned 64-bit integers")
    return record_id


def _count(source: InputBuffer, limits: S3PLimits, value: bytes) -> Any:
    return _within(source, "COUNT", value, 1, limits.max_count)


def _block(source: InputBuffer, limits: S3PLimits, value: bytes) -> Any:
    return _within(source, "BLOCK", value, 0, limits.max_block_ms)


def _within(source: InputBuffer, key: str, value: bytes, least: int, most: int) -> int:
    number = parse_integer(value)
    if number is None:
        raise source.bad_format(f"{key} '{printable(value)}' is not a decimal integer")
    if not least <= number <= most:
        raise source.over_limit(f"{key} {printable(value)} is not in the range {least} to {most}")
    return number


class Schema(NamedTuple):
    """One command: its number of elements and its options."""

    elements: int
    options: Mapping[bytes, Option]


SCHEMAS: Final[dict[bytes, Schema]] = {
    b"CREATE": Schema(3, {}),  # 8.1
    b"APPEND": Schema(4, {b"ID": _id}),  # 8.2
    b"READ": Schema(3, {b"COUNT": _count, b"BLOCK": _block, b"MIN_ID": _min_id}),  # 8.3
    b"TRIM": Schema(3, {b"MIN_ID": _min_id}),  # 8.4
    b"DELETE": Schema(3, {}),  # 8.5
}
"""The commands by name."""
_ELEMENTS: Final = frozenset(schema.elements for schema in SCHEMAS.values())


def parse_commands(source: InputBuffer, limits: S3PLimits) -> Generator[Command | Pull, None, NoReturn]:
    """Yield commands for ever."""
    while True:
        source.begin_message()
        while (elements := source.array("a command")) is None:
            yield NEED_DATA
        if elements not in _ELEMENTS:
            raise source.bad_format(f"a command is an array of 3 or 4 elements, not {elements}")
        while (word := source.bulk(limits.max_option_bytes, "command name")) is None:
            yield NEED_DATA
        word = word.upper()
        schema = SCHEMAS.get(word)
        if schema is None:
            raise source.bad_format(f"unknown command {printable(word)}")
        if elements != schema.elements:
            raise source.bad_format(f"{word.decode()} is an array of {schema.elements} elements, not {elements}")
        while (name := source.bulk(limits.max_name_bytes, "stream name")) is None:
            yield NEED_DATA
        while (length := source.array("options")) is None:
            yield NEED_DATA
        values = (yield from _options(source, limits, word, schema, length)) if length else {}
        match word:
            case b"APPEND":
                bodies: list[bytes] = []
                yield from _records(source, limits, bodies)
                yield AppendRecords(name, bodies, values.get(b"ID"))
            case b"READ":
                count = values.get(b"COUNT", limits.default_count)
                yield ReadRecords(name, count, values.get(b"BLOCK", 0), values.get(b"MIN_ID", FIRST_ID))
            case b"TRIM":
                if not values:
                    raise source.bad_format("TRIM needs option MIN_ID")
                yield TrimRecords(name, values[b"MIN_ID"])
            case b"CREATE":
                yield Create(name)
            case _:
                yield Delete(name)


def _options(
    source: InputBuffer, limits: S3PLimits, word: bytes, schema: Schema, length: int
) -> Generator[Pull, None, dict[bytes, Any]]:
    """Return the options' effective values; the last value of a key counts (section 7)."""
    if length % 2:
        raise source.bad_format(f"options are pairs of key and value, not {length} elements")
    if length > 2 * limits.max_option_pairs:
        raise source.over_limit(f"{length // 2} options exceed the limit of {limits.max_option_pairs}")
    options: dict[bytes, bytes] = {}
    for _ in range(length // 2):
        while (key := source.bulk(limits.max_option_bytes, "option key")) is None:
            yield NEED_DATA
        key = key.upper()
        if key not in schema.options:
            raise source.bad_format(f"unknown option {printable(key)} of {word.decode()}")
        while (value := source.bulk(limits.max_option_bytes, "option value")) is None:
            yield NEED_DATA
        options[key] = value
    return {key: schema.options[key](source, limits, value) for key, value in options.items()}


def _records(source: InputBuffer, limits: S3PLimits, bodies: list[bytes]) -> Generator[Pull, None, None]:
    while (count := source.array("records")) is None:
        yield NEED_DATA
    if count == 0:
        raise source.bad_format("APPEND needs at least one record")
    if count > limits.max_records_per_append:
        raise source.over_limit(f"{count} records exceed the limit of {limits.max_records_per_append} per APPEND")
    while not source.bulks(bodies, count, limits.max_record_bytes, limits.max_append_bytes, "record"):
        yield NEED_DATA
