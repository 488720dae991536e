"""Names on the other side: templates over what a pattern captured, and the way back.

A template is text with captures in braces: `{basin}`, `{stream}`, `{1}`, `{name}`; `{{` and `}}` stand for braces. The
way back is there where it is certain: what a server lists is shown to clients only by a name that leads there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.routing.globs import captured
from penstock.routing.matching import Captures, NamePattern, StreamPattern, Wildcard
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.model import StreamRef
from penstock_codecs.s2.names import validate_basin_name, validate_stream_name

__all__ = ["Rewriting", "Template"]

_PART: Final = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z_0-9]*|[1-9][0-9]?)\}|[{}]")
_MOST_IN_BASIN: Final = 48
_MOST_IN_STREAM: Final = 512


@dataclass(frozen=True, slots=True)
class Template:
    """`parts`: text, and captures as one-element tuples of their names."""

    parts: tuple[str | tuple[str], ...]

    @classmethod
    def parse(cls, text: str) -> Template:
        """Raises ValueError for braces that make no capture."""
        parts: list[str | tuple[str]] = []
        at = 0
        for found in _PART.finditer(text):
            parts.append(text[at : found.start()])
            at = found.end()
            if found[1] is not None:
                parts.append((found[1],))
            elif len(found[0]) == 2:
                parts.append(found[0][0])
            else:
                raise ValueError(
                    f"{text!r}: a brace begins or ends a capture, as {{stream}} or {{1}}; {{{{ stands for {{"
                )
        parts.append(text[at:])
        return cls(_joined(parts))

    @property
    def names(self) -> frozenset[str]:
        """The captures that it uses."""
        return frozenset(part[0] for part in self.parts if isinstance(part, tuple))

    @property
    def text(self) -> str:
        """What it says whatever was captured."""
        return "".join(part for part in self.parts if isinstance(part, str))

    @property
    def beginning(self) -> str:
        """What all names that it makes begin with."""
        return self.parts[0] if self.parts and isinstance(self.parts[0], str) else ""

    def fill(self, captures: Captures) -> str:
        """The name that it makes."""
        return "".join(part if isinstance(part, str) else captures[part[0]] for part in self.parts)


def _joined(parts: Iterable[str | tuple[str]]) -> tuple[str | tuple[str], ...]:
    """Without empty text, and neighbouring texts as one."""
    joined: list[str | tuple[str]] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, str) and isinstance(last, str):
            joined[-1] = last + part
        elif part:
            joined.append(part)
    return tuple(joined)


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The names of a route's streams on its back, and back again."""

    pattern: StreamPattern
    basin: Template
    stream: Template

    @classmethod
    def compile(cls, pattern: StreamPattern, to_basin: str | None, to_stream: str | None) -> Rewriting:
        """From what a configuration says; None: the name stays. Raises ValueError, with the key's name, for unknown
        captures and for templates that cannot make a legal name."""
        basin = Template.parse("{basin}" if to_basin is None else to_basin)
        made = cls(pattern, basin, Template.parse("{stream}" if to_stream is None else to_stream))
        for key, template in (("to_basin", made.basin), ("to_stream", made.stream)):
            unknown = sorted(template.names - pattern.captures)
            if unknown:
                known = ", ".join(f"{{{name}}}" for name in sorted(pattern.captures))
                raise ValueError(f"{key}: nothing captures {{{unknown[0]}}}; there is {known}")
        _check_legal(made.basin, made.stream)
        return made

    @property
    def changes(self) -> bool:
        """Whether any name is changed."""
        return self.basin.parts != (("basin",),) or self.stream.parts != (("stream",),)

    def forward(self, stream: StreamRef, captures: Captures) -> StreamRef:
        """The stream's name on the back. Raises NOT_REPRESENTABLE where the template makes no legal name of it."""
        if not self.changes:
            return stream
        code = FailureCode.NOT_REPRESENTABLE
        basin, name = self.basin.fill(captures), self.stream.fill(captures)
        try:
            made = basin if basin == stream.basin else validate_basin_name(basin, code)
            return StreamRef(made, name if name == stream.stream else validate_stream_name(name, code))
        except OperationFailed as error:
            why = f"stream {stream} would be {basin}/{name} behind the gateway: {error.failure.message}"
            raise fail(code, why) from None

    def basin_forward(self, basin: str) -> str | None:
        """The back's basin of a client's; None where that depends on the stream, it is not taken, or has no legal name
        there."""
        there = self._basin_made(basin)
        return there if there is None or there == basin or _is_basin(there) else None

    def _basin_made(self, basin: str) -> str | None:
        captured = self.pattern.basin.match(basin)
        known = None if captured is None else {**captured, "basin": basin}
        return None if known is None or not self.basin.names <= known.keys() else self.basin.fill(known)

    def basin_back(self, basin: str) -> str | None:
        """The client's name of a back's basin; None where it has none, or it is not certain."""
        name = _source(self.pattern.basin, "basin", _parse(self.basin, basin, self._characters))
        return name if name is not None and self._basin_made(name) == basin else None

    def reaches_basin(self, basin: str) -> bool:
        """Whether any stream may be in this basin of the back. Where that is not certain: yes."""
        if self.basin.parts == (("basin",),):
            return self.pattern.basin.match(basin) is not None
        made = (re.escape(part) if isinstance(part, str) else "[a-z0-9-]*" for part in self.basin.parts)
        return re.fullmatch("".join(made), basin) is not None

    def stream_back(self, basin: str, name: str) -> str | None:
        """The client's name of stream `name` on the back, in the client's basin `basin`; None where it has none, or it
        is not certain."""
        known = _parse(self.stream, name, self._characters)
        if known is not None:
            of_basin = self.pattern.basin.match(basin) or {}
            if any(known.get(key, value) != value for key, value in of_basin.items()):
                return None
            known = {**known, **of_basin}
        found = _source(self.pattern.stream, "stream", known)
        if found is None:
            return None
        captures = self.pattern.match(StreamRef(basin, found))
        return found if captures is not None and self.stream.fill(captures) == name else None

    @property
    def _characters(self) -> dict[str, str]:
        """For each capture the characters that it may have, as a regular expression."""
        wildcards = (*self.pattern.basin.wildcards, *self.pattern.stream.wildcards)
        return {"basin": "[a-z0-9-]", **{wildcard.name: wildcard.character for wildcard in wildcards}}

    @property
    def keeps_order(self) -> bool:
        """Whether names are in the same order on both sides: they differ in how they begin, and in nothing else."""
        return self._beginnings is not None

    @property
    def _beginnings(self) -> tuple[str, str] | None:
        """What the client's names begin with, and what stands there instead on the back; None where there is more to
        it than that."""
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
        """What to ask the back for, of a listing: prefix, and the name to begin after. None where the client's prefix
        or beginning leaves nothing of this route. What comes back may be more than was meant."""
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
        """Names here and there that hold what the templates put between captures, which is what makes them uncertain;
        None where none can be made up: nothing is known of a regular expression's names."""
        between = [part for template in (self.basin, self.stream) for part in template.parts if isinstance(part, str)]
        basin, stream = _sample(self.pattern.basin, between, "basin-0"), _sample(self.pattern.stream, between, "x")
        if basin is None or stream is None:
            return None
        asked = StreamRef(basin, stream)
        captures = self.pattern.match(asked)
        return None if captures is None else (asked, StreamRef(self.basin.fill(captures), self.stream.fill(captures)))

    @property
    def shows_streams(self) -> bool:
        """Whether what the back lists in a basin can be shown to clients by their names."""
        tried = self._tried()
        if not self.basin.names <= {"basin", *self.pattern.basin.captures}:
            return False
        if tried is None:
            return self.stream.names == {"stream"}
        return self.stream_back(tried[0].basin, tried[1].stream) == tried[0].stream

    @property
    def shows_basins(self) -> bool:
        """Whether the back's basins can be shown to clients by their names."""
        basin = _sample(self.pattern.basin, [], "basin-0")
        there = None if basin is None else self._basin_made(basin)
        return there is not None and self.basin_back(there) == basin

    @property
    def injective(self) -> bool:
        """Whether two streams of clients are always two on the back, as far as that can be told."""
        tried = self._tried()
        if tried is None:
            return self.basin.names == {"basin"} and self.stream.names == {"stream"}
        asked, there = tried
        basin, stream = (_parse(one, name, self._characters) for one, name in zip(self._templates, there, strict=True))
        if basin is None or stream is None:
            return False
        known = {**basin, **stream}
        return asked == (
            _source(self.pattern.basin, "basin", known),
            _source(self.pattern.stream, "stream", known),
        )

    @property
    def _templates(self) -> tuple[Template, Template]:
        return self.basin, self.stream


