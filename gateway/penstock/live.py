"""Settings that are changed while they are looked at."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["take_over"]


def take_over(current: object, new: object) -> None:
    """Give the settings `current` the values of `new`, at once: whoever holds them sees those from then on.

    Both are instances of one dataclass that is not frozen; raises TypeError for anything else.
    """
    if type(current) is not type(new) or not dataclasses.is_dataclass(current) or isinstance(current, type):
        raise TypeError(f"{type(new).__name__} cannot take the place of {type(current).__name__}")
    values: dict[str, Any] = {field.name: getattr(new, field.name) for field in dataclasses.fields(current)}
    for name, value in values.items():
        setattr(current, name, value)
