"""The gateway's notes on a conversation: routes, streams and identities."""

from __future__ import annotations

from typing import Final

from penstock.capture.dialogue.records import plain_stream

__all__ = ["NO_NOTES", "Notes"]

MOST_VALUES: Final = 64
"""Maximum number of values kept per key; a gateway notes no more of one connection."""


class Notes:
    """The notes of one conversation, in their order.

    A gateway notes a route together with the stream that took it, each once per connection. So the route of a message
    is certain where its connection took only one, or where the route is first noted with the message's stream.
    """

    __slots__ = ("_by_stream", "_latest", "_routes", "values")

    def __init__(self) -> None:
        self.values: dict[str, list[str]] = {}
        """Values by key: `route`, `stream` and `identity`."""
        self._by_stream: dict[str, str | None] = {}
        self._routes: list[str] = []
        self._latest: str | None = None  # the route of the last note, until a stream follows

    def add(self, key: str, value: str) -> None:
        """Add a note. Notes that an earlier file had already are ignored."""
        known = self.values.setdefault(key, [])
        if value in known or len(known) >= MOST_VALUES:
            return
        known.append(value)
        if key == "route":
            self._routes.append(value)
            self._latest = value
        elif key == "stream":
            only = self._routes[0] if len(self._routes) == 1 else None
            self._by_stream[value] = self._latest or only
            self._latest = None

    @property
    def route(self) -> str | None:
        """The only route; None if there are none or several."""
        return self._routes[0] if len(self._routes) == 1 else None

    @property
    def identity(self) -> str | None:
        """The only identity; None if there are none or several."""
        identities = self.values.get("identity", ())
        return identities[0] if len(identities) == 1 else None

    def route_of(self, stream: str) -> str | None:
        """Return the route of messages about a stream, spelled as in messages; None if it is unknown."""
        if len(self._routes) < 2:
            return self.route
        plain = plain_stream(stream)
        for noted, route in self._by_stream.items():
            # S3P's names have no basin; a gateway notes them with the basin of the listener.
            if noted in (stream, plain) or ("/" not in stream and noted.endswith(f"/{stream}")):
                return route
        return None


NO_NOTES: Final = Notes()
"""Notes of a conversation without any."""
