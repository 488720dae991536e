"""What the gateway says about itself."""

from penstock.observe.connections import bind_connection, next_connection_number
from penstock.observe.levels import LEVELS, level, set_level
from penstock.observe.logs import configure_logging

__all__ = ["LEVELS", "bind_connection", "configure_logging", "level", "next_connection_number", "set_level"]
