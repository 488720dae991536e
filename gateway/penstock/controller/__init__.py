"""The controller: what Pravega's clients ask about scopes, streams and where their segments are, over gRPC."""

from penstock.controller.settings import Advertised, ControllerSettings, SegmentsMode

__all__ = ["Advertised", "ControllerSettings", "SegmentsMode"]
