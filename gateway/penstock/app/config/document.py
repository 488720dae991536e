"""Generates `config/gateway.toml`, `docs/configuration.md` and `docs/limits.md` from the configuration structs.

`python -m penstock.app.config.document` writes them; tests fail if they differ from the structs.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from penstock.app.config.limits_document import limits_page
from penstock.app.config.schema import default_config
from penstock.core.config_fields import has, key
from penstock.protocols.plugin import listener_kinds
from penstock.wire.toml.hints import Tables, choices, tables_in

__all__ = ["configuration_page", "default_toml"]

_HEAD = """\
# The configuration of a Penstock gateway, with the default of every key. Keys without a default, and tables of which
# there are none by default, are in comments. The file runs unchanged, with its data beside its directory:
#     penstock serve --config config/gateway.toml
# Relative paths begin at the directory of this file. Sizes are in bytes and times in seconds unless a key's name gives
# another unit. `penstock check --config FILE` describes what a configuration does.
"""

_PAGE = """\
# Configuration

To configure a gateway, write one TOML file and run `penstock serve --config FILE`; `penstock check --config FILE` says
what it would do. [`config/gateway.toml`](../config/gateway.toml) contains every key with its default, and runs
unchanged. Without a file the gateway runs with these defaults, and with its data in `./data`.

A listener without a table under `[listeners]` is off. Basins, backs, routes and identities exist only if the file
defines them. Every other missing table or key has its default. An unknown key is an error, which names the key's path.
`penstock check --config FILE` describes in plain words what a configuration does.

Several listeners of a kind are an array of tables, `[[listeners.KIND]]`, each with a `name`. The names of backs are
free; this page shows each kind of back as `[backs.KIND]`. [Routes](routes.md) describes the use of both.

Relative paths begin at the directory of the configuration file, wherever the command runs: paths of the store,
recordings, certificates, keys, and files with tokens and passwords. In flags, and without a file, they begin at the
working directory.

Sizes are in bytes and times in seconds unless a key's name gives another unit. Flags of `penstock serve` override the
file: FLAGS and `--management HOST:PORT` (each may be `off`), `--data DIR`, `--log-level LEVEL`, `--record DIR`,
`--management-token TOKEN`, `--anonymous`, `--allow-host NAME`.
"""


class _Key(NamedTuple):
    name: str
    value: Any
    hint: Any
    required: bool = False


class _Section(NamedTuple):
    """A table in the generated files. `shown`: an example in a comment, since no such table exists by default; in it,
    keys without a value are commented out twice."""

    header: str
    summary: str
    keys: list[_Key]
    shown: bool = False


def default_toml() -> str:
    """Return the text of `config/gateway.toml`."""
    parts = [_HEAD]
    for section in _sections(default_config(), ""):
        before = "# " if section.shown else ""
        lines = [*_comment(section.summary), *([before + section.header] if section.header else [])]
        for config_key in section.keys:
            lines += _comment(_meaning(config_key.hint))
            value = _example(config_key)
            if has(config_key.hint, "path") and not section.shown and config_key.value is not None:
                # The file is in config/, and its data directory beside that.
                value = str(Path("..", value))
            shown = f"{config_key.name} = {_toml(value)}"
            lines.append(before + (shown if config_key.value is not None else f"# {shown}"))
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def configuration_page() -> str:
    """Return the text of `docs/configuration.md`."""
    flags = ", ".join(f"`--{kind} HOST:PORT`" for kind in listener_kinds())
    parts = [_PAGE.replace("FLAGS", flags)]
    for section in _sections(default_config(), ""):
        rows = [
            f"| `{config_key.name}` | {_default(config_key)} | {_meaning(config_key.hint)} |"
            for config_key in section.keys
        ]
        table = ["| key | default | meaning |", "|---|---|---|", *rows]
        heading = f"`{section.header}`" if section.header else "Keys before all tables"
        parts.append("\n".join([f"## {heading}", "", section.summary, "", *(table if rows else [])]) + "\n")
    return "\n".join(parts)


def _sections(table: msgspec.Struct, path: str, header: str = "") -> Iterator[_Section]:
    """Yield the table's own keys, then its inner tables; a table without keys of its own is left out."""
    keys, inner = [], []
    hints = get_type_hints(type(table), include_extras=True)
    for name in _own_first(type(table)):
        hint, value = hints[name], getattr(table, name)
        below = f"{path}.{name}" if path else name
        if (tables := tables_in(hint)) is None:
            keys.append(_Key(name, value, hint))
        elif isinstance(value, msgspec.Struct):
            inner += list(_sections(value, below, f"[{below}]"))
        elif not value:
            inner += list(_examples(tables, below))
        else:
            one = f"[{below}]" if tables.one_or_more and len(value) == 1 else f"[[{below}]]"
            inner += [section for each in value for section in _sections(each, below, one)]
    if keys:
        yield _Section(header, _summary(type(table)), keys)
    yield from inner


