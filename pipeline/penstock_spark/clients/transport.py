"""A blocking connection with deadlines: TCP, with TLS if the endpoint asks for it."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import KIB, MIB
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.failing import late, lost, reason_of, tls_reason, unreachable

__all__ = ["BlockingTransport", "Buffer"]

Buffer = bytes | bytearray | memoryview

_RECEIVED_AT_ONCE: Final = 512 * KIB
"""Reading records of 1 KiB, thousands a second of one core with 64, 256, 512, 1024 KiB: 807, 875, 908, 899."""
_MAX_INBOX: Final = 4 * MIB
"""Most bytes kept from a server that must be read from before it reads. Beyond that, it is not read further."""
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Keep-alive settings, in seconds and probes, that detect a server that vanished (no power, no route) after 30 s."""
_OF_TLS: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class BlockingTransport:
    """One connection to `host` (default: the endpoint's), opened on construction, for HTTP/1.1.

    Every method raises OperationFailed: UNAVAILABLE if the server is unreachable, goes away, or is silent for
    `request_seconds`; AUTHN or INVALID for errors that no retry mends (see `failing`). After a failure it is closed.
    """

    def __init__(self, endpoint: Endpoint, host: str | None = None) -> None:
        self.endpoint = endpoint
        self._inbox: deque[bytes] = deque()
        self._inbox_size = 0
        self._buffer = memoryview(bytearray(_RECEIVED_AT_ONCE))
        self._socket = self._connect(host or endpoint.host)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self.open = True
        self._error: OperationFailed | None = None

    def _connect(self, host: str) -> socket.socket:
        context = _context(self.endpoint) if self.endpoint.tls else None
        deadline = time.monotonic() + self.endpoint.connect_seconds
        sock: socket.socket | None = None
        try:
            sock = socket.create_connection((host, self.endpoint.port), timeout=self.endpoint.connect_seconds)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE.items():
                if hasattr(socket, option):  # not every system lets it be set
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
            if context is not None:
                sock.settimeout(max(0.01, deadline - time.monotonic()))
                sock = context.wrap_socket(sock, server_hostname=host)
            sock.setblocking(False)
            return sock
        except (OSError, UnicodeError) as error:  # UnicodeError for an invalid host name
            if sock is not None:
                sock.close()
            raise unreachable(self.endpoint, error if isinstance(error, OSError) else OSError(str(error))) from error

    def send(self, pieces: Sequence[Buffer]) -> None:
        """Send all pieces, waiting as long as the server keeps reading. Bytes received meanwhile are kept for
        `receive`, up to 4 MiB, since a server may stop reading until it is read from."""
        data = memoryview(b"".join(pieces))
        while data:
            try:
                data = data[self._socket.send(data) :]
            except (BlockingIOError, *_OF_TLS) as error:
                heard = self._inbox_size < _MAX_INBOX and self._take()
                if not heard:
                    self._wait(select.POLLIN if isinstance(error, ssl.SSLWantReadError) else self._interests())
            except OSError as error:
                with contextlib.suppress(OperationFailed):
                    while self._inbox_size < _MAX_INBOX and self._take():  # its last words
                        pass
                raise self._broken(error) from error

    def receive(self) -> Buffer:
        """Wait for the next bytes and return them, up to 512 KiB; b"" at the end of the connection. They are valid
        until the next call."""
        while True:
            received = self.receive_now()
            if received is not None:
                return received
            self._wait(self._wanted)

    def receive_now(self) -> Buffer | None:
        """Return bytes that have arrived already; None if there are none, b"" at the end of the connection."""
        if self._inbox:
            piece = self._inbox.popleft()
            if piece:
                self._inbox_size -= len(piece)
            else:
                self._inbox.append(piece)  # the end of the connection stays queued
            return piece
        return self._receive()

    def close(self) -> None:
        """Close the connection abruptly."""
        self.open = False
        self._socket.close()

    # ---- internals -----------------------------------------------------------------------------------------------

    _wanted = select.POLLIN

    def _receive(self) -> Buffer | None:
        if not self.open:
            raise self._error or lost(self.endpoint, "the connection is closed")
        try:
            size = self._socket.recv_into(self._buffer)
        except (BlockingIOError, *_OF_TLS) as error:
            self._wanted = select.POLLOUT if isinstance(error, ssl.SSLWantWriteError) else select.POLLIN
            return None
        except OSError as error:
            raise self._broken(error) from error
        return self._buffer[:size] if size else b""

    def _take(self) -> bool:
        """Move arrived bytes to the inbox. Returns False if there are none."""
        if self._inbox and not self._inbox[-1]:
            return False
        received = self._receive()
        if received is None:
            return False
        self._inbox.append(bytes(received))
        self._inbox_size += len(received)
        return True

    def _interests(self) -> int:
        """Return the events to wait for while sending. A server that has finished is always readable, so its input is
        not waited for."""
        heard_all = self._inbox_size >= _MAX_INBOX or (bool(self._inbox) and not self._inbox[-1])
        return select.POLLOUT if heard_all else select.POLLIN | select.POLLOUT

    def _wait(self, events: int) -> None:
        seconds = self.endpoint.request_seconds
        self._poll.modify(self._socket, events)
        if not self._poll.poll(seconds * 1000):
            self.close()
            raise late(self.endpoint, seconds)

    def _broken(self, error: OSError) -> OperationFailed:
        self.close()
        if isinstance(error, ssl.SSLError) and tls_reason(error) is not None:
            self._error = unreachable(self.endpoint, error)  # TLS 1.3 refuses our certificate only now
        else:
            self._error = lost(self.endpoint, f"the connection broke: {reason_of(error)}")
        return self._error


def _context(endpoint: Endpoint) -> ssl.SSLContext:
    """Return the endpoint's TLS settings as a context. Raises OperationFailed(INVALID) naming the file that cannot be
    used."""
    try:
        context = ssl.create_default_context(cafile=endpoint.ca_file)
        if endpoint.certificate_file is not None:
            context.load_cert_chain(endpoint.certificate_file, endpoint.key_file, password=_no_password)
        context.set_alpn_protocols(["http/1.1"])
        return context
    except (OSError, ssl.SSLError) as error:
        files = [name for name in (endpoint.ca_file, endpoint.certificate_file, endpoint.key_file) if name]
        reason = error.strerror if not isinstance(error, ssl.SSLError) else error.reason
        message = f"{endpoint}: TLS: cannot use {', '.join(files)}: {reason or error}"
        raise fail(FailureCode.INVALID, message) from error


def _no_password() -> str:
    """Return "", so that OpenSSL does not prompt on the terminal, where a task would hang."""
    return ""
