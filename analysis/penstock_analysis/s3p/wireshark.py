"""The tables of the S3P dissector of Wireshark."""

from __future__ import annotations

from collections.abc import Iterator

from penstock_analysis.wireshark import lua_block, lua_file
from penstock_codecs.s3p.commands import SCHEMAS
from penstock_codecs.s3p.events import FATAL_CODES

__all__ = ["lua_tables"]


def lua_tables() -> str:
    """Return the file."""
    fatal = (f"{code} = true," for code in sorted(FATAL_CODES))
    return lua_file(
        "Commands of S3P 0.2.0, and fatal errors.", [*lua_block("commands", _commands()), *lua_block("fatal", fatal)]
    )


def _commands() -> Iterator[str]:
    for word, schema in SCHEMAS.items():
        options = ", ".join(f"{option.decode()} = true" for option in schema.options)
        shown = f"{{ {options} }}" if options else "{}"
        records = ", records = true" if schema.elements == 4 else ""
        yield f"{word.decode()} = {{ elements = {schema.elements}, options = {shown}{records} }},"
