"""Limits of the record model and of tables, which every front, back and store keeps. Each protocol's own stand beside
its codec. Sizes are in bytes."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

# ---- records and names: those of S2 (S2 fact sheet, 1.4, 2.4, 5.1) ---------------------------------------------------
MAX_RECORD_BYTES: Final = 1 * MIB
"""Largest metered size of one record."""
MAX_RECORD_HEADERS: Final = 262_000
"""Most headers of one record. A header takes up to 4 bytes more in protobuf than it is metered at, so a record of 1 MiB
with more of them would not fit into a frame, and could not be read over S2S."""
MAX_BATCH_RECORDS: Final = 1000
MAX_BATCH_BYTES: Final = 1 * MIB
"""Largest metered size of a batch, appended or read."""
MAX_FENCING_TOKEN_BYTES: Final = 36
MIN_BASIN_NAME_BYTES: Final = 8
MAX_BASIN_NAME_BYTES: Final = 48
MAX_STREAM_NAME_BYTES: Final = 512
"""Longest stream name, in UTF-8."""

# ---- tables: those of Pravega (segment fact sheet, 1.1) --------------------------------------------------------------
MAX_TABLE_NAME_BYTES: Final = 1024
"""Longest name of a table, in UTF-8."""
MAX_TABLE_KEY_BYTES: Final = 8 * KIB
MAX_TABLE_VALUE_BYTES: Final = 1 * MIB - 8 * KIB
