"""The number of examples of a generated test: the profile's, or fewer where examples or cases are costly."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["examples"]


def examples(*, share: int = 1, least: int = 1, most: int | None = None) -> settings:
    """Return settings with the profile's number of examples divided by `share`, at least `least` and at most `most`."""
    number = max(settings().max_examples // share, least)
    return settings(max_examples=number if most is None else min(number, most))
