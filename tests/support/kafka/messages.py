"""Any message of Kafka, for generated tests: values for all fields, as their annotations bound them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from penstock_kafka.codec import KafkaMessage

TEXT = st.text(st.characters(codec="utf-8"), max_size=5)


def messages(cls: type[KafkaMessage]) -> st.SearchStrategy[KafkaMessage]:
    """A message with any values; a version may lack some fields, or be unable to spell some nulls."""
    hints = get_type_hints(cls, include_extras=True)
    return st.builds(cls, **{name: values(hints[name]) for name in cls.__struct_fields__})


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type as it is annotated."""
    for rule in getattr(hint, "__metadata__", ()):
        layout = getattr(rule, "layout", None)
        if isinstance(layout, struct.Struct):
            if layout.format == ">16s":
                return st.binary(min_size=16, max_size=16)
            bits = layout.size * 8
            return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    if get_origin(hint) is Annotated:
        return values(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        [inner] = [one for one in get_args(hint) if one is not NoneType]
        return st.none() | values(inner)
    if get_origin(hint) is Sequence:
        arrays = st.lists(values(get_args(hint)[0]), max_size=3)
        return arrays | arrays.map(tuple)
    if hint is bool:
        return st.booleans()
    if hint is str:
        return TEXT
    if hint is bytes:
        return st.binary(max_size=8)
    return messages(hint)
