"""One exchange: a request and what answers it."""

from __future__ import annotations

from typing import Final

from penstock_codecs.dialogue.http.appends import Book
from penstock_codecs.dialogue.http.targets import NOWHERE, Target
from penstock_codecs.http import Headers, RequestHead

__all__ = ["APPENDING", "READING", "Exchange"]

APPENDING: Final = "appending"
READING: Final = "reading"


class Exchange:
    """What is known of it. `session`: APPENDING or READING, where it is a session of either kind."""

    __slots__ = (
        "answered",
        "appends",
        "asked_ns",
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
        """When the last byte of the request came, as far as it has come."""

    @property
    def headers(self) -> Headers:
        """Those of the request."""
        return self.request.headers if self.request is not None else ()

    @property
    def over(self) -> bool:
        """Whether nothing more will be said in it."""
        return self.reset or (self.request_over and self.response_over)

    @property
    def state(self) -> str:
        """What it is in: `open`, `appending`, `reading`, `half-closed` (the client has finished), `answered` (the
        server has, and the client has not), `done`, `reset`."""
        if self.reset:
            return "reset"
        if self.response_over:
            return "done" if self.request_over else "answered"
        if self.session == READING:
            return READING
        if self.request_over:
            return "half-closed"
        return self.session or "open"
