"""The front for Pravega's clients that use a controller. See `ControllerFront`."""

from penstock_pravega.controller.front.front import ControllerFront

__all__ = ["ControllerFront"]
