"""Append sessions of one stream, over its writer."""

from __future__ import annotations

from penstock.backends.together import GroupingSession
from penstock.core.native import NativeAck, NativeAppendSession

__all__ = ["DurableAppendSession"]


class DurableAppendSession(GroupingSession[NativeAck], NativeAppendSession):
    """One session; several share the writer."""
