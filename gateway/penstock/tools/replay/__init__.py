"""Replay of the clients of a recording to a live server: `penstock replay`."""

from typing import Final

__all__ = ["AS_RECORDED", "PATIENCE_SECONDS"]

AS_RECORDED: Final = 1.0
"""The speed of the recording."""
PATIENCE_SECONDS: Final = 30.0
"""Seconds to wait for an answer beyond the time it took in the recording."""
