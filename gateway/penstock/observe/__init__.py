"""What the gateway says about itself."""

from penstock.observe.connections import bind_connection, next_connection_number
from penstock.observe.logs import configure_logging

__all__ = ["bind_connection", "configure_logging", "next_connection_number"]