def _examples(tables: Tables, path: str) -> Iterator[_Section]:
    """Yield examples of tables that do not exist by default."""
    for kind, struct in tables.kinds.items():
        yield from _example_of(struct, f"{path}.{kind}", f"[{path}.{kind}]", f"Kind of the back: {kind}.")
    if tables.struct is not None:
        yield from _example_of(tables.struct, path, f"[[{path}]]" if tables.many else f"[{path}]")


def _example_of(struct: type[msgspec.Struct], path: str, header: str, about_tag: str = "") -> Iterator[_Section]:
    configured = struct.__struct_config__
    keys, inner = [], []
    if configured.tag_field is not None:
        keys.append(_Key(configured.tag_field, configured.tag, Annotated[str, key(about_tag)], required=True))
    hints = get_type_hints(struct, include_extras=True)
    fields = {field.name: field for field in msgspec.structs.fields(struct)}
    for name in _own_first(struct):
        field, hint = fields[name], hints[name]
        value = field.default_factory() if callable(field.default_factory) else field.default
        below = f"{path}.{name}"
        if isinstance(value, msgspec.Struct):
            inner += list(_example_of(type(value), below, f"[{below}]"))
        elif (tables := tables_in(hint)) is not None:
            inner += list(_examples(tables, below))
        elif value is msgspec.NODEFAULT or has(hint, "usual"):  # show it as if it were given
            keys.append(_Key(name, _example(_Key(name, None, hint)), hint, required=value is msgspec.NODEFAULT))
        else:
            keys.append(_Key(name, value, hint))
    yield _Section(header, _summary(struct), keys, shown=True)
    yield from inner


def _own_first(struct: type[msgspec.Struct]) -> Iterator[str]:
    """Yield a table's keys: its own first, then those that it inherits."""
    yield from dict.fromkeys(name for base in struct.__mro__ for name in vars(base).get("__annotations__", ()))


def _summary(struct: type[msgspec.Struct]) -> str:
    return " ".join((struct.__doc__ or "").split())


def _meta(hint: Any) -> msgspec.Meta | None:
    if get_origin(hint) is not Annotated:
        return None
    return next((extra for extra in get_args(hint)[1:] if isinstance(extra, msgspec.Meta)), None)


def _meaning(hint: Any) -> str:
    """Return the key's explanation, with its bounds and choices."""
    meta = _meta(hint)
    if meta is None or meta.description is None:
        raise ValueError("every key needs an explanation")
    bounds = {(True, True): f" From {meta.ge} to {meta.le}.", (True, False): f" At least {meta.ge}."}
    values = choices(hint)
    one_of = f" One of {', '.join(map(_toml, values))}." if values else ""
    return meta.description + bounds.get((meta.ge is not None, meta.le is not None), "") + one_of


def _default(config_key: _Key) -> str:
    if config_key.required:
        return "must be given"
    return "none" if config_key.value is None else f"`{_toml(config_key.value)}`"


def _example(config_key: _Key) -> Any:
    if config_key.value is not None:
        return config_key.value
    meta = _meta(config_key.hint)
    if meta is None or not meta.examples:
        raise ValueError(f"key {config_key.name} has neither a default nor an example")
    return meta.examples[0]


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, width=116, initial_indent="# ", subsequent_indent="# ")


def write(root: Path) -> None:
    """Write the generated files below `root`, the repository."""
    (root / "config" / "gateway.toml").write_text(default_toml(), encoding="utf-8")
    (root / "docs" / "configuration.md").write_text(configuration_page(), encoding="utf-8")
    (root / "docs" / "limits.md").write_text(limits_page(), encoding="utf-8")


if __name__ == "__main__":
    write(Path.cwd())
