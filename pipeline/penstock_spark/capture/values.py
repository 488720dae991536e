"""Values of Python as columns of Arrow, whatever a capture holds: numbers beyond 64 bits and text that is none are no
reason to fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

__all__ = ["MOST_US", "as_times", "column_of", "in_us"]

MOST_US: Final = (1 << 63) - 1
"""Latest time that a column can have, in us: of the year 294246."""
_NS: Final = 1000


def column_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column. Numbers that do not fit become null; text that has no UTF-8 is escaped."""
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
        return {_escaped(key): _escaped(one) for key, one in value.items()}
    return [_escaped(one) for one in value] if isinstance(value, (list, tuple)) else value


def in_us(time_ns: int) -> int:
    """Nanoseconds as microseconds."""
    return time_ns // _NS


def as_times(micros: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    """Times in us since 1970; those that are too late become null."""
    return column_of(micros, pa.int64()).cast(kind)
