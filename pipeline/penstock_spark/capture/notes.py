"""What a gateway noted of a conversation: which route its messages took, and whose they are."""

from __future__ import annotations

from typing import Final

from penstock_codecs.dialogue.records import plain_stream

__all__ = ["NO_NOTES", "Notes"]

MOST_VALUES: Final = 64
"""Most values of one key that are kept; a gateway notes no more of one connection."""


class Notes:
    """The notes of one conversation, in their order.

    A gateway notes a route together with the stream that took it, each once per connection. So the route of a message
    is certain where its connection took only one, or where the route is first noted with the message's stream.
    """

    __slots__ = ("_by_stream", "_latest", "_routes", "values")

    def __init__(self) -> None:
        self.values: dict[str, list[str]] = {}
        """By key, as `route`, `stream` and `identity`."""
        self._by_stream: dict[str, str | None] = {}
        self._routes: list[str] = []
        self._latest: str | None = None  # noted just before, with no other stream between

    def add(self, key: str, value: str) -> None:
        """One more; what was noted already, in an earlier file, is known."""
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
        """The only one; None: there are none, or several."""
        return self._routes[0] if len(self._routes) == 1 else None

    @property
    def identity(self) -> str | None:
        """The only one; None: there are none, or several."""
        identities = self.values.get("identity", ())
        return identities[0] if len(identities) == 1 else None

    def route_of(self, stream: str) -> str | None:
        """The route of what is about a stream, spelled as in messages; None: it is not known."""
        if len(self._routes) < 2:
            return self.route
        plain = plain_stream(stream)
        for noted, route in self._by_stream.items():
            # S3P's names have no basin; a gateway notes them with the listener's.
            if noted in (stream, plain) or ("/" not in stream and noted.endswith(f"/{stream}")):
                return route
        return None


NO_NOTES: Final = Notes()
"""Of a conversation of which nothing was noted."""
