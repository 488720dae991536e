"""The terms of S3P's clients: names that are bytes, and identifiers."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from penstock.model.failures import OperationFailed
from penstock.model.operations import Located
from penstock.model.records import StreamRef
from penstock.protocols.terms import Terms
from penstock_s3p.names import S3PNames

__all__ = ["S3PTerms"]


class S3PTerms(Terms):
    """The terms of an S3P listener's clients. `names`: as configured."""

    def __init__(self, names: S3PNames) -> None:
        self._names = names

    def to_stream(self, name: str) -> StreamRef:
        """Return the stream that its clients call `name`."""
        return self._names.to_stream(name.encode("utf-8", "surrogateescape"))

    def name_of(self, stream: StreamRef) -> bytes:
        """Return its clients' name of a stream."""
        return self._names.from_stream(stream)

    def hints(self, stream: StreamRef, located: Located) -> Mapping[str, dict[str, Any]]:
        """Return the name and the smallest identifier to read from."""
        if located.record_id is None:
            return {}
        try:
            name = self.name_of(stream)
        except OperationFailed:
            return {}
        try:
            spelled = {"name": name.decode()}
        except UnicodeDecodeError:
            spelled = {"name_base64": base64.b64encode(name).decode()}
        return {"s3p": {**spelled, "min_id": str(located.record_id)}}
