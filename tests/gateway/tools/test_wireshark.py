"""The tables of the Wireshark dissectors are those of the codecs."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.tools.wireshark import FOLDER, tables
from penstock_analysis.segment.wireshark import field_kinds
from penstock_codecs.segment import TYPE_TABLE

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", tables())
def test_the_committed_tables_are_those_of_the_codecs(name: str) -> None:
    """`python -m penstock.tools.wireshark` writes them anew."""
    assert (ROOT / FOLDER / name).read_text() == tables()[name]


def test_every_message_is_there() -> None:
    text = tables()["segment_tables.lua"]
    for messages in TYPE_TABLE.values():
        for type_id, cls in messages.items():
            assert f'[{type_id}] = {{ name = "{cls.__name__}"' in text


def test_names_that_messages_share_have_one_kind() -> None:
    """Numbers are as wide as the widest: Padding's length is a count, TableSegmentInfo's has eight bytes."""
    kinds = field_kinds()
    assert kinds["length"] == "i64" and kinds["segment"] == "name" and kinds["entries.key.version"] == "i64"
