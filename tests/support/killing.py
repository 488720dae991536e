"""Kill a gateway while clients load it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from http.client import HTTPException

from support.process import GatewayProcess

__all__ = ["GONE", "kill_under_load"]

GONE = (OSError, EOFError, AssertionError, ValueError, HTTPException)
"""Errors that a client may get when the gateway is killed."""
PATIENCE_SECONDS = 60
"""Most time that the last round takes longer, for enough to be acknowledged on a machine that is busy otherwise."""


def kill_under_load(
    gateway: GatewayProcess, clients: Sequence[Callable[[], None]], seconds: float, enough: Callable[[], bool]
) -> None:
    """Run the clients, and kill the gateway after some time, once enough was acknowledged."""
    killed = threading.Event()
    failures: list[BaseException] = []

    def until_gone(client: Callable[[], None]) -> None:
        try:
            client()
        except GONE as error:
            if not killed.is_set():
                failures.append(error)

    threads = [threading.Thread(target=until_gone, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    patience = time.monotonic() + PATIENCE_SECONDS
    while not (enough() or failures) and time.monotonic() < patience:
        time.sleep(0.01)
    killed.set()
    gateway.kill()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert not failures, failures
