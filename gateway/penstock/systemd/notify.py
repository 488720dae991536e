"""Telling a service manager how the process fares: NOTIFY_SOCKET, WATCHDOG_USEC (sd_notify(3))."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping

import structlog
import trio

__all__ = ["Notifier"]

log = structlog.get_logger()


class Notifier:
    """Says nothing where nobody wants to know. Nothing waits, and nothing that goes wrong here harms the gateway."""

    def __init__(self, address: str | None = None, watchdog_seconds: float | None = None) -> None:
        """`address`: of a Unix datagram socket, `@name` for an abstract one. `watchdog_seconds`: a sign of life is
        expected in each such time."""
        self._address = address
        self._watchdog_seconds = watchdog_seconds

    @classmethod
    def of_environment(cls, environment: MutableMapping[str, str] = os.environ) -> Notifier:
        """As the service manager says. The variables are removed, so that no child speaks for us."""
        address = environment.pop("NOTIFY_SOCKET", None)
        microseconds, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        ours = pid in ("", str(os.getpid())) and microseconds.isascii() and microseconds.isdigit()
        return cls(address or None, int(microseconds) / 1_000_000 if ours and int(microseconds) else None)

    def ready(self, status: str) -> None:
        """It serves, or has what it was to read again; `status`: in a line for people."""
        self._say("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """It reads its configuration again; `ready` ends that."""
        self._say("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=reloading")

    def stopping(self, status: str) -> None:
        """It is about to end."""
        self._say("STOPPING=1", f"STATUS={status}")

    async def watchdog(self) -> None:
        """Give signs of life, twice as often as they are expected; until cancelled. Run by the event loop, so that they
        stop where that is stuck."""
        if self._address is None or self._watchdog_seconds is None:
            return
        while True:
            self._say("WATCHDOG=1")
            await trio.sleep(self._watchdog_seconds / 2)

    def _say(self, *lines: str) -> None:
        if self._address is None:
            return
        to = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(line.replace("\n", " ") for line in lines).encode(), to)
        except OSError as error:
            log.warning("not_notified", said=lines[0], reason=error.strerror)
