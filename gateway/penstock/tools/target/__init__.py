"""A server that is named on the command line: its URL, and a gateway within this process that translates for it."""

from typing import Final

__all__ = ["LOSS_WORDS"]

LOSS_WORDS: Final = ("refuse", "envelope", "drop")
"""The choices for what a protocol cannot carry (docs/loss.md)."""
