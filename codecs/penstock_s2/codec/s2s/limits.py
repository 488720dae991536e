"""Limits of S2S frames, in bytes (S2 fact sheet, 2.1)."""

from __future__ import annotations

from typing import Final

from penstock.model.limits import KIB, MIB

S2S_MAX_FRAME_LENGTH: Final = 2 * MIB
"""Largest value of a frame's 24-bit length: flag byte and payload."""
S2S_MAX_PAYLOAD: Final = S2S_MAX_FRAME_LENGTH - 1
"""Largest payload, both before and after decompression."""
S2S_COMPRESSION_THRESHOLD: Final = 1 * KIB
"""Payloads smaller than this are never compressed."""
