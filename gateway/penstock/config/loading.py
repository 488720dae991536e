"""From a TOML file to a `Config`, with every problem named by its path."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from penstock.config.hints import choices, struct_in
from penstock.config.schema import Config

__all__ = ["ConfigError", "load_config", "parse_config"]

_WORDS = {
    "`int`": "a whole number",
    "`float`": "a number",
    "`str`": "a string",
    "`bool`": "true or false",
    "`array`": "an array",
    "`object`": "a table",
}


class ConfigError(Exception):
    """The configuration cannot be used; `problems` are lines that each name the place and the fault."""

    def __init__(self, source: str, problems: list[str]) -> None:
        super().__init__("\n".join(f"{source}: {problem}" for problem in problems))
        self.problems = problems


def load_config(path: Path) -> Config:
    """Read a configuration file. Raises ConfigError where it cannot be read or used."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), [f"is not UTF-8 text: {error.reason} at byte {error.start}"]) from error
    return parse_config(text, str(path))


def parse_config(text: str, source: str = "configuration") -> Config:
    """Read a configuration from TOML text; `source` names it in errors. Raises ConfigError with all problems."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(source, [f"is not TOML: {error}"]) from error
    problems = list(_problems(Config, tree, ""))
    if problems:
        raise ConfigError(source, problems)
    return msgspec.convert(tree, Config)


def _problems(struct: type[msgspec.Struct], table: Any, path: str) -> Iterator[str]:
    """Everything that is wrong with `table` as a `struct`: keys first, then each value, then how they agree."""
    if not isinstance(table, dict):
        yield f"at {path}: expected a table, got {_kind(table)}"
        return
    hints = get_type_hints(struct, include_extras=True)
    found = False
    for problem in _members(hints, table, path):
        found = True
        yield problem
    if not found:
        try:
            msgspec.convert(table, struct)
        except msgspec.ValidationError as error:
            yield _located(str(error), path)


def _members(hints: dict[str, Any], table: dict[str, Any], path: str) -> Iterator[str]:
    for key, value in table.items():
        at = f"{path}.{key}" if path else key
        if key not in hints:
            yield f"at {at}: unknown key{_suggestion(key, hints)}"
            continue
        struct, many = struct_in(hints[key])
        if struct is None:
            yield from _value_problem(hints[key], value, at)
        elif not many:
            yield from _problems(struct, value, at)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from _problems(struct, item, f"{at}[{index}]")
        else:
            yield f"at {at}: expected an array of tables ([[{at}]]), got {_kind(value)}"


def _suggestion(key: str, hints: dict[str, Any]) -> str:
    near = difflib.get_close_matches(key, hints, n=1)
    return f"; did you mean {near[0]}?" if near else f"; the keys here are {', '.join(hints)}"


def _value_problem(hint: Any, value: Any, at: str) -> Iterator[str]:
    allowed = choices(hint)
    if allowed:
        if value not in allowed:
            yield f"at {at}: expected one of {', '.join(map(repr, allowed))}, got {value!r}"
        return
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        yield _located(str(error), at)


def _located(message: str, path: str) -> str:
    """msgspec's message in plain words, with the whole path."""
    text, _, place = message.partition(" - at `$")
    for code, words in _WORDS.items():
        text = text.replace(code, words)
    text = text.replace("Object missing required field", "missing key")
    text = text.replace("matching regex", "that matches")
    if text.startswith("Expected"):
        text = "e" + text[1:]
    where = (path + place.rstrip("`")).lstrip(".")
    return f"at {where}: {text}" if where else text


def _kind(value: Any) -> str:
    names = {dict: "a table", list: "an array", str: "a string", bool: "true or false", int: "a whole number"}
    return names.get(type(value), f"a {type(value).__name__}")
