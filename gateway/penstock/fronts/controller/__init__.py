"""The front for Pravega's clients that ask a controller. See `ControllerFront`."""

from penstock.fronts.controller.front import ControllerFront

__all__ = ["ControllerFront"]
