"""Parse TOML as a tree of msgspec structs, and report all faults at once, each with its place.

The gateway and the pipeline read their configurations with it. `keys_removed` of a struct, if there is one, names keys
that earlier versions had, each with what takes its place, and `values_removed` the same for values, by key.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from penstock.wire.toml.hints import Tables, choices, hints_of, named_values, tables_in

__all__ = ["TomlError", "decode_toml", "parse_toml"]

S = TypeVar("S", bound=msgspec.Struct)

_WORDS = {
    "`bool | int | float | str`": "a string, a number, true or false",
    "`int`": "a whole number",
    "`float`": "a number",
    "`str`": "a string",
    "`bool`": "true or false",
    "`array`": "an array",
    "`object`": "a table",
}
_OTHER_NAMES = {"type": "kind", "url": "address", "uri": "address", "endpoint": "address", "host": "address"}
"""Names that other programs give to keys."""


class TomlError(Exception):
    """The text cannot be used; `problems` are lines that each name the place and the fault."""

    def __init__(self, source: str, problems: list[str]) -> None:
        super().__init__("\n".join(f"{source}: {problem}" for problem in problems))
        self.problems = problems


def decode_toml(data: bytes, struct: type[S], source: str) -> S:
    """Return `parse_toml` of a file's content. Raises TomlError if it is not text."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TomlError(source, [f"is not UTF-8 text: {error.reason} at byte {error.start}"]) from error
    return parse_toml(text, struct, source)


def parse_toml(text: str, struct: type[S], source: str) -> S:
    """Parse the text as a `struct`; `source` names it in errors. Raises TomlError with all problems."""
    try:
        tree = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError is a ValueError, and so is the error for an integer of 5000 digits
        raise TomlError(source, [f"is not TOML: {error}"]) from error
    except RecursionError as error:
        raise TomlError(source, ["its arrays and tables are nested too deeply"]) from error
    problems = list(_problems(struct, tree, ""))
    if problems:
        raise TomlError(source, problems)
    return msgspec.convert(tree, struct)


def _problems(struct: type[msgspec.Struct], table: Any, path: str) -> Iterator[str]:
    """Yield every fault of `table` as a `struct`: keys first, then each value, then their consistency."""
    if not isinstance(table, dict):
        yield f"at {path}: expected a table, got {_kind(table)}"
        return
    has_problems = False
    for problem in _members(struct, table, path):
        has_problems = True
        yield problem
    if not has_problems:
        try:
            msgspec.convert(table, struct)
        except msgspec.ValidationError as error:
            yield from _located(str(error), path).splitlines()


def _members(struct: type[msgspec.Struct], table: dict[str, Any], path: str) -> Iterator[str]:
    """Yield the faults of a table's keys and values."""
    hints, tag = hints_of(struct), struct.__struct_config__.tag_field
    keys_removed: Mapping[str, str] = getattr(struct, "keys_removed", {})
    values_removed: Mapping[str, Mapping[str, str]] = getattr(struct, "values_removed", {})
    for key, value in table.items():
        at = f"{path}.{key}" if path else key
        if key == tag:
            continue
        if key in keys_removed:
            yield f"at {at}: this key no longer exists; {keys_removed[key]}"
        elif isinstance(value, str) and (removal := values_removed.get(key, {}).get(value)):
            yield f"at {at}: {value!r} was removed; {removal}"
        elif key not in hints:
            yield f"at {at}: unknown key{_suggestion(key, hints)}"
        elif (tables := tables_in(hints[key])) is None:
            yield from _value_problem(hints[key], value, at)
        elif tables.tag is not None:
            yield from _named_problems(tables, value, at)
        elif tables.struct is not None:
            if tables.one_or_more and isinstance(value, dict):
                yield from _problems(tables.struct, value, at)
                table[key] = [value]
            elif tables.many:
                yield from _listed_problems(tables.struct, value, at)
            else:
                yield from _problems(tables.struct, value, at)


def _listed_problems(struct: type[msgspec.Struct], value: Any, at: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"at {at}: expected an array of tables ([[{at}]]), got {_kind(value)}"
        return
    for index, item in enumerate(value):
        yield from _problems(struct, item, f"{at}[{index}]")


def _named_problems(tables: Tables, value: Any, at: str) -> Iterator[str]:
    """Yield the faults of tables by name, each of which names its own kind."""
    if not isinstance(value, dict):
        yield f"at {at}: expected tables ([{at}.NAME]), got {_kind(value)}"
        return
    kinds = ", ".join(map(repr, tables.kinds))
    for name, table in value.items():
        where = f"{at}.{name}"
        if not isinstance(table, dict):
            yield f"at {where}: expected a table, got {_kind(table)}"
        elif tables.tag not in table:
            other_name = next(
                (f"; write it instead of `{key}`" for key in table if _OTHER_NAMES.get(key) == tables.tag), ""
            )
            yield f"at {where}: missing key `{tables.tag}`, one of {kinds}{other_name}"
        elif not isinstance(kind := table[tables.tag], str) or kind not in tables.kinds:
            yield f"at {where}.{tables.tag}: expected one of {kinds}, got {kind!r}"
        else:
            yield from _problems_of_kind(tables, kind, table, where)


def _problems_of_kind(tables: Tables, kind: str, table: dict[str, Any], where: str) -> Iterator[str]:
    """Yield faults as `_problems`; tell a key that only other kinds have from one that none has."""
    own = hints_of(tables.kinds[kind])
    others = {
        key: [other for other, struct in tables.kinds.items() if key in hints_of(struct)]
        for key in table
        if key not in own and key != tables.tag
    }
    strange = {key: having for key, having in others.items() if having}
    for key, having in strange.items():
        yield f"at {where}.{key}: a back of kind {kind!r} has no such key; those of kind {', '.join(having)} have it"
    if not strange:
        yield from _problems(tables.kinds[kind], table, where)


def _suggestion(key: str, hints: Mapping[str, Any]) -> str:
    near = [_OTHER_NAMES[key]] if _OTHER_NAMES.get(key) in hints else difflib.get_close_matches(key, hints, n=1)
    return f"; did you mean {near[0]}?" if near else f"; the keys here are {', '.join(hints)}"


def _value_problem(hint: Any, value: Any, at: str) -> Iterator[str]:
    inner = named_values(hint)
    if inner is not None and isinstance(value, dict):
        for name, element in value.items():
            yield from _value_problem(inner, element, f"{at}.{name}")
        return
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
    """Return msgspec's message in plain words, with the whole path."""
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
