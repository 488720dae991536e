"""Writes the configuration down for people: `config/gateway.toml` and the tables of `docs/configuration.md`.

`python -m penstock.config.document` writes both anew; the tests fail where they differ from the structs.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from penstock.config.hints import choices
from penstock.config.schema import default_config

__all__ = ["configuration_page", "default_toml"]

_HEAD = """\
# The configuration of a Penstock gateway. Every key is shown with its default; one that has none stands in a
# comment. The file runs as it is:   penstock serve --config config/gateway.toml
# Sizes are in bytes and times in seconds unless a key's name says else. `penstock check --config FILE` explains.
"""

_PAGE = """\
# Configuration

One TOML file, given by `penstock serve --config FILE`. [`config/gateway.toml`](../config/gateway.toml) shows every
key with its default and runs as it is; without a file the gateway runs as that file says.

A table under `[listeners]` that a file leaves out is off, and basins are those that it names; any other table or key
that is left out has its default. A key that Penstock does not know is refused with its path. `penstock check --config
FILE` says in plain words what would run.

Sizes are in bytes and times in seconds unless a key's name says else. The flags of `penstock serve` win over the file:
`--s2 HOST:PORT`, `--s3p HOST:PORT`, `--segment HOST:PORT`, `--controller HOST:PORT` (each may be `off`), `--data DIR`,
`--log-level LEVEL`.
"""


class _Key(NamedTuple):
    name: str
    value: Any
    hint: Any


class _Section(NamedTuple):
    header: str
    summary: str
    keys: list[_Key]


def default_toml() -> str:
    """The text of `config/gateway.toml`."""
    parts = [_HEAD]
    for section in _sections(default_config(), ""):
        lines = [*_comment(section.summary), section.header]
        for key in section.keys:
            lines += _comment(_meaning(key.hint))
            shown = f"{key.name} = {_toml(_example(key))}"
            lines.append(shown if key.value is not None else f"# {shown}")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def configuration_page() -> str:
    """The text of `docs/configuration.md`."""
    parts = [_PAGE]
    for section in _sections(default_config(), ""):
        rows = [
            f"| `{key.name}` | {'none' if key.value is None else f'`{_toml(key.value)}`'} | {_meaning(key.hint)} |"
            for key in section.keys
        ]
        table = ["| key | default | meaning |", "|---|---|---|", *rows]
        parts.append("\n".join([f"## `{section.header}`", "", section.summary, "", *(table if rows else [])]) + "\n")
    return "\n".join(parts)


def _sections(table: msgspec.Struct, path: str, header: str = "") -> Iterator[_Section]:
    """The table's own keys, then its inner tables; a table without keys of its own is not shown."""
    keys, inner = [], []
    for name, hint in get_type_hints(type(table), include_extras=True).items():
        value = getattr(table, name)
        below = f"{path}.{name}" if path else name
        if isinstance(value, msgspec.Struct):
            inner += list(_sections(value, below, f"[{below}]"))
        elif isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
            inner += [section for one in value for section in _sections(one, below, f"[[{below}]]")]
        else:
            keys.append(_Key(name, value, hint))
    if keys:
        yield _Section(header, " ".join((type(table).__doc__ or "").split()), keys)
    yield from inner


def _meta(hint: Any) -> msgspec.Meta | None:
    if get_origin(hint) is not Annotated:
        return None
    return next((extra for extra in get_args(hint)[1:] if isinstance(extra, msgspec.Meta)), None)


def _meaning(hint: Any) -> str:
    """The key's explanation, with its bounds and choices."""
    meta = _meta(hint)
    if meta is None or meta.description is None:
        raise ValueError("every key needs an explanation")
    bounds = {(True, True): f" From {meta.ge} to {meta.le}.", (True, False): f" At least {meta.ge}."}
    values = choices(hint)
    one_of = f" One of {', '.join(map(_toml, values))}." if values else ""
    return meta.description + bounds.get((meta.ge is not None, meta.le is not None), "") + one_of


def _example(key: _Key) -> Any:
    if key.value is not None:
        return key.value
    meta = _meta(key.hint)
    if meta is None or not meta.examples:
        raise ValueError(f"key {key.name} has neither a default nor an example")
    return meta.examples[0]


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, width=116, initial_indent="# ", subsequent_indent="# ")


def write(root: Path) -> None:
    """Write both files below `root`, the repository."""
    (root / "config" / "gateway.toml").write_text(default_toml(), encoding="utf-8")
    (root / "docs" / "configuration.md").write_text(configuration_page(), encoding="utf-8")


if __name__ == "__main__":
    write(Path.cwd())
