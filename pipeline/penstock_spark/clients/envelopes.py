"""Records in envelopes, in which a gateway stores what segments cannot hold (docs/loss.md, "The envelope")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock_codecs.envelope import is_marked, unwrap, wrap
from penstock_codecs.model import Columns, Headers

__all__ = ["unwrapped_records", "wrapped"]


def unwrapped_records(columns: Columns) -> Columns:
    """Return the records inside the envelopes; a body without an envelope stays as it is. Returns the same object if
    there are no envelopes."""
    if not any(map(is_marked, columns.bodies)):
        return columns
    bodies, headers = list(columns.bodies), dict(columns.headers)
    for index, body in enumerate(columns.bodies):
        if not is_marked(body):
            continue
        try:
            record_headers, bodies[index] = unwrap(body)
        except ValueError:
            continue
        if record_headers:
            headers[index] = record_headers
    return Columns(columns.seq_nums, columns.timestamps, bodies, headers)


def wrapped(bodies: Sequence[bytes], headers: Mapping[int, Headers]) -> list[bytes]:
    """Return bodies that hold whole records: records with headers or without a body, and plain ones that look like an
    envelope, become envelopes. `unwrapped_records` undoes it."""
    return [
        wrap(headers.get(index, ()), body) if index in headers or not body or is_marked(body) else body
        for index, body in enumerate(bodies)
    ]
