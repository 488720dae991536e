"""Fields that no client of Durable Streams knows: in events `control`, since all other content is a user's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Final

from penstock.routing.faults.unknown import AddField, in_events

__all__ = ["IN_EVENTS"]

_CONTROL: Final = re.compile(rb"^(event: control\ndata: ?)(\{.*)", re.MULTILINE)

IN_EVENTS: Final[Mapping[str, AddField]] = {"text/event-stream": partial(in_events, data=_CONTROL)}
"""By media type."""
