"""Limits of the whole process and of each client (`penstock.app.config.schema`)."""

from typing import Annotated

from penstock.core.config_fields import Table, key
from penstock.model.limits import MIB

__all__ = ["Limits"]


class Limits(Table, frozen=True, kw_only=True):
    """Limits of the whole process, over all listeners except the management listener, and of each client. A client is
    an authenticated identity, else an address (for IPv6 its first 64 bits).
    docs/limits.md describes the effect of each limit."""

    max_connections: Annotated[
        int,
        key(
            "Most open connections; fewer if file descriptors would run out. A further connection closes the one "
            "that has been idle for longest; if none is idle, it is refused.",
            least=1,
        ),
    ] = 20_000
    max_connections_per_client: Annotated[
        int,
        key(
            "Most open connections of one client. A further one closes the client's connection that has been idle "
            "for longest; if none is idle, it is refused.",
            least=1,
        ),
    ] = 5_000
    max_inflight_bytes: Annotated[
        int,
        key(
            "Most bytes of requests that are incomplete or wait to be executed, and of answers that wait for their "
            "clients. Beyond it, connections that hold more than 64 KiB are not read.",
            least=64 * MIB,
        ),
    ] = 256 * MIB
    max_inflight_bytes_per_client: Annotated[
        int, key("Most bytes of one client, counted as for max_inflight_bytes.", least=32 * MIB)
    ] = 128 * MIB
    inflight_wait_seconds: Annotated[
        float, key("Time a client may wait for room for such bytes before it is refused.", least=0.1)
    ] = 10.0
    connections_per_second: Annotated[
        float,
        key(
            "New connections of one client per second; further ones wait before they are served. 0: unlimited.", least=0
        ),
    ] = 1000.0
    requests_per_second: Annotated[
        float,
        key(
            "Requests, commands and calls of one client per second; further ones are refused, or wait if "
            "the protocol has no such refusal. 0: unlimited.",
            least=0,
        ),
    ] = 0.0
    bytes_per_second: Annotated[
        float, key("Bytes received from one client per second; further ones are read later. 0: unlimited.", least=0)
    ] = 0.0
    burst_seconds: Annotated[
        float,
        key(
            "Seconds' worth of each rate that a client may use at once after it was idle.",
            least=0.1,
        ),
    ] = 2.0
    first_byte_seconds: Annotated[
        float,
        key(
            "Time within which a connection must send its first byte; with TLS, counted from the end of the handshake.",
            least=0.1,
        ),
    ] = 30.0
    receive_grace_seconds: Annotated[
        float, key("Time that a message, command or frame may take to arrive at any rate.", least=0.1)
    ] = 30.0
    min_receive_rate: Annotated[
        int,
        key(
            "Lowest average rate, in bytes per second, of a message, command or frame that takes longer than "
            "receive_grace_seconds; a slower client is disconnected.",
            least=1,
        ),
    ] = 1024
