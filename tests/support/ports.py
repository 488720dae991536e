"""Free ports for servers of tests."""

from __future__ import annotations

import contextlib
import random
import socket
import sys
from collections import deque
from typing import Final

__all__ = ["free_ports"]

_PORTS: Final = range(15_000, 32_000)
"""Below those that systems give to outgoing connections, so a server that is restarted finds its ports free."""
_MOST_RESERVED: Final = 100
"""Descriptors that reservations may hold: those of some ten gateways."""
_reserved: Final[deque[socket.socket]] = deque()


def free_ports(count: int) -> list[int]:
    """Return different ports that are free on every interface, and that no other process of tests is given."""
    dice, found = random.SystemRandom(), set[int]()
    with contextlib.ExitStack() as held:
        while len(found) < count:
            port = dice.choice(_PORTS)
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_server(("0.0.0.0", port)))
                _reserve(port)
                found.add(port)
    return list(found)


def _reserve(port: int) -> None:
    """Keep the port from other processes while this one uses it, by the name of a socket. Raises OSError if one
    of them has it. Only Linux has such names."""
    if sys.platform == "linux":
        with contextlib.ExitStack() as opened:
            name = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            name.bind(f"\0penstock-tests-{port}")
            opened.pop_all()
            _reserved.append(name)
        if len(_reserved) > _MOST_RESERVED:
            _reserved.popleft().close()
