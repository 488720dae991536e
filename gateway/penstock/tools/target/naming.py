"""The names of streams on the command line: BASIN/STREAM on a server, or SCHEME://HOST:PORT/BASIN/STREAM.

A server whose protocol has no basins has only STREAM behind its address. In a URL the name is percent-encoded
(RFC 3986, 2.1); elsewhere it is as it is.
"""

from __future__ import annotations

import os
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from penstock.core.config_fields import DEFAULT_BASIN, is_basin_name
from penstock.model.records import StreamRef
from penstock.protocols.plugin import local_server
from penstock.protocols.servers import Server
from penstock.tools.target.url import BadTarget, parse_target

__all__ = ["Name", "parse_name"]


class Name(NamedTuple):
    """A stream on a server, or a basin or scope if `stream` is empty, or the whole server if `basin` is, too."""

    server: Server
    basin: str
    stream: str

    @property
    def ref(self) -> StreamRef:
        """The stream's name for a gateway with the server as its target, which replaces the basin if the server has a
        space. Raises BadTarget if no stream is named."""
        if not self.stream:
            raise BadTarget(f"{self}: the name of a stream is missing")
        return StreamRef(self.reached_basin, self.stream)

    @property
    def reached_basin(self) -> str:
        """The basin for a gateway with the server as its target."""
        return self.basin if is_basin_name(self.basin) else DEFAULT_BASIN

    def __str__(self) -> str:
        """Return the name with the address of its server."""
        parts = [self.basin if self._has_basin else "", self.stream]
        return "/".join([self.server.place, *filter(None, parts)])

    @property
    def _has_basin(self) -> bool:
        return bool(self.basin) and self.server.kind.default_basin is None


def parse_name(text: str, server: str | None = None) -> Name:
    """Parse a name. `server`: the URL of the server of names without one, None for a gateway on this machine at its
    usual port; its space, if it has one, is their basin.

    A name without a basin is in the basin `penstock`; an empty name is the server, or its space. Raises BadTarget.
    """
    try:
        text = os.fsencode(text).decode()  # an argument of the command line may have another encoding, or none
    except UnicodeDecodeError as error:
        raise BadTarget(f"{text!r} is not UTF-8: {error.reason} at byte {error.start}") from None
    if "://" in text:
        parts = urlsplit(text)
        if parts.query or parts.fragment:
            raise BadTarget(f"{text!r}: write ? and # in names as %3F and %23")
        return _on(parse_target(parts._replace(path="").geturl()), unquote(parts.path).removeprefix("/"))
    there = parse_target(server or local_server())
    if there.space is not None:
        return Name(there, there.space, text)
    if text and "/" not in text:
        text = f"{DEFAULT_BASIN}/{text}"
    return _on(there, text)


def _on(server: Server, path: str) -> Name:
    if server.kind.default_basin is not None:
        return Name(server, server.kind.default_basin, path)
    basin, _, stream = path.partition("/")
    if not basin:
        return Name(server, "", "")
    place = server.place
    try:
        return Name(parse_target(f"{place}/{quote(basin, safe='')}"), basin, stream)
    except BadTarget as error:
        hint = "" if stream else f"; a stream there is called {place}/BASIN/{basin}"
        raise BadTarget(f"{error}{hint}") from None
