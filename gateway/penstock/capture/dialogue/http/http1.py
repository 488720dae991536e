"""Split both sides of an HTTP/1.1 connection into exchanges, which are counted from 1 (RFC 9112)."""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.exchanges import SeenExchanges
from penstock.capture.pcapng import Sender
from penstock.wire.http import RequestHead, ResponseHead, body_forbidden
from penstock.wire.http.h1 import authority_and_target
from penstock.wire.http.observer.bodies import Body1, body_of
from penstock.wire.http.observer.faults import HttpFault, TimedRange
from penstock.wire.http.observer.heads import (
    REQUEST_LINE,
    STATUS_LINE,
    Head,
    HeadBuffer,
    request_framing,
    response_framing,
)

__all__ = ["REQUEST_START", "Http1Decoder"]

REQUEST_START: Final = re.compile(rb"[A-Z]{3,16} [\x21-\x7e]+ HTTP/1\.[01]\r?\n")
"""Beginning of a chunk with which a request seems to begin."""
_RESPONSE_START: Final = re.compile(rb"HTTP/1\.[01] [1-5][0-9]{2}[ \r\n]")
_MOST_TURNS: Final = 100_000


class _Turn:
    """An exchange whose response is incomplete."""

    __slots__ = ("answered", "expects", "method", "number")

    def __init__(self, number: int, method: str, expects: bool) -> None:
        self.number = number
        self.method = method
        self.expects = expects
        self.answered = False


class _Side:
    """One side. `dead`: nothing more is read of it; `seeking`: nothing is until a chunk begins like a message."""

    def __init__(
        self, sender: Sender, line: re.Pattern[bytes], start: re.Pattern[bytes], decoder: Http1Decoder
    ) -> None:
        self.sender = sender
        self._start = start
        self._decoder = decoder
        self._collector = decoder.collector
        self._exchanges = decoder.exchanges
        self._heads = HeadBuffer(line)
        self._body: Body1 | None = None
        self._number = 0
        self._dead = False
        self._seeking = False
        self._skipped = 0
        self._skipped_at = 0
        self._offset = 0  # end of the bytes received
        self.wanted = True
        """True if a message can come from this side: a response needs a request."""

    def seek(self) -> None:
        """Read nothing until a message seems to begin."""
        self._heads.clear()
        self._body = None
        self._seeking, self._dead = True, False

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        self._offset = offset + len(data)
        if self._seeking and not self._found(data, offset, time_ns):
            return
        at = 0
        try:
            while at < len(data) and not self._dead:
                body = self._body
                if body is None:
                    self._number = 0  # an error before the first head belongs to no exchange
                    head, used = self._heads.receive(data[at:], offset + at, time_ns)
                    at += used
                    if head is not None:
                        self._take_head(head, TimedRange(head.start, offset + at, self._heads.start_ns, time_ns))
                elif self._gives_up(body, data[at:]):
                    self._end(TimedRange(offset + at, offset + at, time_ns, time_ns), body)
                else:
                    at += body.receive(data[at:], offset + at, time_ns)
                    if body.over is not None:
                        self._end(body.over, body)
        except HttpFault as fault:
            self._dead = True
            self._collector.fault(self.sender, time_ns, fault, exchange=self._number or None)

    def finish(self, time_ns: int) -> None:
        """End the side, which has finished sending."""
        if self._dead or self._seeking:
            return
        self._dead = True
        if self._body is not None:
            missing = self._body.finish(self._offset, time_ns)
            if self._body.over is not None:
                self._end(self._body.over, self._body)
            elif not self._exchanges.left_alone(self._number, self.sender):
                self._exchanges.broken(self._number, self.sender, self._cut(missing), time_ns)
        elif self._heads.held:
            fault = self._cut("a head is cut short")
            try:
                self._heads.check_cut()
            except HttpFault as wrong:
                fault = wrong
            self._collector.fault(self.sender, time_ns, fault, exchange=self._number or None)

    def _cut(self, missing: str) -> HttpFault:
        return HttpFault(self._offset, f"the connection ends amid a message: {missing}", "RFC 9112, section 8")

    def report_incomplete(self, time_ns: int) -> None:
        """Report an incomplete message at the end of the recording."""
        if self._seeking:
            self._report_skipped(time_ns)
        elif self._heads.held and not self._dead:
            fault = HttpFault(self._heads.offset, "the recording ends amid a head", "")
            self._collector.fault(self.sender, time_ns, fault, fatal=False)

    def _found(self, data: memoryview, offset: int, time_ns: int) -> bool:
        """Return whether a chunk begins like a message; if not it is skipped."""
        if not self.wanted or self._start.match(data) is None:
            if not self._skipped:
                self._skipped_at = offset
            self._skipped += len(data)
            return False
        self._report_skipped(time_ns)
        self._seeking = False
        return True

    def _report_skipped(self, time_ns: int) -> None:
        if self._skipped:
            rule = f"{self._skipped} bytes before the first message were not understood: its beginning was not recorded"
            self._collector.fault(self.sender, time_ns, HttpFault(self._skipped_at, rule, ""), fatal=False)
            self._skipped = 0

    def _hand_on(self, data: memoryview, offset: int, time_ns: int) -> None:
        self._exchanges.data(self._number, self.sender, data, offset, time_ns)

    def _gives_up(self, body: Body1, data: memoryview) -> bool:
        """Return whether the side sends the next message instead of the body that it announced."""
        del body, data
        return False

    def _take_head(self, head: Head, span: TimedRange) -> None:
        raise NotImplementedError

    def _end(self, span: TimedRange, body: Body1) -> None:
        self._body = None
        self._exchanges.ended(self._number, self.sender, span, body.trailers)

    def stop(self) -> None:
        """Stop reading: the following bytes are not HTTP."""
        self._dead = True


