"""Free ports for servers of tests."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

__all__ = ["free_ports"]

_PORTS: Final = range(15_000, 32_000)
"""Below those that systems give to outgoing connections, so a server that is restarted finds its ports free."""


def free_ports(count: int) -> list[int]:
    """Return different ports that are free on every interface."""
    dice, found = random.SystemRandom(), set[int]()
    with contextlib.ExitStack() as held:
        while len(found) < count:
            port = dice.choice(_PORTS)
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_server(("0.0.0.0", port)))
                found.add(port)
    return list(found)
