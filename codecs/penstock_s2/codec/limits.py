"""Limits of S2's interface over HTTP (S2 fact sheet). Sizes are in bytes unless the name says otherwise."""

from __future__ import annotations

from typing import Final

from penstock.model.limits import KIB, MIB

S2_MAX_UNARY_BODY: Final = 2 * MIB
"""Largest unary request body, after decompression (5.1)."""
S2_MAX_UNARY_WAIT_SECONDS: Final = 60
"""Longest wait of a unary read, in seconds (5.4)."""
S2_MAX_REQUEST_TOKEN: Final = 36
S2_MAX_ENCRYPTION_KEY: Final = 44
"""Most characters of an encryption key: 32 bytes in base64."""
S2_MAX_LIST: Final = 1000
S2_HEARTBEAT_SECONDS: Final = (5.0, 15.0)
"""Range of the random time without records, in seconds, after which a heartbeat is sent (2.4)."""
S2_COMPRESS_RESPONSE_FROM: Final = 1 * KIB
"""JSON and protobuf responses larger than this may be compressed (1.1)."""
