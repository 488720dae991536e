"""The log level, which may change while the process runs."""

from __future__ import annotations

import logging
from types import FunctionType
from typing import Final, Literal

import structlog

__all__ = ["LEVELS", "Level", "Leveled", "level", "set_level"]

Level = Literal["debug", "info", "warning", "error"]
LEVELS: Final[tuple[Level, ...]] = ("debug", "info", "warning", "error")
_now: Level = "info"


class Leveled(structlog.make_filtering_bound_logger(logging.INFO)):  # type: ignore[misc]
    """The class of all loggers. Its methods are replaced by those of structlog's class for the current level, so that a
    level that is not logged costs a call that does nothing, and loggers in use follow `set_level`."""


def level() -> Level:
    """Return the current level: the lowest that is logged."""
    return _now


def set_level(wanted: str) -> None:
    """Log this level and higher ones from now on. Raises ValueError unless it is one of LEVELS."""
    global _now
    level = next((one for one in LEVELS if one == wanted), None)
    if level is None:
        raise ValueError(f"level: expected one of {', '.join(LEVELS)}, got {wanted!r:.80}")
    least = logging.getLevelNamesMapping()[wanted.upper()]
    for name, method in vars(structlog.make_filtering_bound_logger(least)).items():
        if isinstance(method, FunctionType):
            setattr(Leveled, name, method)
    # Libraries' debug lines are never wanted: h2 alone would render every frame that it sees.
    logging.getLogger().setLevel(max(least, logging.WARNING))
    _now = level
