"""What a struct's annotations say about its keys."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

__all__ = ["choices", "struct_in"]


def struct_in(hint: Any) -> tuple[type[msgspec.Struct] | None, bool]:
    """The struct that a hint holds, if any, and whether it holds a sequence."""
    bare = _bare(hint)
    many = get_origin(bare) is tuple
    inner = _bare(get_args(bare)[0]) if many else bare
    is_struct = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
    return (inner if is_struct else None), many


def choices(hint: Any) -> tuple[Any, ...]:
    """The values that a Literal hint allows; none for any other hint."""
    bare = _bare(hint)
    return get_args(bare) if get_origin(bare) is Literal else ()


def _bare(hint: Any) -> Any:
    """The hint without Annotated and without `| None` (TOML has no null: an absent key says it)."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        some = [part for part in get_args(hint) if part is not type(None)]
        return _bare(some[0]) if len(some) == 1 else hint
    return hint
