"""Rewriting of names: from a client's name to the back's by templates over a pattern's captures, and in reverse.

A template is text with captures in braces: `{basin}`, `{stream}`, `{1}`, `{name}`; `{{` and `}}` stand for braces. A
name is mapped in reverse only if the result is unambiguous: a stream that a server lists is shown to clients only by a
name that is rewritten to the listed one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from penstock.core.globs import captured
from penstock.core.matching import Captures, NamePattern, StreamPattern, Wildcard
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.names import validate_basin_name, validate_stream_name
from penstock.model.records import StreamRef

__all__ = ["Rewriting", "Template"]

Takes = Callable[[str], bool]
"""Returns whether a capture may contain a character."""

_PART: Final = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z_0-9]*|[1-9][0-9]?)\}|[{}]")
_OF_BASINS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_MOST_IN_BASIN: Final = 48
_MOST_IN_STREAM: Final = 512


class Template(msgspec.Struct, frozen=True):
    """A template. `parts`: text, and captures as one-element tuples of their names."""

    parts: tuple[str | tuple[str], ...]

    @classmethod
    def parse(cls, text: str) -> Template:
        """Parse a template. Raises ValueError for braces that do not enclose a capture."""
        parts: list[str | tuple[str]] = []
        at = 0
        for match in _PART.finditer(text):
            parts.append(text[at : match.start()])
            at = match.end()
            if match[1] is not None:
                parts.append((match[1],))
            elif len(match[0]) == 2:
                parts.append(match[0][0])
            else:
                raise ValueError(f"{text!r}: a brace encloses a capture, as in {{stream}} or {{1}}; write {{{{ for {{")
        parts.append(text[at:])
        return cls(_joined(parts))

    @property
    def names(self) -> frozenset[str]:
        """Names of the captures that the template uses."""
        return frozenset(part[0] for part in self.parts if isinstance(part, tuple))

    @property
    def text(self) -> str:
        """The template's text without its captures."""
        return "".join(part for part in self.parts if isinstance(part, str))

    @property
    def beginning(self) -> str:
        """The common prefix of all names that the template makes."""
        return self.parts[0] if self.parts and isinstance(self.parts[0], str) else ""

    def fill(self, captures: Captures) -> str:
        """Return the template with its captures filled in."""
        return "".join(part if isinstance(part, str) else captures[part[0]] for part in self.parts)


def _joined(parts: Iterable[str | tuple[str]]) -> tuple[str | tuple[str], ...]:
    """Drop empty text, and join adjacent texts."""
    joined: list[str | tuple[str]] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, str) and isinstance(last, str):
            joined[-1] = last + part
        elif part:
            joined.append(part)
    return tuple(joined)


