"""HTTP/2 on h2, both roles: one frame at a time, so that not pulling events is the back-pressure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

import h2.events
import h2.exceptions
import h2.settings
from hyperframe.frame import GoAwayFrame

from penstock.model.failures import Failure, FailureCode, LocalProtocolError, RemoteProtocolError
from penstock.wire.codec import NEED_DATA, PAUSED, Pull, Role
from penstock.wire.http.events import (
    ENHANCE_YOUR_CALM,
    NO_ERROR,
    NOISE_FROM,
    REFUSED_STREAM,
    Body,
    Buffer,
    Continue,
    Credit,
    Data,
    End,
    Ended,
    GoAway,
    HttpCodec,
    HttpLimits,
    Noise,
    Outgoing,
    Preludes,
    Received,
    RequestHead,
    Reset,
    ResponseHead,
    body_forbidden,
)
from penstock.wire.http.h2_frames import Few, OneFrame, StreamFailed, data_frames, failure_of, start
from penstock.wire.http.h2_heads import encoded, request_fields, request_head, response_head, trailers_of
from penstock.wire.http.h2_stream import H2Stream
from penstock.wire.http.preludes import h2_preludes

__all__ = ["Http2Connection"]

_QUANTUM: Final = 256 * 1024
"""Bytes of body that one stream may write before the next one's turn."""
_STREAMS_PER_NOISE: Final = 4
"""Number of streams for which changing the initial window takes as long as one frame without an event."""


