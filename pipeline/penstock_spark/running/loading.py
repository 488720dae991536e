"""From a TOML file to `Settings`, with every fault named by its place."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from penstock_spark.running.settings import Settings

__all__ = ["SettingsError", "load_settings", "parse_settings"]

_WORDS = {
    "`bool | int | float | str`": "a string, a number, true or false",
    "`int`": "a whole number",
    "`float`": "a number",
    "`str`": "a string",
    "`bool`": "true or false",
    "`array`": "an array",
    "`object`": "a table",
    "Expected": "expected",
    "matching regex": "that matches",
}


class SettingsError(Exception):
    """The settings cannot be used; `problems` are lines that each name the place and the fault."""

    def __init__(self, source: str, problems: list[str]) -> None:
        super().__init__("\n".join(f"{source}: {problem}" for problem in problems))
        self.problems = problems


def load_settings(path: Path) -> Settings:
    """Read a file. Raises SettingsError where it cannot be read or used."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(str(path), [f"cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise SettingsError(str(path), [f"is not UTF-8 text: {error.reason} at byte {error.start}"]) from error
    return parse_settings(text, str(path))


def parse_settings(text: str, source: str = "settings") -> Settings:
    """Read settings from TOML text; `source` names it in errors. Raises SettingsError with all problems."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(source, [f"is not TOML: {error}"]) from error
    problems = list(_problems(Settings, tree, ""))
    if problems:
        raise SettingsError(source, problems)
    return msgspec.convert(tree, Settings)


def _problems(struct: type[msgspec.Struct], table: Any, path: str) -> Iterator[str]:
    """Each key and each value by itself; then, if these are fine, whether they agree."""
    if not isinstance(table, dict):
        yield f"at {path}: expected a table ([{path}])"
        return
    bare, annotated = get_type_hints(struct), get_type_hints(struct, include_extras=True)
    found = False
    for key, value in table.items():
        at = f"{path}.{key}" if path else key
        for problem in _key_problems(bare, annotated, key, value, at):
            found = True
            yield problem
    if not found:
        yield from _fault(struct, table, path)


def _key_problems(bare: dict[str, Any], annotated: dict[str, Any], key: str, value: Any, at: str) -> Iterator[str]:
    if key not in bare:
        near = difflib.get_close_matches(key, bare, n=1)
        yield f"at {at}: unknown key; " + (f"did you mean {near[0]}?" if near else f"the keys are {', '.join(bare)}")
    elif isinstance(bare[key], type) and issubclass(bare[key], msgspec.Struct):
        yield from _problems(bare[key], value, at)
    elif get_origin(bare[key]) is Literal and value not in get_args(bare[key]):
        yield f"at {at}: expected one of {', '.join(map(repr, get_args(bare[key])))}, got {value!r}"
    elif get_origin(bare[key]) is dict and isinstance(value, dict):
        for name, one in value.items():
            yield from _fault(get_args(bare[key])[1], one, f"{at}.{name}")
    else:
        yield from _fault(annotated[key], value, at)


def _fault(hint: Any, value: Any, path: str) -> Iterator[str]:
    """What msgspec finds, in plain words and with the whole path."""
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$")
        for code, words in _WORDS.items():
            text = text.replace(code, words)
        yield f"at {path}{place.rstrip('`')}: {text}".replace("at : ", "")
