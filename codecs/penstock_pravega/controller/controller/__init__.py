"""The controller: answers to Pravega's clients about scopes, streams and the addresses of segments, over gRPC."""

from penstock_pravega.controller.controller.settings import Advertised, ControllerSettings, SegmentsMode

__all__ = ["Advertised", "ControllerSettings", "SegmentsMode"]
