"""Reports the state of the process to a service manager: NOTIFY_SOCKET, WATCHDOG_USEC (sd_notify(3))."""

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
    """Sends notifications to the service manager, if there is one. Never blocks; errors are logged and ignored."""

    def __init__(self, address: str | None = None, watchdog_seconds: float | None = None) -> None:
        """`address`: path of a Unix datagram socket, `@name` for an abstract one. `watchdog_seconds`: the interval
        within which the service manager expects a keep-alive."""
        self._address = address
        self._watchdog_seconds = watchdog_seconds

    @classmethod
    def of_environment(cls, environment: MutableMapping[str, str] = os.environ) -> Notifier:
        """Create a notifier from the environment. Removes the variables, so that a child process does not notify for
        us."""
        address = environment.pop("NOTIFY_SOCKET", None)
        microseconds, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        ours = pid in ("", str(os.getpid())) and microseconds.isascii() and microseconds.isdigit()
        return cls(address or None, int(microseconds) / 1_000_000 if ours and int(microseconds) else None)

    def ready(self, status: str) -> None:
        """Report that the gateway serves, or has finished a reload; `status`: one line for people."""
        self._notify("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Report that a reload has begun; `ready` ends it."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=reloading")

    def stopping(self, status: str) -> None:
        """Report that the gateway is about to end."""
        self._notify("STOPPING=1", f"STATUS={status}")

    async def watchdog(self) -> None:
        """Send keep-alives, twice per expected interval, until cancelled. Runs in the event loop, so that they stop if
        the loop is stuck."""
        if self._address is None or self._watchdog_seconds is None:
            return
        while True:
            self._notify("WATCHDOG=1")
            await trio.sleep(self._watchdog_seconds / 2)

    def _notify(self, *lines: str) -> None:
        if self._address is None:
            return
        to = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(line.replace("\n", " ") for line in lines).encode(), to)
        except OSError as error:
            log.warning("systemd_not_notified", said=lines[0], reason=error.strerror)