class Http2Connection(HttpCodec):
    """One HTTP/2 connection, as server or as client. See `HttpCodec`."""

    version = "2"
    keeps = False
    held = 0

    def __init__(self, role: Role, limits: HttpLimits | None = None, scheme: str = "http") -> None:
        self._limits = limits or HttpLimits()
        self._role = role
        self._scheme = scheme
        self._streams: dict[int, H2Stream] = {}
        # bytes dropped of each request that is still coming though it has been answered
        self._answered: dict[int, int] = {}
        self._turns: Few[int] = Few()  # streams with body or an end that may be sent, in order
        self._events: Few[Received] = Few()
        self._out: list[Buffer] = []
        self._error: RemoteProtocolError | None = None
        self._going_away = False
        self._refuse_above = 2**31
        self._aborted = False
        self._abandoned = 0
        self._peer_ended = False
        self.given = 0
        """Bytes of body that were returned."""
        self.noise = 0
        """Number of frames received that had no event."""
        self._frames = OneFrame(role, self._limits.max_head)
        self._h2 = start(role, self._limits, self._frames)

    # ---- in ------------------------------------------------------------------------------------------------------
    def receive(self, data: Buffer) -> None:
        """Take bytes from the peer; b"" means that the peer has finished sending."""
        if not data:
            self._peer_ended = True
        elif self._error is None and not self._aborted:
            try:
                self._frames.add_data(data)
            except h2.exceptions.ProtocolError as error:  # the client preface is wrong
                self._h2.close_connection(error.error_code)
                self._refuse(error)

    def next_event(self) -> Received | Pull:
        """Return the next event. Raises RemoteProtocolError."""
        before = self.noise
        while self.noise < before + NOISE_FROM:
            if self._events:
                return self._events.popleft()
            if self._error is not None:
                raise self._error
            if self._aborted:
                return PAUSED
            if (body := self._h2.take_body(self._streams)) is not None:
                return Data(*body, len(body[1]))
            if not self._take_frame():
                return self._at_end()
        return Noise()

    def _settings(self, event: h2.events.RemoteSettingsChanged) -> None:
        """Count the cost of a change of every stream's window (RFC 9113, 6.9.2)."""
        if h2.settings.SettingCodes.INITIAL_WINDOW_SIZE in event.changed_settings:
            self.noise += len(self._streams) // _STREAMS_PER_NOISE
            self._reopen(self._streams)

    def _window_updated(self, event: h2.events.WindowUpdated) -> None:
        self._reopen((event.stream_id,))

    def _reopen(self, stream_ids: Iterable[int]) -> None:
        """Let streams take turns again, since their windows may have been opened."""
        for stream_id in stream_ids:
            if (stream := self._streams.get(stream_id)) is not None and stream.shut:
                stream.shut = False
                self._turns.append(stream_id)

    def _at_end(self) -> Received | Pull:
        if not self._peer_ended:
            return NEED_DATA
        if len(self._frames) or any(not stream.peer_done for stream in self._streams.values()):
            self._error = RemoteProtocolError(
                Failure(FailureCode.CLIENT_HANGUP, "HTTP/2: closed in the middle of a message")
            )
            raise self._error
        self._aborted = True
        return Ended()

    def _take_frame(self) -> bool:
        """Read one frame. Returns whether a whole one was there."""
        self._frames.taken = False
        try:
            events = self._h2.receive_data(b"")
            for event in events:
                if (handler := _HANDLERS.get(type(event))) is not None:
                    handler(self, event)
        except h2.exceptions.ProtocolError as error:
            self._refuse(error)
            return True
        goaway, self._frames.goaway = self._frames.goaway, None
        if goaway is not None:
            self._events.append(GoAway(goaway.error_code, goaway.last_stream_id))
            self._going_away = True
        if self._frames.taken and not self._events:
            self.noise += 1
        return self._frames.taken

    def _refuse(self, error: h2.exceptions.ProtocolError) -> None:
        self._error = RemoteProtocolError(failure_of(error))
        self._turns.clear()

    def _request(self, event: h2.events.RequestReceived) -> None:
        stream_id = event.stream_id
        if stream_id > self._refuse_above or self._h2.inbound_streams >= self._limits.max_streams:
            self._h2.reset_stream(stream_id, REFUSED_STREAM)
            return
        head = request_head(stream_id, event.headers, self._scheme)
        stream = self._streams[stream_id] = H2Stream(head.method, head)
        stream.expects = head.expects_continue
        self._events.append(head)

    def _response(self, event: h2.events.ResponseReceived) -> None:
        if (stream := self._streams.get(event.stream_id)) is not None:
            try:
                stream.response = response_head(event.stream_id, event.headers)
            except h2.exceptions.ProtocolError as error:
                self._reset(self._h2.fail_stream(event.stream_id, str(error)))
            else:
                self._events.append(stream.response)

    def _trailers(self, event: h2.events.TrailersReceived) -> None:
        if event.stream_id in self._streams:
            self._streams[event.stream_id].received_trailers = trailers_of(event.headers)

    def _informational(self, event: h2.events.InformationalResponseReceived) -> None:
        headers = dict(cast(Iterable[tuple[bytes, bytes]], event.headers))
        if event.stream_id in self._streams and headers.get(b":status") == b"100":
            self._events.append(Continue(event.stream_id))

    def _data(self, event: h2.events.DataReceived) -> None:
        data, held = event.data, event.flow_controlled_length
        if event.stream_id not in self._streams:
            self._h2.acknowledge_received_data(held, event.stream_id)
            self._discard(event.stream_id, held)
            return
        if held > len(data):  # padding is consumed at once
            self._h2.acknowledge_received_data(held - len(data), event.stream_id)
        if data:
            self._events.append(Data(event.stream_id, data, len(data)))

    def _discard(self, stream_id: int, length: int) -> None:
        """Count dropped body, and in the end ask the client to stop (RFC 9113, 8.1). Not at once: curl and other
        clients that are reset while they send do not read the answer."""
        if stream_id in self._answered:
            self._answered[stream_id] += length
            if self._answered[stream_id] > self._limits.max_discard:
                del self._answered[stream_id]
                self._h2.reset_stream(stream_id, NO_ERROR)

    def _ended(self, event: h2.events.StreamEnded) -> None:
        self._answered.pop(event.stream_id, None)
        if (stream := self._streams.get(event.stream_id)) is not None:
            stream.peer_done = True
            self._events.append(End(event.stream_id, stream.received_trailers))
            self._forget_if_over(event.stream_id, stream)

    def _reset(self, event: h2.events.StreamReset) -> None:
        self._answered.pop(event.stream_id, None)
        stream = self._streams.pop(event.stream_id, None)
        if isinstance(event, StreamFailed):  # also reported for a stream whose head was refused
            self.noise += 1
            self._events.append(Reset(event.stream_id, int(event.error_code), event.reason))
        elif stream is not None:
            self._events.append(Reset(event.stream_id, int(event.error_code or 0)))
        if stream is None:
            return
        self.held -= stream.held
        if self._role is Role.SERVER and not stream.answered:
            self._abandoned += 1
            if self._abandoned > self._limits.max_abandoned:
                self._h2.close_connection(ENHANCE_YOUR_CALM)
                raise h2.exceptions.DenialOfServiceError("too many requests reset before they were answered")

    def _forget_if_over(self, stream_id: int, stream: H2Stream) -> None:
        if stream.peer_done and stream.ending and not stream.unsent and stream_id not in self._turns:
            self._streams.pop(stream_id, None)

    # ---- out -----------------------------------------------------------------------------------------------------
    def send(self, event: Outgoing) -> None:
        """Send `event`. Raises LocalProtocolError."""
        if self._error is not None or self._aborted:
            return
        try:
            if isinstance(event, Credit):
                self._h2.acknowledge_received_data(event.length, event.stream_id)
            elif isinstance(event, GoAway):
                self._go_away(event.code)
            elif isinstance(event, RequestHead):
                self._send_request(event)
            elif event.stream_id in self._streams:
                self._send_on(event, self._streams[event.stream_id])
            elif isinstance(event, Reset) and self._answered.pop(event.stream_id, None) is not None:
                self._h2.reset_stream(event.stream_id, event.code)
        except (h2.exceptions.ProtocolError, UnicodeEncodeError) as error:
            raise LocalProtocolError(f"HTTP/2: {error}") from error

    def _send_on(self, event: ResponseHead | Continue | Body | End | Reset, stream: H2Stream) -> None:
        if isinstance(event, Body):
            self._queue(event, stream)
        elif isinstance(event, End):
            trailers = encoded(event.trailers)
            self._queue(Body(event.stream_id, (), end=True), stream)
            stream.trailers = trailers
        elif isinstance(event, ResponseHead):
            self._respond(event, stream)
        elif isinstance(event, Continue):
            if stream.expects and not stream.answered:
                stream.expects = False
                self._h2.send_headers(event.stream_id, [(b":status", b"100")])
        else:
            del self._streams[event.stream_id]
            self.held -= stream.held
            self._h2.reset_stream(event.stream_id, event.code)

    def _respond(self, event: ResponseHead, stream: H2Stream) -> None:
        fields = [(b":status", b"%d" % event.status), *encoded(event.headers)]
        self._h2.send_headers(event.stream_id, fields, end_stream=event.end)
        stream.answered, stream.response = True, event
        stream.bodiless = body_forbidden(stream.method, event.status)
        self._abandoned = max(0, self._abandoned - 1)
        if event.end:
            stream.ending = True
            self._over(event.stream_id, stream)

    def _send_request(self, event: RequestHead) -> None:
        if self._going_away:
            raise LocalProtocolError("HTTP/2: the peer accepts no new requests")
        self._h2.send_headers(event.stream_id, request_fields(event))
        self._streams[event.stream_id] = H2Stream(event.method, event)

    def _queue(self, event: Body, stream: H2Stream) -> None:
        if stream.ending:
            raise LocalProtocolError(f"HTTP/2: body after the end of stream {event.stream_id}")
        if self._role is Role.SERVER and not stream.answered:
            raise LocalProtocolError(f"HTTP/2: body before the head of stream {event.stream_id}")
        if not stream.bodiless:
            self.held += stream.queue(event.parts)
        stream.ending = event.end
        if (stream.unsent or stream.ending) and not stream.shut and event.stream_id not in self._turns:
            self._turns.append(event.stream_id)

    def framed(self, stream_id: int, piece: bytes) -> bytes | None:
        """Return a DATA frame to be written at once; see `HttpCodec`."""
        stream, engine = self._streams.get(stream_id), self._h2
        if stream is None or not stream.streams or self._out or engine._data_to_send or self._error or self._aborted:
            return None
        if len(piece) > min(engine.local_flow_control_window(stream_id), engine.max_outbound_frame_size):
            return None
        self.given += len(piece)
        return b"".join(data_frames(engine, stream_id, (piece,), end=False))

    def _go_away(self, code: int) -> None:
        # `close_connection` would make h2 refuse to finish the open streams.
        self._refuse_above = min(self._refuse_above, self._h2.highest_inbound_stream_id)
        self._going_away = True
        frame = GoAwayFrame(0, last_stream_id=self._refuse_above, error_code=code)
        self._collect()
        self._out.append(frame.serialize())
        self._aborted = code != NO_ERROR

    def output(self, room: int) -> list[Buffer]:
        """Return the bytes that may be written now."""
        self._collect()
        written = sum(map(len, self._out))
        progress = True
        while progress and written < room:  # one round of turns
            before = written
            unserved: list[int] = []  # streams that the connection's window kept from sending: they keep their places
            for _ in range(len(self._turns)):
                if written >= room:
                    break
                stream_id = self._turns.popleft()
                if (stream := self._streams.get(stream_id)) is not None:
                    size = self._give_turn(stream_id, stream)
                    written += size
                    if stream.unsent and not stream.shut:
                        (self._turns if size else unserved).append(stream_id)
            self._turns[:0] = unserved
            progress = written > before
        out, self._out = self._out, []
        return out

    @property
    def has_output(self) -> bool:
        """See `HttpCodec`."""
        return bool(self._out or self._turns or self._h2._data_to_send)

    def _collect(self) -> None:
        if data := self._h2.data_to_send():
            self._out.append(data)

    def _give_turn(self, stream_id: int, stream: H2Stream) -> int:
        """Write frames of one stream, up to the quantum and its window. Returns the number of bytes."""
        allowed = min(_QUANTUM, self._h2.local_flow_control_window(stream_id))
        written, held = 0, stream.held
        pieces: list[Buffer] = []
        while stream.unsent and written < allowed:
            pieces.append(stream.next_piece(allowed - written))
            written += len(pieces[-1])
        if pieces:
            end = stream.ending and not (stream.unsent or stream.trailers)
            self._out += data_frames(self._h2, stream_id, pieces, end)
        self.given += written
        self.held -= held - stream.held
        if stream.unsent:
            stream.shut = self._h2.streams[stream_id].outbound_flow_control_window <= 0
        elif stream.ending:
            if stream.trailers:
                self._h2.send_headers(stream_id, stream.trailers, end_stream=True)
            elif not written:
                self._h2.end_stream(stream_id)
            self._over(stream_id, stream)
        return written

    def _over(self, stream_id: int, stream: H2Stream) -> None:
        """Finish our side of a stream: everything was sent."""
        if stream.peer_done:
            del self._streams[stream_id]
        elif self._role is Role.SERVER:
            del self._streams[stream_id]
            self._answered[stream_id] = 0
        self._collect()

    def unsent(self, stream_id: int) -> int:
        """Return the bytes of body given to `send` that `output` has not returned."""
        stream = self._streams.get(stream_id)
        return stream.unsent_bytes if stream is not None else 0

    def window(self, stream_id: int) -> int:
        """Return the bytes of body that the peer would accept now."""
        if stream_id not in self._streams:
            return 0
        return max(0, self._h2.local_flow_control_window(stream_id))  # it may be negative (RFC 9113, 6.9.2)

    def new_stream(self) -> int:
        """Return the number of a client's next request. Raises LocalProtocolError if there is none left."""
        try:
            return self._h2.get_next_available_stream_id()
        except h2.exceptions.ProtocolError as error:
            raise LocalProtocolError(f"HTTP/2: {error}") from error

    @property
    def peer_streams(self) -> int:
        """Number of streams that the peer lets be open at once; until it announces one, more than can be numbered."""
        return self._h2.remote_settings.max_concurrent_streams

    @property
    def buffered(self) -> int:
        """Bytes received and not yet delivered."""
        return len(self._frames) + sum(len(event.data) for event in self._events if isinstance(event, Data))

    def preludes(self) -> Preludes | None:
        if self._error is not None or self._aborted or not self._frames.begun or self._frames.header_bytes:
            return None
        self._collect()
        tables = self._h2.decoder.header_table, self._h2.encoder.header_table
        parts = h2_preludes(tables, self._streams, set(self._turns), server=self._role is Role.SERVER)
        return Preludes(*parts, self._frames.held, sum(map(len, self._out)))

    @property
    def amid_answered(self) -> bool:
        """True while a request that has been answered is still being received."""
        return bool(self._answered)

    @property
    def closed(self) -> bool:
        """True if the connection can be closed once the output is written."""
        return self._error is not None or self._aborted or (self._going_away and not self._streams)


_HANDLERS: Final[dict[type[Any], Any]] = {
    h2.events.RemoteSettingsChanged: Http2Connection._settings,
    h2.events.RequestReceived: Http2Connection._request,
    h2.events.ResponseReceived: Http2Connection._response,
    h2.events.TrailersReceived: Http2Connection._trailers,
    h2.events.InformationalResponseReceived: Http2Connection._informational,
    h2.events.DataReceived: Http2Connection._data,
    h2.events.StreamEnded: Http2Connection._ended,
    h2.events.WindowUpdated: Http2Connection._window_updated,
    h2.events.StreamReset: Http2Connection._reset,
    StreamFailed: Http2Connection._reset,
}
