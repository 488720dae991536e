"""What `penstock check` says of the recorder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.config import RecorderTable, RedactTable
from penstock_codecs.limits import MIB

__all__ = ["recorder_lines"]


def recorder_lines(table: RecorderTable | None) -> Iterator[str]:
    """Which connections are recorded, where to, how long files stay, and what is blanked in them."""
    if table is None:
        return
    directory = Path(table.directory).absolute()
    if table.start:
        yield f"From the start, {_which(table)}: plaintext, as pcapng files in {directory}"
    else:
        yield f"Nothing from the start; what `penstock record start` asks for, as pcapng files in {directory}"
    yield f"A file ends {_ends(table)}; {_stays(table)}"
    flushed = {"never": "never", "close": "once it is closed", "interval": f"every {table.fsync_seconds:g} s"}
    packed = "; closed files are compressed (zstd)" if table.compress == "zstd" else ""
    yield f"A file is flushed to the disk {flushed[table.fsync]}{packed}"
    yield f"Blanked in it: {'; '.join(_blanked(table.redact)) or 'NOTHING'}"


def _which(table: RecorderTable) -> str:
    places = [f"listener {name}" for name in table.listeners] + [f"back {name}" for name in table.backs]
    said = [f"of {' or '.join(places)}"] if places else []
    said += [f"that speak {' or '.join(table.protocols)}"] if table.protocols else []
    said += [f"used by route {' or '.join(table.routes)} (or with its backs)"] if table.routes else []
    said += [f"about stream {' or '.join(table.streams)}"] if table.streams else []
    return f"connections {', '.join(said)}" if said else "all connections, of clients and with servers"


def _ends(table: RecorderTable) -> str:
    ends = [f"at {_size(table.rotate_bytes)}"] if table.rotate_bytes else []
    ends += [f"after {table.rotate_seconds:g} s"] if table.rotate_seconds else []
    return " or ".join(ends) or "with the gateway"


def _stays(table: RecorderTable) -> str:
    bounds = [f"{table.keep_files} files"] if table.keep_files else []
    bounds += [_size(table.keep_bytes)] if table.keep_bytes else []
    return f"the newest stay, up to {' and '.join(bounds)}" if bounds else "all stay"


def _size(size: int) -> str:
    return f"{size // MIB} MiB" if size % MIB == 0 else f"{size} bytes"


def _blanked(redact: RedactTable) -> Iterator[str]:
    if redact.headers:
        yield f"the values of headers {', '.join(redact.headers)}"
    if redact.parameters:
        yield f"of query parameters {', '.join(redact.parameters)}"
    if redact.tokens:
        yield "tokens inside messages"
    if redact.record_headers:
        yield f"the values of record headers {', '.join(redact.record_headers)}"
    if redact.patterns:
        yield f"what matches {', '.join(redact.patterns)}"
