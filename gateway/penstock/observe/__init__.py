"""Logs, metrics, traces, and the taps on connections.

Everything here observes only: no function waits, and none raises into the code that it observes. Counting is an
addition on an object that is looked up once (`metrics.series`). A tap gets every byte above TLS; a connection without
listeners costs an attribute test for each read or write (`taps`).
"""

from penstock.observe.connections import bind_connection, next_connection_number
from penstock.observe.levels import LEVELS, level, set_level
from penstock.observe.logs import configure_logging

__all__ = ["LEVELS", "bind_connection", "configure_logging", "level", "next_connection_number", "set_level"]
