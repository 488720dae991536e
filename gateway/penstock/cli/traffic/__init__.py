"""Commands about the traffic of a running gateway: who is connected, what is recorded, and what goes by now."""

from penstock.cli.traffic.connections import connections_command
from penstock.cli.traffic.record import record_commands
from penstock.cli.traffic.tail import tail_command

__all__ = ["connections_command", "record_commands", "tail_command"]
