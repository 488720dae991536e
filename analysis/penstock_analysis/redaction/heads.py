"""Heads of HTTP/1.1, line by line (RFC 9112, 2 to 5)."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final

from penstock_analysis.redaction.exchanges import Fields
from penstock_analysis.redaction.flow import Flow, NotUnderstood
from penstock_analysis.redaction.secrets import Secrets
from penstock_analysis.redaction.text import Span

__all__ = ["MAX_LINE", "first_line", "read_fields"]

MAX_LINE: Final = 64 * 1024
"""Longest line that is waited for, in bytes; a longer one is blanked, if it is secret, as by `unknown`."""
_MOST_FIELDS: Final = 1000


def first_line(flow: Flow, secrets: Secrets, pattern: re.Pattern[bytes]) -> Generator[None, None, re.Match[bytes]]:
    """Read the next line that is not empty, which must match; blank the secrets in its second group."""
    while True:
        raw = yield from flow.line(MAX_LINE)
        line = raw.rstrip(b"\r\n")
        if line:
            found = pattern.fullmatch(line)
            if found is None:
                raise NotUnderstood
            low, high = found.span(2)
            target = line[low:high]
            spans = secrets.in_target(target) + secrets.matches_in_url(target)
            if found[1].upper() == b"CONNECT" and b"@" in target:
                spans.append((0, target.rindex(b"@")))
            _blank(flow, [(low + start, low + end) for start, end in spans])
            flow.at += len(raw)
            return found
        flow.at += len(raw)


def read_fields(flow: Flow, secrets: Secrets) -> Generator[None, None, Fields]:
    """Read headers or trailers up to the empty line behind them, and blank their secrets."""
    fields: dict[bytes, list[bytes]] = {}
    name = b""
    for _ in range(_MOST_FIELDS):
        raw = yield from flow.line(MAX_LINE)
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
