"""The table of fields in the Wireshark dissector is that of the codecs."""

from __future__ import annotations

from pathlib import Path

from penstock.tools.wireshark import DISSECTOR, with_table

ROOT = Path(__file__).parents[3]


def test_the_committed_table_is_that_of_the_codecs() -> None:
    """`python -m penstock.tools.wireshark` writes it anew."""
    text = (ROOT / DISSECTOR).read_text()
    assert with_table(text) == text


def test_an_empty_table_is_filled() -> None:
    text = with_table("before\nlocal PROTOCOLS = {\n}\nlocal OTHER = {\n}\n")
    assert text.startswith("before\nlocal PROTOCOLS = {\n") and text.endswith("}\nlocal OTHER = {\n}\n")
    assert 's3p = { title = "S3P", column = "S3P",' in text and "entries.key.version" in text
