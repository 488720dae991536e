"""A blocking HTTP/2 client with prior knowledge, on `h2`. One thread per connection."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Mapping

import h2.config
import h2.connection
import h2.events
import h2.settings

WINDOW = 4 << 20


class H2Connection:
    """An HTTP/2 connection without TLS. Waiting on one stream reads the socket for all streams of the connection."""

    def __init__(self, address: tuple[str, int], window: int = WINDOW, connection_window: int | None = None) -> None:
        self.socket = socket.create_connection(address, timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.authority = f"{address[0]}:{address[1]}"
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.streams: dict[int, H2Stream] = {}
        self.h2.initiate_connection()
        self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        if (more := (connection_window or window) - 65_535) > 0:
            self.h2.increment_flow_control_window(more)
        self.flush()

    def flush(self) -> None:
        try:
            self.socket.sendall(self.h2.data_to_send())
        except OSError:  # a caller that gets no connection cannot close it
            self.socket.close()
            raise

    def open(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        *,
        own_connection: bool = False,
        has_body: bool | None = None,
    ) -> H2Stream:
        """Begin an exchange. `own_connection`: closing the stream closes all. `has_body` None: a POST has one."""
        stream_id = self.h2.get_next_available_stream_id()
        stream = self.streams[stream_id] = H2Stream(self, stream_id, own_connection)
        authority = headers.get("host", self.authority)
        head = [(":method", method), (":scheme", "http"), (":authority", authority), (":path", target)]
        more = [(name, value) for name, value in headers.items() if name != "host"]
        if has_body is None:
            has_body = method == "POST"
        self.h2.send_headers(stream_id, head + more, end_stream=not has_body)
        self.flush()
        return stream

    def pump(self, timeout: float = 10) -> None:
        """Read what the server sends next, and hand it out. Raises TimeoutError, EOFError."""
        self.socket.settimeout(max(timeout, 0.001))
        data = self.socket.recv(1 << 20)
        self.socket.settimeout(10)
        if not data:
            raise EOFError("connection closed")
        for event in self.h2.receive_data(data):
            stream = self.streams.get(getattr(event, "stream_id", None) or 0)
            if stream is not None:
                stream.take(event)
        self.flush()

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> H2Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class H2Stream:
    """One exchange. Received data is acknowledged when it is taken out, not when it arrives."""

    def __init__(self, connection: H2Connection, stream_id: int, own_connection: bool) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self.reset: int | None = None  # the error code, if the server reset the stream
        self.ended = False
        self._own_connection = own_connection
        self._head: tuple[int, dict[str, str]] | None = None
        self._pieces: deque[h2.events.DataReceived] = deque()

    def take(self, event: h2.events.Event) -> None:
        """An event of this stream."""
        match event:
            case h2.events.ResponseReceived():
                headers = dict(event.headers)
                self._head = int(headers.pop(":status")), headers
            case h2.events.DataReceived():
                self._pieces.append(event)
            case h2.events.StreamEnded():
                self.ended = True
            case h2.events.StreamReset():
                self.reset, self.ended = event.error_code, True

    def writable(self) -> int:
        """Return how many bytes may be sent now."""
        connection = self.connection.h2
        window = connection.local_flow_control_window(self.stream_id)
        return min(window, connection.max_outbound_frame_size)

    def send(self, data: bytes) -> None:
        """Send as flow control allows, waiting for the window. Once the server has ended the stream, the rest is not
        sent.
        """
        at = 0
        while at < len(data) and not self.ended:
            if (size := self.writable()) <= 0:
                self.connection.pump()
                continue
            self.connection.h2.send_data(self.stream_id, data[at : at + size])
            self.connection.flush()
            at += size

    def end(self) -> None:
        """End the request body."""
        if self.reset is None:
            self.connection.h2.end_stream(self.stream_id)
            self.connection.flush()

    def head(self, timeout: float = 10) -> tuple[int, dict[str, str]]:
        """Status and headers of the answer; waits for them."""
        while self._head is None:
            if self.ended:
                raise EOFError(f"stream reset with {self.reset} before any answer")
            self.connection.pump(timeout)
        return self._head

    @property
    def status(self) -> int:
        return self.head()[0]

    @property
    def headers(self) -> dict[str, str]:
        return self.head()[1]

    def receive(self, timeout: float = 10) -> bytes:
        """Return the next piece of the body; b"" at its end. Raises TimeoutError, EOFError."""
        deadline = time.monotonic() + timeout
        self.head(timeout)
        while True:
            while self._pieces:
                event = self._pieces.popleft()
                if event.flow_controlled_length:
                    self.connection.h2.acknowledge_received_data(event.flow_controlled_length, self.stream_id)
                    self.connection.flush()
                if event.data:
                    return event.data
            if self.ended:
                # RST_STREAM with NO_ERROR may follow a whole answer (RFC 9113, 8.1); anything else is a cut.
                if self.reset:
                    raise EOFError(f"stream reset with {self.reset}")
                return b""
            if (left := deadline - time.monotonic()) <= 0:
                raise TimeoutError
            self.connection.pump(left)

    def close(self) -> None:
        """Give the exchange up: reset the stream, or close the connection that it has for itself."""
        if self._own_connection:
            self.connection.close()
        elif not self.ended:
            self.connection.h2.reset_stream(self.stream_id, 8)
            self.connection.flush()
            del self.connection.streams[self.stream_id]
