"""The front of Durable Streams."""

from __future__ import annotations

from penstock.protocols.durable.front.front import DurableFront
from penstock.protocols.durable.front.settings import DurableSettings

__all__ = ["DurableFront", "DurableSettings"]
