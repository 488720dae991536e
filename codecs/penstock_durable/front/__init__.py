"""The front of Durable Streams."""

from __future__ import annotations

from penstock_durable.front.front import DurableFront
from penstock_durable.front.settings import DurableSettings

__all__ = ["DurableFront", "DurableSettings"]
