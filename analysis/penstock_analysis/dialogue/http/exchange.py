"""One exchange: a request and its responses."""

from __future__ import annotations

from typing import Final

from penstock_analysis.capture import Sender
from penstock_analysis.dialogue.http.appends import Book
from penstock_analysis.dialogue.http.targets import NOWHERE, Target
from penstock_codecs.http import Headers, RequestHead

__all__ = ["APPENDING", "READING", "Exchange"]

APPENDING: Final = "appending"
READING: Final = "reading"


class Exchange:
    """State of an exchange. `session`: APPENDING or READING, if it is a session of either kind."""

    __slots__ = (
        "answered",
        "appends",
        "asked_ns",
        "body_bytes",
        "number",
        "request",
        "request_over",
        "reset",
        "response_headers",
        "response_over",
        "session",
        "status",
        "target",
    )

    def __init__(self, number: int, appends: Book) -> None:
        self.number = number
        self.body_bytes = dict.fromkeys(Sender, 0)
        self.appends = appends
        self.target: Target = NOWHERE
        self.request: RequestHead | None = None
        self.request_over = False
        self.status = 0
        self.response_headers: Headers = ()
        self.response_over = False
        self.answered = False
        self.reset = False
        self.session = ""
        self.asked_ns: int | None = None
        """Time of the last byte of the request that has arrived."""

    @property
    def headers(self) -> Headers:
        """Headers of the request."""
        return self.request.headers if self.request is not None else ()

    @property
    def over(self) -> bool:
        """True if no more messages can follow in it."""
        return self.reset or (self.request_over and self.response_over)

    @property
    def state(self) -> str:
        """State: `open`, `appending`, `reading`, `half-closed` (the client has finished), `answered` (the server has,
        and the client has not), `done`, `reset`."""
        if self.reset:
            return "reset"
        if self.response_over:
            return "done" if self.request_over else "answered"
        if self.session == READING:
            return READING
        if self.request_over:
            return "half-closed"
        return self.session or "open"
