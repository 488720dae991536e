"""Regular expressions from configurations, matched in linear time.

Python's `re` backtracks: a pattern such as `(a+)+b` takes hours for 40 bytes that a client chooses, and holds the
interpreter meanwhile. RE2 takes time linear in the text, whatever the pattern. It lacks what cannot be matched so:
backreferences, lookaround, conditions, atomic groups and possessive repetitions.

Patterns are written, and checked, as Python's; where the two libraries spell something differently, it is translated.
One difference remains: `\\b` in text knows ASCII letters only.
"""

from __future__ import annotations

import re
import unicodedata
from typing import AnyStr, Final, cast

import re2

__all__ = ["compile_expression"]

_TOKEN: Final = re.compile(
    r"""(?P<lookahead>\(\?[=!]) | (?P<lookbehind>\(\?<[=!]) | (?P<condition>\(\?\()
    | (?P<atomic_group>\(\?>) | (?P<possessive_repetition>[*+?]\+|\{[0-9]+(?:,[0-9]*)?\}\+|\{,[0-9]+\}\+)
    | (?P<backreference>\(\?P=|\\(?![1-3][0-7][0-7])[1-9][0-9]?)
    | (?P<comment>\(\?\#[^)]*\)) | (?P<at_most>\{,(?=[0-9]+\})) | (?P<set>\[\^?\]?) | (?P<end>\$)
    | (?P<escape>\\(?:u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|N\{[^}]*\}|[0-7]{1,3}|.)) | (?P<plain>.)""",
    re.VERBOSE | re.DOTALL,
)
_IN_SET: Final = re.compile(
    r"(?P<close>\])|(?P<open>\[)|(?P<escape>\\(?:u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|N\{[^}]*\}|[0-7]{1,3}|.))|(?P<plain>.)",
    re.DOTALL,
)
_LACKING: Final = frozenset(
    {"lookahead", "lookbehind", "condition", "atomic_group", "possessive_repetition", "backreference"}
)
_SPACES: Final = r"\t-\r\x1c-\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
_NO_SPACES: Final = (
    r"\x00-\x08\x0e-\x1b\x21-\x84\x86-\x9f\xa1-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}"
    r"\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}"
)
_OF_UNICODE: Final = {
    "d": r"\p{Nd}",
    "D": r"\P{Nd}",
    "w": r"\pL\pN_",
    "s": _SPACES,
    "S": _NO_SPACES,
}
"""RE2's spelling, inside a set, of Python's classes, which cover Unicode's letters, digits and spaces in text."""


def compile_expression(pattern: AnyStr) -> re.Pattern[AnyStr]:
    """Compile a pattern as `re.compile` does, to match in time linear in the length of the text.

    The result has `search`, `match`, `fullmatch`, `finditer`, `groups` and `groupindex`. Raises ValueError with what is
    wrong, and where, for an invalid regular expression and for one that cannot be matched in linear time.
    """
    shown = repr(pattern if isinstance(pattern, str) else pattern.decode("utf-8", "backslashreplace"))
    try:
        flags = re.compile(pattern).flags
    except re.error as error:
        where = "" if error.pos is None else f" at character {error.pos + 1}"
        raise ValueError(f"{shown} is not a regular expression: {error.msg}{where}") from None
    except (RecursionError, OverflowError) as error:
        raise ValueError(f"{shown} is not a regular expression: {error}") from None
    options = re2.Options()
    options.log_errors = False
    try:
        if isinstance(pattern, str):
            translated: str | bytes = _translated(pattern, unicode=True, ends=False)
        else:
            options.encoding = re2.Options.Encoding.LATIN1
            text = pattern.decode("latin-1")
            translated = _translated(text, unicode=False, ends=not flags & re.MULTILINE).encode("latin-1")
        return cast("re.Pattern[AnyStr]", re2.compile(translated, options))
    except _Lacking as lacking:
        reason = f"{lacking} cannot be matched in linear time"
    except re2.error as error:
        message = error.args[0] if error.args else ""
        reason = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    raise ValueError(f"{shown} is a regular expression that this gateway does not accept: {reason}")


class _Lacking(Exception):
    """The pattern uses a construct that RE2 lacks."""


def _translated(pattern: str, *, unicode: bool, ends: bool) -> str:
    """Return a pattern in RE2's spelling. `unicode`: it is for text. `ends`: `$` also matches before a newline at the
    very end, which becomes a part of the match."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        match = _TOKEN.match(pattern, at)
        assert match is not None, "any character is plain"
        kind, token = match.lastgroup or "", match[0]
        if kind in _LACKING:
            raise _Lacking(f"{kind.replace('_', ' ')} {token} at character {at + 1}")
        at = match.end()
        if kind == "set":
            out.append("[^" if token.startswith("[^") else "[")
            at = _set(pattern, at, out, token.endswith("]"), unicode=unicode)
        elif kind == "escape":
            out.append(_escape(token, at, unicode=unicode))
        elif kind == "at_most":
            out.append("{0,")
        elif kind == "end" and ends:
            out.append(r"\n?\z")
        elif kind != "comment":
            out.append(token)
    return "".join(out)


def _set(pattern: str, at: int, out: list[str], closes: bool, *, unicode: bool) -> int:
    """Translate the rest of a set after its opening bracket; return the offset of its end. `closes`: its first
    character is `]`."""
    if closes:
        out.append(r"\]")
    while True:
        match = _IN_SET.match(pattern, at)
        assert match is not None, "Python takes the pattern"
        at = match.end()
        token = match[0]
        if match.lastgroup == "close":
            out.append("]")
            return at
        if token == "[":
            out.append(r"\[")
        elif match.lastgroup == "escape":
            out.append(_escape(token, at, unicode=unicode, in_set=True))
        else:
            out.append(token)


def _escape(token: str, end: int, *, unicode: bool, in_set: bool = False) -> str:
    """Return an escape in RE2's spelling; `end` is the offset of its end."""
    letter, rest = token[1], token[2:]
    if letter in "uU":
        return rf"\x{{{rest}}}"
    if letter == "N":
        return rf"\x{{{ord(unicodedata.lookup(rest[1:-1])):x}}}"
    if letter in "01234567":
        return rf"\x{{{int(token[1:], 8):x}}}"
    if letter == "Z":
        return r"\z"
    if letter == "b" and in_set:
        return r"\x08"
    if not letter.isascii():
        return letter
    if unicode and letter == "W":
        if in_set:
            raise _Lacking(rf"\W within brackets at character {end - 1}")
        return rf"[^{_OF_UNICODE['w']}]"
    if unicode and letter in _OF_UNICODE:
        return _OF_UNICODE[letter] if in_set else f"[{_OF_UNICODE[letter]}]"
    return token
