"""HTTP/1.1 of one side (RFC 9112): heads are blanked line by line, bodies skipped by their framing, or redacted."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import suppress
from typing import Final

from penstock.capture.redaction.choice import ContentChooser
from penstock.capture.redaction.contents import Content, feed
from penstock.capture.redaction.flow import FOR_EVER, Flow, NotUnderstood, Parser, Truncated
from penstock.capture.redaction.requests import Fields, OpenRequests, RequestParts
from penstock.capture.redaction.secrets import Secrets
from penstock.capture.redaction.text import Span

__all__ = ["REQUEST_LINE", "STATUS_LINE", "requests", "responses"]

_MAX_LINE: Final = 64 * 1024
"""Longest line that is waited for, in bytes; a longer one is blanked, if it is secret, as by `unknown`."""
_MOST_FIELDS: Final = 1000

REQUEST_LINE: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) +([^\s:]|[^\s:].*\S) +HTTP/1\.[0-9][ \t]*")
"""Spaces are no part of a target, but some clients do not know. Without a version it may be anything, such as a header
with a space before its colon."""
STATUS_LINE: Final = re.compile(rb"HTTP/1\.[0-9] +([0-9]{3})(?: ([^\r]*))?")
_SIZE_LINE: Final = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,16})[ \t]*(?:;(.*))?", re.DOTALL)


def requests(flow: Flow, secrets: Secrets, chooser: ContentChooser, pending: OpenRequests) -> Parser:
    """Parse a client's side."""
    while True:
        match = yield from _first_line(flow, secrets, REQUEST_LINE)
        method, path = match[1].upper(), match[2]
        # The answer may come before the head's end, but for its format only who has the head can be asked.
        pending.append(RequestParts(method, path))
        fields = yield from _read_fields(flow, secrets)
        request = RequestParts(method, path, fields)
        if pending.in_order and pending.in_order[-1] == RequestParts(method, path):
            pending.in_order[-1] = request
        content = chooser.of_unknown(flow) if pending.joining else chooser.of_body(flow, request, fields)
        if method == b"CONNECT":
            raise NotUnderstood
        yield from _body(flow, secrets, fields, content, 0)


def responses(flow: Flow, secrets: Secrets, chooser: ContentChooser, pending: OpenRequests) -> Parser:
    """Parse a server's side."""
    while True:
        match = yield from _first_line(flow, secrets, STATUS_LINE)
        status = int(match[1])
        fields = yield from _read_fields(flow, secrets)
        if status == 101:
            raise NotUnderstood  # the protocol is unknown from here on
        if status < 200:
            continue
        request = pending.next_answered()
        if request.method == b"CONNECT" and status < 300:
            raise NotUnderstood
        if request.method == b"HEAD" or status in (204, 304):
            continue
        if not request.known and (yield from _has_no_body(flow)):
            continue
        content = chooser.of_unknown(flow) if pending.joining else chooser.of_body(flow, request, fields)
        yield from _body(flow, secrets, fields, content, None)


def _has_no_body(flow: Flow) -> Generator[None, None, bool]:
    """Return whether another head follows this one: the request was a HEAD that passed before the recording began."""
    try:
        yield from flow.need(7)
    except Truncated:
        return False
    return flow.peek(7) == b"HTTP/1."


def _body(flow: Flow, secrets: Secrets, fields: Fields, content: Content | None, otherwise: int | None) -> Parser:
    """Read the body behind a head (RFC 9112, 6.3). `otherwise`: its length if the head states none; None: until the
    end."""
    if b"transfer-encoding" in fields:
        if fields[b"transfer-encoding"][-1].rpartition(b",")[2].strip() != b"chunked":
            raise NotUnderstood
        yield from _chunks(flow, secrets, content)
    else:
        yield from _plain(flow, fields, content, otherwise)
    if content is not None:
        content.end()


def _plain(flow: Flow, fields: Fields, content: Content | None, otherwise: int | None) -> Parser:
    lengths = {text.strip() for value in fields.get(b"content-length", ()) for text in value.split(b",")}
    if len(lengths) > 1 or not all(length.isdigit() and len(length) < 19 for length in lengths):
        raise NotUnderstood
    size = int(lengths.pop()) if lengths else otherwise
    if size is not None:
        yield from feed(flow, size, content)
        return
    with suppress(Truncated):
        yield from feed(flow, FOR_EVER, content)


def _chunks(flow: Flow, secrets: Secrets, content: Content | None) -> Parser:
    while True:
        raw = yield from flow.line(_MAX_LINE)
        line = raw.rstrip(b"\r\n")
        match = _SIZE_LINE.fullmatch(line)
        if match is None:
            raise NotUnderstood
        for start, end in secrets.patterns.spans(match[2] or b""):
            flow.blank(flow.at + match.start(2) + start, flow.at + match.start(2) + end)
        flow.at += len(raw)
        size = int(match[1], 16)
        if not size:
            yield from _read_fields(flow, secrets)
            return
        yield from feed(flow, size, content)
        end_of_chunk = yield from flow.line(2)
        if end_of_chunk.strip(b"\r\n"):
            raise NotUnderstood
        flow.at += len(end_of_chunk)


# ---- heads, line by line (RFC 9112, 2 to 5) --------------------------------------------------------------------------


def _first_line(flow: Flow, secrets: Secrets, pattern: re.Pattern[bytes]) -> Generator[None, None, re.Match[bytes]]:
    """Read the next line that is not empty, which must match; blank the secrets in its second group."""
    while True:
        raw = yield from flow.line(_MAX_LINE)
        line = raw.rstrip(b"\r\n")
        if line:
            match = pattern.fullmatch(line)
            if match is None:
                raise NotUnderstood
            low, high = match.span(2)
            target = line[low:high]
            spans = secrets.in_target(target) + secrets.matches_in_url(target)
            if match[1].upper() == b"CONNECT" and b"@" in target:
                spans.append((0, target.rindex(b"@")))
            _blank(flow, [(low + start, low + end) for start, end in spans])
            flow.at += len(raw)
            return match
        flow.at += len(raw)


def _read_fields(flow: Flow, secrets: Secrets) -> Generator[None, None, Fields]:
    """Read headers or trailers up to the empty line behind them, and blank their secrets."""
    fields: dict[bytes, list[bytes]] = {}
    name = b""
    for _ in range(_MOST_FIELDS):
        raw = yield from flow.line(_MAX_LINE)
        line = raw[:-1].removesuffix(b"\r")
        if not line:
            flow.at += len(raw)
            flow.folds = False
            return fields
        if b"\r" in line:
            raise NotUnderstood  # some take it for a line's end (RFC 9112, 2.2)
        if line[:1] in b" \t":  # the value above goes on (RFC 9112, 5.2)
            if not name:
                raise NotUnderstood  # some take it for a header (RFC 9112, 2.2)
            start = 0
        else:
            name, colon, _ = line.partition(b":")
            if not colon:
                raise NotUnderstood
            start = len(name) + 1
            _blank(flow, secrets.in_name(name))
            name = name.strip().lower()
        value = line[start:].strip(b" \t")
        start += len(line) - start - len(line[start:].lstrip(b" \t"))
        _blank(flow, [(start + first, start + last) for first, last in secrets.in_header(name, value)])
        flow.at += len(raw)
        flow.folds = name in secrets.headers
        if name in secrets.wanted:
            fields.setdefault(name, []).append(value.lower())
    raise NotUnderstood


def _blank(flow: Flow, spans: list[Span]) -> None:
    for start, end in spans:
        flow.blank(flow.at + start, flow.at + end)