class Rewriting(msgspec.Struct, frozen=True):
    """The mapping between clients' names of a route's streams and their names on its back."""

    pattern: StreamPattern
    basin: Template
    stream: Template

    @classmethod
    def compile(cls, pattern: StreamPattern, to_basin: str | None, to_stream: str | None) -> Rewriting:
        """Compile the configured templates; None keeps the name. Raises ValueError, naming the key, for unknown
        captures and for templates that cannot make a legal name."""
        basin = Template.parse("{basin}" if to_basin is None else to_basin)
        rewriting = cls(pattern, basin, Template.parse("{stream}" if to_stream is None else to_stream))
        for key, template in (("to_basin", rewriting.basin), ("to_stream", rewriting.stream)):
            unknown = sorted(template.names - pattern.captures)
            if unknown:
                known = ", ".join(f"{{{name}}}" for name in sorted(pattern.captures))
                raise ValueError(f"{key}: nothing captures {{{unknown[0]}}}; there is {known}")
        _check_legal(rewriting.basin, rewriting.stream)
        return rewriting

    @property
    def changes(self) -> bool:
        """True if any name is changed."""
        return self.basin.parts != (("basin",),) or self.stream.parts != (("stream",),)

    def forward(self, stream: StreamRef, captures: Captures) -> StreamRef:
        """Return the stream's name on the back. Raises NOT_REPRESENTABLE if the result is not a legal name."""
        if not self.changes:
            return stream
        code = FailureCode.NOT_REPRESENTABLE
        basin, name = self.basin.fill(captures), self.stream.fill(captures)
        try:
            target_basin = basin if basin == stream.basin else validate_basin_name(basin, code)
            return StreamRef(target_basin, name if name == stream.stream else validate_stream_name(name, code))
        except OperationFailed as error:
            reason = f"stream {stream} would be {basin}/{name} behind the gateway: {error.failure.message}"
            raise fail(code, reason) from None

    def basin_forward(self, basin: str) -> str | None:
        """Return the back's name of a client's basin, or None if the pattern does not match it, the name depends on the
        stream, or the result is not a legal name."""
        there = self._basin_made(basin)
        return there if there is None or there == basin or _is_basin(there) else None

    def _basin_made(self, basin: str) -> str | None:
        captured = self.pattern.basin.match(basin)
        captures = None if captured is None else {**captured, "basin": basin}
        return None if captures is None or not self.basin.names <= captures.keys() else self.basin.fill(captures)

    def basin_back(self, basin: str) -> str | None:
        """Return the client's name of a back's basin, or None if it has none or it is ambiguous."""
        name = _source(self.pattern.basin, "basin", _parse(self.basin, basin, self._takes))
        return name if name is not None and self._basin_made(name) == basin else None

    def reaches_basin(self, basin: str) -> bool:
        """Return whether any stream of the route may be in this basin of the back; True if that is uncertain."""
        if self.basin.parts == (("basin",),):
            return self.pattern.basin.match(basin) is not None
        parts_within = [part if isinstance(part, str) else _Captured(part[0], _in_basin) for part in self.basin.parts]
        return captured(parts_within, basin) is not None

    def stream_back(self, basin: str, name: str) -> str | None:
        """Return the client's name of the stream that the back names `name`, in the client's basin `basin`, or None if
        it has none or it is ambiguous."""
        known = _parse(self.stream, name, self._takes)
        if known is not None:
            of_basin = self.pattern.basin.match(basin) or {}
            if any(known.get(key, value) != value for key, value in of_basin.items()):
                return None
            known = {**known, **of_basin}
        basin_name = _source(self.pattern.stream, "stream", known)
        if basin_name is None:
            return None
        captures = self.pattern.match(StreamRef(basin, basin_name))
        return basin_name if captures is not None and self.stream.fill(captures) == name else None

    @property
    def _takes(self) -> dict[str, Takes]:
        """For each capture, the predicate of its characters; a missing capture may contain any."""
        wildcards = (*self.pattern.basin.wildcards, *self.pattern.stream.wildcards)
        return {"basin": _in_basin, **{wildcard.name: wildcard.takes for wildcard in wildcards}}

    @property
    def keeps_order(self) -> bool:
        """True if names sort alike on both sides: they differ in a fixed prefix only."""
        return self._beginnings is not None

    @property
    def _beginnings(self) -> tuple[str, str] | None:
        """The fixed prefix of the clients' names, and its replacement on the back; None if names differ in more than a
        prefix."""
        *before, last = self.stream.parts
        if not all(isinstance(part, str) for part in before):
            return None
        if last == ("stream",):
            return "", self.stream.beginning if before else ""
        pieces = self.pattern.stream.pieces or ()
        if pieces and isinstance(pieces[-1], Wildcard) and not pieces[-1].one and last == (pieces[-1].name,):
            fixed = pieces[:-1]
            if all(isinstance(piece, str) for piece in fixed):
                return "".join(map(str, fixed)), self.stream.beginning if before else ""
        return None

    def span(self, prefix: str, start_after: str) -> tuple[str, str] | None:
        """Return the prefix, and the name to begin after, of a back's listing that covers a client's. None if no stream
        of the route can be in the client's listing. The back's listing may have more names than the client's."""
        pieces = self.pattern.stream.pieces or ()
        fixed = pieces[0] if pieces and isinstance(pieces[0], str) else ""
        if not (prefix.startswith(fixed) or fixed.startswith(prefix)):
            return None
        beginnings = self._beginnings
        if beginnings is None:
            return self.stream.beginning, ""
        ours, theirs = beginnings
        longest = max(prefix, fixed, key=len)
        if start_after.startswith(ours):
            return theirs + longest[len(ours) :], theirs + start_after[len(ours) :] if start_after else ""
        return None if start_after > ours else (theirs + longest[len(ours) :], "")

    def _tried(self) -> tuple[StreamRef, StreamRef] | None:
        """Return a sample name for the client and on the back, to test whether it maps in reverse. Its captures
        contain the templates' separators, which are what makes names ambiguous. None if no sample can be constructed,
        as for regular expressions."""
        between = [part for template in (self.basin, self.stream) for part in template.parts if isinstance(part, str)]
        basin, stream = _sample(self.pattern.basin, between, "basin-0"), _sample(self.pattern.stream, between, "x")
        if basin is None or stream is None:
            return None
        sample_stream = StreamRef(basin, stream)
        captures = self.pattern.match(sample_stream)
        return (
            None
            if captures is None
            else (sample_stream, StreamRef(self.basin.fill(captures), self.stream.fill(captures)))
        )

    @property
    def shows_streams(self) -> bool:
        """True if the streams that the back lists can be shown to clients by the clients' names."""
        tried = self._tried()
        if not self.basin.names <= {"basin", *self.pattern.basin.captures}:
            return False
        if tried is None:
            return self.stream.names == {"stream"}
        return self.stream_back(tried[0].basin, tried[1].stream) == tried[0].stream

    @property
    def shows_basins(self) -> bool:
        """True if the basins that the back lists can be shown to clients by the clients' names."""
        basin = _sample(self.pattern.basin, [], "basin-0")
        there = None if basin is None else self._basin_made(basin)
        return there is not None and self.basin_back(there) == basin

    @property
    def injective(self) -> bool:
        """True if different streams of clients always have different names on the back, as far as can be decided."""
        tried = self._tried()
        if tried is None:
            return self.basin.names == {"basin"} and self.stream.names == {"stream"}
        client_stream, there = tried
        basin, stream = (
            _parse(template, name, self._takes) for template, name in zip(self._templates, there, strict=True)
        )
        if basin is None or stream is None:
            return False
        captures = {**basin, **stream}
        return client_stream == (
            _source(self.pattern.basin, "basin", captures),
            _source(self.pattern.stream, "stream", captures),
        )

    @property
    def _templates(self) -> tuple[Template, Template]:
        return self.basin, self.stream


