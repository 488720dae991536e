"""The terms in which a listener's clients name streams and positions, for `GET /positions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.core.back import Back
from penstock.core.internal_names import InternalNames
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.names import validate_basin_name, validate_stream_name
from penstock.model.operations import Located, Start
from penstock.model.records import StreamRef

__all__ = ["Terms"]


class Terms:
    """The terms of one listener's clients. This base class is for clients that name streams as BASIN/STREAM.

    `internal_names`: their names of internal streams, None if they have none.
    """

    internal_names: InternalNames | None = None
    reads_bytes = False
    """True if its clients read from byte offsets."""
    has_groups = False
    """True if its clients commit positions under the names of groups."""

    def to_stream(self, name: str) -> StreamRef:
        """Return the stream that its clients call `name`, in which surrogates stand for bytes that are not UTF-8.

        Raises OperationFailed.
        """
        basin, slash, stream = name.partition("/")
        if not slash:
            raise fail(FailureCode.BAD_QUERY, f"expected BASIN/STREAM, got {name!r:.80}")
        return StreamRef(
            validate_basin_name(basin, FailureCode.BAD_QUERY), validate_stream_name(stream, FailureCode.BAD_QUERY)
        )

    def can_name(self, stream: StreamRef) -> bool:
        """Return whether its clients have a name for a stream."""
        try:
            self.name_of(stream)
        except OperationFailed:
            return False
        return True

    def name_of(self, stream: StreamRef) -> str | bytes:
        """Return its clients' name of a stream. Raises OperationFailed if there is none."""
        return str(stream)

    async def committed(self, back: Back, label: str, group: str, stream: StreamRef) -> Start:
        """Return the position that a group goes on from. `back`: the listener's, `label`: its name in routes. Raises
        BAD_QUERY if the group has none."""
        raise NotImplementedError(f"{label} has no groups")

    def hints(self, stream: StreamRef, located: Located) -> Mapping[str, dict[str, Any]]:  # noqa: ARG002
        """Return how its clients read on from a position: for each of the kind's `hint_names` that applies, the request
        as JSON values."""
        return {}
