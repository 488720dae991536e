"""The front for Pravega's clients that use a controller. See `ControllerFront`."""

from penstock.protocols.controller.front.front import ControllerFront

__all__ = ["ControllerFront"]
