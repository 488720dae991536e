"""The examples in docs/routes.md are valid configuration, and its tables are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.app.config import parse_config
from penstock.core.matching import Match, StreamPattern
from penstock.model.records import StreamRef
from penstock.routing.rewriting import Rewriting

PAGE = (Path(__file__).parents[4] / "docs" / "routes.md").read_text()
SNIPPETS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
LISTENERS = "[listeners.s3p]\n"


def rows(header: str) -> list[list[str]]:
    """The cells of the table with this header."""
    lines = PAGE[PAGE.index(header) :].split("\n\n")[0].splitlines()[2:]
    return [
        [cell.strip().strip("`").replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines
    ]


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) >= 8


@pytest.mark.parametrize("text", SNIPPETS, ids=range(len(SNIPPETS)))
def test_snippets(text: str) -> None:
    listener = "" if "[listeners.s2]" in text else "[listeners.s2]\n"
    parse_config(LISTENERS + listener + text)


ROWS = rows("| `match` | `basin` | `stream` | `to_basin`")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[5])
def test_names(row: list[str]) -> None:
    match, basin, stream, to_basin, to_stream, asked, there = row
    pattern = StreamPattern.compile(Match(match), basin or None, stream or None)
    rewriting = Rewriting.compile(pattern, to_basin or None, to_stream or None)
    name = StreamRef(*asked.split("/", 1))
    captures = pattern.match(name)
    assert captures is not None
    assert str(rewriting.forward(name, captures)) == there


def test_the_table_of_names_was_found() -> None:
    assert len(ROWS) == 7


@pytest.mark.parametrize("row", rows("| kind | numbers of records |"), ids=lambda row: row[0])
def test_deliveries(row: list[str]) -> None:
    kind, said = row[0], row[4]
    for word in re.findall(r"[a-z]+-[a-z-]+|refuse\b", said) if kind != "s2-sse" else []:
        text = f"[listeners.s2]\n[backs.x]\nkind = '{kind}'\naddress = 'a:1'\n"
        back = parse_config(text + f"delivery = '{word}'").backs["x"]
        assert getattr(back, "delivery", None) == word
        is_default = getattr(parse_config(text).backs["x"], "delivery", None) == word
        assert is_default == (f"{word}` (default)" in said or f"{word} (default)" in said)
