"""A gateway before two S2 servers, one of which is not there."""

from typing import Final

__all__ = ["BRIDGE"]

BRIDGE: Final = """\
[listeners.s2]
bind = "127.0.0.1:{{s2_port}}"

[backs.far]
kind = "s2"
address = "127.0.0.1:{far}"

[backs.nobody]
kind = "s2"
address = "127.0.0.1:1"
breaker_failures = 1
recover_seconds = 0

[[routes]]
name = "lost"
basin = "nowhere-at-all"
back = "nobody"

[[routes]]
name = "theirs"
back = "far"

[store]
directory = "{{data}}"

[log]
format = "json"
"""
"""`far`: the port of the one that is. Basin `nowhere-at-all` is at the other, by route `lost`; all else by `theirs`."""