def _sample(pattern: NamePattern, between: list[str], anything: str) -> str | None:
    """Return a name that the pattern matches, or None if none can be constructed."""
    if pattern.pieces is None:
        return anything if pattern.everything else None
    sample = ""
    for piece in pattern.pieces:
        if isinstance(piece, str):
            sample += piece
        elif piece.one:
            sample += "x"
        else:
            sample += "x".join(["x", *(text for text in between if piece.slashes or "/" not in text), "x"])
    return sample


class _Captured(msgspec.Struct, frozen=True):
    """A capture in a template, as a wildcard for the text that it stands for."""

    name: str
    takes: Takes
    one: bool = False


def _in_basin(character: str) -> bool:
    return character in _OF_BASINS


def _parse(template: Template, name: str, takes: Mapping[str, Takes]) -> dict[str, str] | None:
    """Return the captures from which the template makes `name`, or None if there are none or they are ambiguous.

    They are unambiguous if matching with shortest captures and with longest captures gives the same result. Clients
    choose names on a back, so matching takes time at most proportional to the name's length times the template's parts.
    """
    parts = [part if isinstance(part, str) else _Captured(part[0], takes.get(part[0], _any)) for part in template.parts]
    used = [part for part in parts if isinstance(part, _Captured)]
    if len(used) > len(template.names) == 1:  # one capture, repeated: its length follows from the name's
        size = (len(name) - len(template.text)) // len(used)
        at = len(template.beginning)
        text = name[at : at + max(0, size)]
        if not all(map(used[0].takes, text)):
            return None
        captures = {used[0].name: text}
    else:
        reading = captured(parts, name)
        if reading is None or reading != captured(parts, name, longest=False):
            return None
        captures = {part.name: text for part, text in zip(used, reading, strict=True)}
    return captures if template.fill(captures) == name else None


def _any(_character: str) -> bool:
    return True


def _source(pattern: NamePattern, whole: str, captures: dict[str, str] | None) -> str | None:
    """Return the name that the pattern matched to capture `captures`, or None if that does not determine it."""
    if captures is None:
        return None
    if whole in captures:
        return captures[whole]
    if pattern.pieces is None:
        return None
    parts = [piece if isinstance(piece, str) else captures.get(piece.name) for piece in pattern.pieces]
    return None if None in parts else "".join(part for part in parts if part is not None)


def _is_basin(name: str) -> bool:
    try:
        validate_basin_name(name, FailureCode.NOT_REPRESENTABLE)
    except OperationFailed:
        return False
    return True


def _check_legal(basin: Template, stream: Template) -> None:
    """Check that the templates can make legal names. Raises ValueError if no captures would."""
    if not re.fullmatch("[a-z0-9-]*", basin.text) or len(basin.text) > _MOST_IN_BASIN:
        raise ValueError(f"to_basin: a basin's name cannot contain {basin.text!r}")
    if "\0" in stream.text or len(stream.text.encode()) > _MOST_IN_STREAM:
        raise ValueError(f"to_stream: a stream's name cannot contain {stream.text!r:.80}")
    for key, template, validate in (
        ("to_basin", basin, validate_basin_name),
        ("to_stream", stream, validate_stream_name),
    ):
        if not template.names:
            try:
                validate(template.text, FailureCode.INVALID)
            except OperationFailed as error:
                raise ValueError(f"{key}: {error.failure.message}") from None
