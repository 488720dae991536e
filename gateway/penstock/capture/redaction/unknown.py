"""Bytes that cannot be parsed: searched for patterns, and for text that looks like a secret of any protocol."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from typing import Final

from penstock.capture.plugin import plugins
from penstock.capture.redaction.contents import Content, feed
from penstock.capture.redaction.flow import FOR_EVER, Flow, Parser, Redaction, Truncated
from penstock.capture.redaction.secrets import Secrets
from penstock.capture.redaction.text import Buffer, Edit, Search
from penstock.capture.redaction.triggers import triggers_of

__all__ = ["UnknownBytes", "guarded", "is_hidden", "is_on_tcp", "redaction_of", "unknown"]

_QUOTE: Final = re.compile(rb"(?<!\\)\"")
_LINE_END: Final = re.compile(rb"[\r\n]")
_STOPS: Final = {
    "line": _LINE_END,
    "amid": _LINE_END,
    "param": re.compile(rb"[&;#\s]"),
    "user": re.compile(rb"[/?#\s\"]"),  # with the host: a password may hold an @, the last one may be yet to come
    "json": _QUOTE,
    "pair": _QUOTE,
}


_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that end a line, or that no line contains."""
_MOST_AMID: Final = 64 * 1024
"""Bytes that are blanked where bytes begin amid something other than a line: a header block has no more."""
_FILLS: Final = {"block": b"\x80", "field": b"*"}
_SHOWN: Final = 12
"""Bytes that reveal the fault of a message; no token is in them (the segment protocol's ListStorageChunks and
FlushToStorage have theirs first)."""


class UnknownBytes(Content):
    """Bytes of unknown meaning. Blanked are: matches, values behind names of secret headers up to the line's end (and
    in lines that continue it), values of secret parameters, tokens in JSON, values of record headers behind their names
    in protobuf and in JSON, and header blocks of HTTP/2."""

    def __init__(self, flow: Flow, secrets: Secrets, *, http2: bool, amid: bool = False) -> None:
        """Start a search. `amid`: it may begin amid a secret: in a line whose beginning is missing, or in a header
        block."""
        super().__init__(flow)
        self._search = Search(secrets.patterns) if secrets.patterns else None
        self._triggers = triggers_of(secrets, http2=http2)
        self._text = b""  # bytes to be searched for triggers
        self._base = 0
        self._mode = "amid" if amid else "fold" if flow.folds else ""  # kind of secret that is being blanked
        flow.folds = False
        self._left = 0  # bytes left of a secret with a length

    def feed(self, data: Buffer) -> None:
        self._text += data
        self._scan(last=False)
        self.certain = self._base
        if self._search is not None:
            for start, end in self._search.take(data):
                self.blank(start, end)
            self.certain = min(self.certain, self._search.certain)

    def finish(self) -> None:
        self._scan(last=True)
        if self._search is not None:
            for start, end in self._search.end():
                self.blank(start, end)
        self.certain = self._places.end

    def cut(self) -> None:
        self.end()

    def _scan(self, *, last: bool) -> None:
        text, at = self._text, 0
        triggers = self._triggers.of(text)
        while at < len(text):
            if self._mode:
                at = self._in_secret(text, at)
                continue
            trigger = triggers.after(at)
            if trigger is None:
                at = len(text) if last else max(at, len(text) - self._triggers.reach)
                break
            at, self._mode, self._left = trigger
        self._text = text[at:]
        self._base += at

    def _in_secret(self, text: bytes, at: int) -> int:
        """Blank the bytes that belong to the current secret, and return its end."""
        if self._mode in _FILLS:
            end = min(len(text), at + self._left)
            self._left -= end - at
            self.write(Edit(self._base + at, _FILLS[self._mode] * (end - at)))
            if not self._left:
                self._mode = ""
            return end
        if self._mode == "amid" and (match := _CONTROL.search(text, at)) is not None and match[0] not in b"\r\n":
            self._mode, self._left = "field", _MOST_AMID
            return at
        if self._mode == "cr":  # alone it ends no line: some take it for a part of the value
            self._mode = "fold" if text[at] in b"\r\n" else "line"
            return at
        if self._mode == "fold":  # behind a line: the next may continue it
            if text[at] in b"\r\n":
                return at + 1
            self._mode = "line" if text[at] in b" \t" else ""
            return at
        stop = _STOPS[self._mode].search(text, at)
        end = stop.start() if stop else len(text)
        self.blank(self._base + at, self._base + end)
        if stop and self._mode in ("line", "amid"):
            self._mode = "cr" if stop[0] == b"\r" else "fold"
            return stop.end()
        if stop:
            self._mode = ""
        return end


@cache
def redaction_of(protocol: str) -> Redaction | None:
    """Return how secrets are found in a protocol on bare TCP, or None for others."""
    plugin = plugins().get(protocol)
    return None if plugin is None or plugin.redaction is None else plugin.redaction()


def is_on_tcp(protocol: str) -> bool:
    """Return whether a protocol is known not to be carried by HTTP."""
    plugin = plugins().get(protocol)
    return plugin is not None and not plugin.over_http


def is_hidden(flow: Flow, secrets: Secrets) -> bool:
    """Return whether there may be secrets that no search finds: compressed, in base64, or a token among other bytes."""
    plugin = plugins().get(flow.conversation.protocol)
    if secrets.tokens and plugin is not None and flow.sender in plugin.hides:
        return True
    return secrets.looks_inside and (plugin is None or plugin.packs)


def guarded(flow: Flow, secrets: Secrets, *, amid: bool = False) -> UnknownBytes:
    """Return a content for bytes of unknown meaning in this flow. `amid`: the bytes before them were not recorded."""
    http = not is_on_tcp(flow.conversation.protocol)
    return UnknownBytes(flow, secrets, http2=http, amid=amid and http and bool(secrets.headers or secrets.parameters))


def unknown(flow: Flow, secrets: Secrets) -> Parser:
    """Parse the rest of a side that has broken its protocol. Where a search is not enough, only the first bytes are
    shown, which reveal the fault."""
    content = guarded(flow, secrets)
    if is_hidden(flow, secrets):
        with suppress(Truncated):
            yield from flow.need(_SHOWN + secrets.patterns.longest)  # enough for a secret that begins in it
        hidden = flow.at + _SHOWN
        yield from feed(flow, min(flow.available, _SHOWN + secrets.patterns.longest), content)
        content.end()
        flow.withhold(hidden, flow.at)
        yield from flow.withhold_next(FOR_EVER)
    yield from feed(flow, FOR_EVER, content)
