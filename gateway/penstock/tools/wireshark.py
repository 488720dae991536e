"""Generates the tables of the Wireshark dissectors from those of the codecs: `config/wireshark/penstock/*_tables.lua`.

`python -m penstock.tools.wireshark` writes them; tests fail if they differ from the codecs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock_analysis.plugin import plugins

__all__ = ["FOLDER", "tables"]

FOLDER: Final = Path("config/wireshark/penstock")


def tables() -> dict[str, str]:
    """Return the text of each file by its name in `FOLDER`."""
    found = {name: plugin.lua_tables for name, plugin in plugins().items() if plugin.lua_tables is not None}
    return {f"{name}_tables.lua": lua_tables() for name, lua_tables in found.items()}


if __name__ == "__main__":
    for name, text in tables().items():
        (FOLDER / name).write_text(text)
