"""The configuration that is shipped, the page about it, and the structs say the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import get_type_hints

import msgspec
from msgspec.structs import replace

from penstock.app.config import ConfigError, default_config, load_config, parse_config
from penstock.app.config.document import configuration_page, default_toml
from penstock.app.config.schema import Config
from penstock.wire.toml.hints import tables_in

ROOT = Path(__file__).parents[4]
SHIPPED = ROOT / "config" / "gateway.toml"


def keys(struct: type[msgspec.Struct], path: str = "") -> set[str]:
    """Every key of every table, as a path."""
    found = set()
    for name, hint in get_type_hints(struct, include_extras=True).items():
        tables = tables_in(hint)
        if tables is None:
            found.add(path + name)
        elif tables.struct is not None:
            found |= keys(tables.struct, f"{path}{name}.")
        else:
            for kind, inner in tables.kinds.items():
                found |= keys(inner, f"{path}{name}.{kind}.") | {f"{path}{name}.{kind}.{tables.tag}"}
    return found


def shown(text: str) -> set[str]:
    """Every key in a TOML text, also those in comments."""
    found, table = set(), ""
    for line in text.splitlines():
        if header := re.fullmatch(r"(?:# )?\[+([a-z0-9_.-]+)\]+", line):
            table = header[1] + "."
        elif key := re.match(r"(?:# )*([a-z0-9_]+) = ", line):
            found.add(table + key[1])
    return found


def test_the_shipped_file_says_what_runs_without_a_file() -> None:
    expected = default_config()
    expected = replace(expected, store=replace(expected.store, directory=str(ROOT / "data")))
    assert load_config(SHIPPED) == expected


def test_the_shipped_file_shows_every_key() -> None:
    assert shown(SHIPPED.read_text()) == keys(Config)


def test_keys_in_comments_are_good_when_uncommented() -> None:
    text = uncommented(SHIPPED.read_text())
    assert tomllib.loads(text) != tomllib.loads(SHIPPED.read_text())
    config = parse_config(text)
    assert list(config.backs) == ["durable", "kafka", "s2", "s2-sse", "s3p", "segment"]
    assert config.routes and config.identities


def uncommented(text: str) -> str:
    """Keys and tables in comments are there; keys that stand in a comment in such a table are still in one."""
    return re.sub(r"^# (?=[a-z0-9_]+ = |# [a-z0-9_]+ = |\[+[a-z0-9_.-]+\]+$)", "", text, flags=re.MULTILINE)


def test_keys_in_comments_of_tables_in_comments_are_known_and_of_the_right_type() -> None:
    """They need not go together."""
    text = uncommented(SHIPPED.read_text())
    found = list(re.finditer(r"^# (?=[a-z0-9_]+ = )", text, re.MULTILINE))
    assert len(found) > 10
    for one in found:
        try:
            parse_config(text[: one.start()] + text[one.end() :])
        except ConfigError as error:
            assert not re.search("unknown key|no such key|expected", str(error)), error


def test_the_shipped_file_and_the_page_are_fresh() -> None:
    """If this fails, run `python -m penstock.app.config.document`."""
    assert SHIPPED.read_text() == default_toml()
    assert (ROOT / "docs" / "configuration.md").read_text() == configuration_page()
