"""Blank secrets in events whose data is base64, in place: it stays base64, in as many lines."""

from __future__ import annotations

import re
from binascii import Error as BadBase64
from binascii import a2b_base64, b2a_base64
from typing import Final

from penstock.capture.redaction.json_text import json_edits
from penstock.capture.redaction.leaves import Leaves
from penstock.capture.redaction.text import Edit, changed, stars
from penstock.capture.redaction.units import Redact

__all__ = ["event_edits"]

_DATA: Final = re.compile(rb"(?:\A|(?<=[\r\n]))data: ?([^\r\n]*)")
_DIGIT: Final = re.compile(rb"[^=]")


def event_edits(text: bytes, leaves: Leaves, inside: Redact) -> list[Edit]:
    """Return the edits of an event. `inside` redacts what its data says, if that is base64; other data may be JSON."""
    lines = [found.span(1) for found in _DATA.finditer(text)]
    spelled = b"".join(text[start:end] for start, end in lines)
    try:
        plain = a2b_base64(spelled, strict_mode=True)
    except BadBase64:
        plain = b""
    if not plain:
        return json_edits(text, leaves)
    edits = inside(plain)
    blanked, digits = changed(plain, edits), bytearray(spelled)
    for start, blank in edits:  # whole groups of three bytes, which are four digits
        first, last = start // 3 * 3, -(-(start + len(blank)) // 3) * 3
        coded = b2a_base64(blanked[first:last], newline=False)
        digits[first // 3 * 4 : first // 3 * 4 + len(coded)] = coded
    for start, end in leaves.patterns.spans(spelled):
        digits[start:end] = _DIGIT.sub(b"A", digits[start:end])
    found, at = _around(text, lines, leaves), 0
    for start, end in lines:
        found.append(Edit(start, bytes(digits[at : at + end - start])))
        at += end - start
    return found


def _around(text: bytes, lines: list[tuple[int, int]], leaves: Leaves) -> list[Edit]:
    """Return the edits of an event's other fields."""
    rest = bytearray(text)
    for start, end in lines:
        rest[start:end] = b"\n" * (end - start)
    return [
        Edit(first + match.start(), stars(len(match[0])))
        for first, last in leaves.patterns.spans(bytes(rest))
        for match in re.finditer(rb"[^\r\n:]+", bytes(rest[first:last]))
    ]
