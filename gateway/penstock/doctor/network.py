"""Ports that listeners want, and servers behind the gateway."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from penstock.config import Address, Config, SegmentBack
from penstock.doctor.findings import Finding, fine, wrong

__all__ = ["about_backs", "about_ports"]

CONNECT_SECONDS: Final = 3.0
_LISTENING: Final = "0A"
"""The state of a socket in /proc/net/tcp."""


def about_ports(config: Config | None, proc: Path = Path("/proc")) -> Iterator[Finding]:
    """Whether each listener could bind; else who has its port."""
    if config is None:
        return
    wanted = {f"listeners.{label}": listener.bind for label, listener in config.listeners.labelled()}
    if config.management.enabled:
        wanted["management"] = config.management.bind
    for name, bind in wanted.items():
        yield _port(name, Address.parse(bind), proc)


def _port(name: str, address: Address, proc: Path) -> Finding:
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(place)
            one.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            owner = owner_of(address.port, proc)
            advice = "Stop that, or give the listener another port. If it is this gateway, all is well."
            return wrong(name, f"{address} is taken by {owner}", advice)
        return wrong(name, f"{address} cannot be bound: {error.strerror}", "Choose an address of this machine.")
    return fine(name, f"{address} is free")


def owner_of(port: int, proc: Path) -> str:
    """Who listens on a port, as far as we may know: the name and the number of the process."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    for process in proc.iterdir():
        if process.name.isdigit() and sockets:
            with contextlib.suppress(OSError):  # it is another user's, or gone
                if any(str(one.readlink()) in sockets for one in (process / "fd").iterdir()):
                    return f"{(process / 'comm').read_text().strip()} (process {process.name})"
    return "another process"


def _inodes(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def about_backs(config: Config | None) -> Iterator[Finding]:
    """Whether something listens at each server's address."""
    if config is None:
        return
    wanted: dict[str, str] = {}
    for name, table in config.backs.items():
        if table.address is not None:
            wanted[f"backs.{name}"] = table.address
        if isinstance(table, SegmentBack) and table.controller is not None:
            wanted[f"backs.{name} (controller)"] = table.controller
    with ThreadPoolExecutor(max(1, len(wanted))) as pool:
        yield from pool.map(_server, wanted, wanted.values())


def _server(name: str, text: str) -> Finding:
    address = Address.parse(text)
    try:
        with socket.create_connection((address.host, address.port), timeout=CONNECT_SECONDS):
            return fine(name, f"{address} accepts connections")
    except OSError as error:
        why = "does not answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return wrong(name, f"{address}: {why}", "Start it, or mend the address; the gateway tries again by itself.")