def _sample(pattern: NamePattern, between: list[str], anything: str) -> str | None:
    """A name that the pattern takes; None where it cannot be made up."""
    if pattern.pieces is None:
        return anything if pattern.everything else None
    made = ""
    for piece in pattern.pieces:
        if isinstance(piece, str):
            made += piece
        elif piece.one:
            made += "x"
        else:
            made += "x".join(["x", *(text for text in between if piece.slashes or "/" not in text), "x"])
    return made


def _parse(template: Template, name: str, characters: Mapping[str, str]) -> dict[str, str] | None:
    """What was captured, if the template made `name` of it; None where it did not, or that is not certain.

    Every reading is tried once, each capture as short as it can be and as long as it can be: where both agree, there
    is one.
    """
    pieces = [
        part if isinstance(part, str) else Wildcard(part[0], one=False, slashes=characters.get(part[0], ".") == ".")
        for part in template.parts
    ]
    if captured(pieces, name) is None:  # nearly all that is foreign ends here, where an expression may take very long
        return None
    readings = []
    for quantifier in ("*?", "*"):
        seen: set[str] = set()
        expression = ""
        for part in template.parts:
            if isinstance(part, str):
                expression += re.escape(part)
            elif part[0] in seen:
                expression += f"(?P=_{part[0]})"
            else:
                seen.add(part[0])
                expression += f"(?P<_{part[0]}>{characters.get(part[0], '.')}{quantifier})"
        found = re.compile(expression, re.DOTALL).fullmatch(name)
        readings.append(None if found is None else {key[1:]: value for key, value in found.groupdict().items()})
    return readings[0] if readings[0] == readings[1] else None


