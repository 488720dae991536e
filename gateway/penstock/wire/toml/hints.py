"""Read a struct's annotations: the tables and choices that its keys allow."""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

__all__ = ["Tables", "choices", "hints_of", "named_values", "tables_in"]

Struct = type[msgspec.Struct]


class Tables(NamedTuple):
    """The tables that a key holds: one; several (`[[key]]`, or a single one if `one_or_more`); or several with names
    (`[key.NAME]`), each with a key `tag` that names one of `kinds`."""

    struct: Struct | None
    many: bool = False
    one_or_more: bool = False
    tag: str | None = None
    kinds: Mapping[str, Struct] = {}


@cache  # evaluating the annotations of one struct takes a millisecond, and a reader needs them several times
def hints_of(struct: Struct) -> Mapping[str, Any]:
    """Return the hints of a struct's keys, with what Annotated adds to them."""
    return get_type_hints(struct, include_extras=True)


def tables_in(hint: Any) -> Tables | None:
    """Return the tables that a key holds, or None if it holds a value."""
    bare = _bare(hint)
    if get_origin(bare) is tuple and _is_struct(inner := _bare(get_args(bare)[0])):
        extra = next((one.extra or {} for one in _metas(hint)), {})
        return Tables(inner, many=True, one_or_more=bool(extra.get("one_or_more")))
    if get_origin(bare) is dict and all(_is_struct(one) for one in get_args(get_args(bare)[1])):
        structs = get_args(get_args(bare)[1])
        kinds = {struct.__struct_config__.tag: struct for struct in structs}
        return Tables(None, tag=structs[0].__struct_config__.tag_field, kinds=kinds) if kinds else None
    return Tables(bare) if _is_struct(bare) else None


def choices(hint: Any) -> tuple[Any, ...]:
    """Return the values that a Literal hint allows; none for any other hint."""
    bare = _bare(hint)
    return get_args(bare) if get_origin(bare) is Literal else ()


def named_values(hint: Any) -> Any:
    """Return the hint of the values of a table with arbitrary keys; None if the key holds no such table."""
    bare = _bare(hint)
    return get_args(bare)[1] if get_origin(bare) is dict else None


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _metas(hint: Any) -> list[msgspec.Meta]:
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return [extra for extra in extras if isinstance(extra, msgspec.Meta)]


def _bare(hint: Any) -> Any:
    """Return the hint without Annotated and without `| None` (TOML has no null: a key is absent instead)."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        some = [part for part in get_args(hint) if part is not type(None)]
        return _bare(some[0]) if len(some) == 1 else hint
    return hint
