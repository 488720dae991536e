"""The configuration that is shipped, the page about it, and the structs say the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import get_type_hints

import msgspec

from penstock.config import default_config, load_config, parse_config
from penstock.config.document import configuration_page, default_toml
from penstock.config.hints import struct_in
from penstock.config.schema import Config

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "config" / "gateway.toml"


def keys(struct: type[msgspec.Struct], path: str = "") -> set[str]:
    """Every key of every table, as a path."""
    found = set()
    for name, hint in get_type_hints(struct, include_extras=True).items():
        inner, _many = struct_in(hint)
        found |= keys(inner, f"{path}{name}.") if inner else {path + name}
    return found


def shown(text: str) -> set[str]:
    """Every key in a TOML text, also those in comments."""
    found, table = set(), ""
    for line in text.splitlines():
        if header := re.fullmatch(r"\[+([a-z0-9_.]+)\]+", line):
            table = header[1] + "."
        elif key := re.match(r"(?:# )?([a-z0-9_]+) = ", line):
            found.add(table + key[1])
    return found


def test_the_shipped_file_says_what_runs_without_a_file() -> None:
    assert load_config(SHIPPED) == default_config()


def test_the_shipped_file_shows_every_key() -> None:
    assert shown(SHIPPED.read_text()) == keys(Config)


def test_keys_in_comments_are_good_when_uncommented() -> None:
    text = re.sub(r"^# ([a-z0-9_]+ = )", r"\1", SHIPPED.read_text(), flags=re.MULTILINE)
    assert tomllib.loads(text) != tomllib.loads(SHIPPED.read_text())
    parse_config(text)


def test_the_shipped_file_and_the_page_are_fresh() -> None:
    """Where this fails: `python -m penstock.config.document`."""
    assert SHIPPED.read_text() == default_toml()
    assert (ROOT / "docs" / "configuration.md").read_text() == configuration_page()