class _Requests(_Side):
    def _take_head(self, head: Head, span: TimedRange) -> None:
        decoder = self._decoder
        if len(decoder.turns) >= _MOST_TURNS:
            raise HttpFault(span.start, f"no more than {_MOST_TURNS} requests wait for their answers here", "")
        self._number = decoder.next_number()
        method = head.line[0].decode("ascii")
        exchange = _Turn(self._number, method, False)
        decoder.turns.append(exchange)
        framing = request_framing(head)
        request = _request(self._number, head)
        exchange.expects = request.expects_continue
        self._body = body_of(framing, self._hand_on)
        self._exchanges.request(request, span, self._body is None)
        decoder.found_request()

    def _gives_up(self, body: Body1, data: memoryview) -> bool:
        """Return whether the client omits the body, as one may that waited for 100 Continue and got its final response
        (RFC 9110, 10.1.1)."""
        exchange = self._decoder.turn_of(self._number)
        refused = exchange is None or exchange.answered
        return (
            self._decoder.expecting == self._number and refused and not body.begun and bool(REQUEST_START.match(data))
        )


class _Responses(_Side):
    def _take_head(self, head: Head, span: TimedRange) -> None:
        decoder = self._decoder
        exchange = decoder.turns[0] if decoder.turns else None
        self._number = exchange.number if exchange is not None else decoder.next_number()
        if exchange is None:
            self._exchanges.unasked(self._number, span)
        method = exchange.method if exchange is not None else ""
        status = int(head.line[1])
        response = ResponseHead(self._number, status, head.headers)
        if status < 200 and status != 101:
            self._exchanges.interim(response, span)
            return
        switches = status == 101 or (method == "CONNECT" and 200 <= status < 300)
        framing = response_framing(head, switches or body_forbidden(method, status))
        if exchange is not None:
            exchange.answered = True
        self._body = body_of(framing, self._hand_on)
        self._exchanges.response(response, span, self._body is None)
        if self._body is None and decoder.turns:
            decoder.turns.popleft()
        if switches:
            decoder.switch(span)

    def _end(self, span: TimedRange, body: Body1) -> None:
        super()._end(span, body)
        if self._decoder.turns:
            self._decoder.turns.popleft()


class Http1Decoder:
    """See `Listener`."""

    def __init__(self, collector: MessageCollector, exchanges: SeenExchanges) -> None:
        self.collector = collector
        self.exchanges = exchanges
        self.turns: deque[_Turn] = deque()
        self.expecting = 0
        """Exchange whose client waits for 100 Continue."""
        self._count = 0
        self._requests = _Requests(Sender.CLIENT, REQUEST_LINE, REQUEST_START, self)
        self._responses = _Responses(Sender.SERVER, STATUS_LINE, _RESPONSE_START, self)

    def receive(self, sender: Sender, data: memoryview, offset: int, time_ns: int) -> None:
        """Read the next bytes of a side."""
        self._side(sender).receive(data, offset, time_ns)

    def closed(self, sender: Sender, time_ns: int) -> None:
        """End a side, which has finished sending."""
        self._side(sender).finish(time_ns)

    def lost(self, sender: Sender) -> None:
        """Read both sides again from the client's next request: the order of responses is unknown until then."""
        del sender
        self.turns.clear()
        self._requests.seek()
        self._responses.seek()
        self._responses.wanted = False

    def end(self, time_ns: int) -> None:
        """End both sides at the end of the recording."""
        self._requests.report_incomplete(time_ns)
        self._responses.report_incomplete(time_ns)

    def next_number(self) -> int:
        """Return the number of the next exchange."""
        self._count += 1
        return self._count

    def found_request(self) -> None:
        """Add a request, which will be answered."""
        self._responses.wanted = True
        exchange = self.turns[-1]
        if exchange.expects:
            self.expecting = exchange.number

    def turn_of(self, number: int) -> _Turn | None:
        """Return the exchange, if its response is incomplete."""
        return next((exchange for exchange in self.turns if exchange.number == number), None)

    def switch(self, span: TimedRange) -> None:
        """Stop reading HTTP on the connection (RFC 9110, 7.8)."""
        self._requests.stop()
        self._responses.stop()
        fault = HttpFault(span.end, "what follows is another protocol, which is not read", "RFC 9110, section 7.8")
        self.collector.fault(Sender.SERVER, span.end_ns, fault)

    def _side(self, sender: Sender) -> _Side:
        return self._requests if sender is Sender.CLIENT else self._responses


def _request(number: int, head: Head) -> RequestHead:
    headers = head.headers
    authority, target = authority_and_target(head.line[1].decode("ascii"), headers)
    version = head.line[2].decode("ascii")
    expected = {
        expectation.strip().lower() for name, value in headers if name == "expect" for expectation in value.split(",")
    }
    expects = version >= "1.1" and "100-continue" in expected
    return RequestHead(number, head.line[0].decode("ascii"), target, headers, authority, "http", version, expects)