def _source(pattern: NamePattern, whole: str, known: dict[str, str] | None) -> str | None:
    """The name that a pattern had taken to capture `known`; None where that does not say it."""
    if known is None:
        return None
    if whole in known:
        return known[whole]
    if pattern.pieces is None:
        return None
    parts = [piece if isinstance(piece, str) else known.get(piece.name) for piece in pattern.pieces]
    return None if None in parts else "".join(part for part in parts if part is not None)


def _is_basin(name: str) -> bool:
    try:
        validate_basin_name(name, FailureCode.NOT_REPRESENTABLE)
    except OperationFailed:
        return False
    return True


def _check_legal(basin: Template, stream: Template) -> None:
    """Raises ValueError for templates that make no legal name whatever is captured."""
    if not re.fullmatch("[a-z0-9-]*", basin.text) or len(basin.text) > _MOST_IN_BASIN:
        raise ValueError(f"to_basin: no basin's name has {basin.text!r} in it")
    if "\0" in stream.text or len(stream.text.encode()) > _MOST_IN_STREAM:
        raise ValueError(f"to_stream: no stream's name has {stream.text!r:.80} in it")
    for key, template, validate in (
        ("to_basin", basin, validate_basin_name),
        ("to_stream", stream, validate_stream_name),
    ):
        if not template.names:
            try:
                validate(template.text, FailureCode.INVALID)
            except OperationFailed as error:
                raise ValueError(f"{key}: {error.failure.message}") from None
