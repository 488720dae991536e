"""Convert Python values to Arrow columns. Integers beyond 64 bits and invalid text in a capture do not make it fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa

from penstock.model.records import Headers

__all__ = ["as_times", "binaries", "column_of", "header_lists", "in_us", "ms_in_us"]

_MOST_US: Final = (1 << 63) - 1
"""Latest time that a column can hold, in us: in the year 294246."""
_THOUSAND: Final = 1000


def column_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return a column. Integers that do not fit become null; text that cannot be encoded as UTF-8 is escaped."""
    try:
        return pa.array(values, kind)
    except (OverflowError, pa.ArrowInvalid):
        least, most = (-(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1) if _is_integer(kind) else (0, 0)
        if least == most:
            raise
        return pa.array([None if value is None or not least <= value <= most else value for value in values], kind)
    except UnicodeEncodeError:
        return pa.array(_escaped(values), kind)


def _is_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind))


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_escaped(key): _escaped(element) for key, element in value.items()}
    return [_escaped(element) for element in value] if isinstance(value, (list, tuple)) else value


def in_us(time_ns: int) -> int:
    """Convert nanoseconds to microseconds."""
    return time_ns // _THOUSAND


def ms_in_us(time_ms: int | None) -> int | None:
    """Convert milliseconds to microseconds; None for a time later than a column can hold."""
    return None if time_ms is None or time_ms > _MOST_US // _THOUSAND else time_ms * _THOUSAND


def as_times(micros: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    """Return a column of times, given in us since 1970; those that are too late become null."""
    return column_of(micros, pa.int64()).cast(kind)


def binaries(values: Sequence[bytes]) -> pa.Array:
    """Return a column of bytes, of at most 2 GiB together. They are joined first: Arrow takes three times as long to
    gather pieces of 1 KiB."""
    offsets = pa.array(accumulate(map(len, values), initial=0), pa.int32())
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(values), [None, offsets.buffers()[1], pa.py_buffer(b"".join(values))]
    )


def header_lists(headers: Mapping[int, Headers], rows: int, kind: pa.DataType) -> pa.Array:
    """Return a column of lists of pairs, empty but for some rows. `kind`: a list of structs of two binaries."""
    counts = [0] * rows
    for row, pairs in headers.items():
        counts[row] = len(pairs)
    found = [pair for row in sorted(headers) for pair in headers[row]]
    sides = [binaries([pair[side] for pair in found]) for side in (0, 1)]
    pairs_of = pa.StructArray.from_arrays(sides, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(accumulate(counts, initial=0), pa.int32()), pairs_of, type=kind)
