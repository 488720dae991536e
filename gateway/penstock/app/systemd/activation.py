"""Sockets that the service manager opened: LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES (sd_listen_fds(3))."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Final

from penstock.app.config import Config
from penstock.core.address import Address
from penstock.core.errors import CannotStart

__all__ = ["FIRST", "activated"]

FIRST: Final = 3
"""The first passed descriptor; the others follow it."""
_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def activated(config: Config, environment: MutableMapping[str, str] = os.environ) -> dict[str, list[socket.socket]]:
    """Return the passed sockets by listener (`listeners.s2.public`, `management`); empty without socket activation.
    Removes the variables, so that a child process does not take the sockets for its own.

    A socket's name selects its listener (`s2`, `s2.public`, `management`); a socket with any other name goes to the
    listener configured for its address. Raises CannotStart for a socket that matches no listener, or does not listen.
    """
    pid, count, names = (environment.pop(name, "") for name in _VARIABLES)
    if pid != str(os.getpid()) or not count.isascii() or not count.isdigit():
        return {}
    called = names.split(":") if names else []
    addresses = _addresses(config)
    sockets: dict[str, list[socket.socket]] = {}
    with contextlib.ExitStack() as refused:
        for index in range(int(count)):
            name = called[index] if index < len(called) else ""
            inherited = refused.enter_context(_socket(FIRST + index))
            _check(inherited, name)
            sockets.setdefault(_listener_of(inherited, name, addresses), []).append(inherited)
        refused.pop_all()
    return sockets


def _addresses(config: Config) -> dict[str, Address]:
    """Return each listener's configured address, by its label."""
    bound = {label: Address.parse(listener.bind) for label, listener in config.listeners.labelled()}
    if config.management.enabled:
        bound["management"] = Address.parse(config.management.bind)
    return bound


def _socket(descriptor: int) -> socket.socket:
    try:
        os.set_inheritable(descriptor, False)
        return socket.socket(fileno=descriptor)
    except OSError as error:
        raise CannotStart(f"socket activation: descriptor {descriptor} is not a socket: {error.strerror}") from error


def _check(inherited: socket.socket, name: str) -> None:
    listens = inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if not listens or inherited.family not in (socket.AF_INET, socket.AF_INET6):
        called = name or "without a name"
        raise CannotStart(f"socket activation: socket {inherited.fileno()} ({called}) does not listen on TCP")


def _listener_of(inherited: socket.socket, name: str, addresses: Mapping[str, Address]) -> str:
    label = name if name in addresses else _by_address(inherited.getsockname(), addresses)
    if label is None:
        listeners = ", ".join(addresses)
        socket_name, address = name or "without a name", Address(*inherited.getsockname()[:2])
        raise CannotStart(
            f"socket activation: socket {socket_name} on {address} is for no "
            f"listener: name it after one, or give one its address; there are {listeners}"
        )
    return label if label == "management" else f"listeners.{label}"


def _by_address(bound: Sequence[object], addresses: Mapping[str, Address]) -> str | None:
    host, port = bound[0], bound[1]
    return next(
        (label for label, address in addresses.items() if address.port == port and host in _numbers(address)), None
    )


def _numbers(address: Address) -> set[object]:
    try:
        infos = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {sockaddr[0] for *_, sockaddr in infos}
