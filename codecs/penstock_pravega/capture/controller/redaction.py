"""Secrets in calls of the controller: tokens, which the messages' descriptors name."""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor

from penstock.capture.redaction.requests import HttpBodies
from penstock_proto import pravega_controller_pb2

__all__ = ["ControllerBodies"]


class ControllerBodies(HttpBodies):
    """Bodies of the controller's calls."""

    def call(self, path: bytes, *, request: bool) -> Descriptor | None:
        for service in pravega_controller_pb2.DESCRIPTOR.services_by_name.values():
            method = service.methods_by_name.get(path.rpartition(b"/")[2].decode("latin-1"))
            if method is not None:
                return method.input_type if request else method.output_type
        return None
