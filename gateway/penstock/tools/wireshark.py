"""Generates the table of fields in `config/wireshark/penstock.lua` from what the plug-ins say of their protocols.

`python -m penstock.tools.wireshark` writes it; a test fails if it differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Final

from penstock.capture.wireshark.comments import wireshark_protocols
from penstock.capture.wireshark.fields import FieldKind, WiresharkProtocol

__all__ = ["DISSECTOR", "with_table"]

DISSECTOR: Final = Path("config/wireshark/penstock.lua")
_TABLE: Final = re.compile(r"(?<=^local PROTOCOLS = \{\n).*?(?=^\}\n)", re.MULTILINE | re.DOTALL)


def with_table(dissector: str) -> str:
    """Return the text of the dissector with the table that it must have."""
    lines = [line for name, protocol in wireshark_protocols().items() for line in _protocol(name, protocol)]
    table = "".join(f"    {line}\n" for line in lines)
    return _TABLE.sub(lambda _: table, dissector, count=1)


def _protocol(name: str, protocol: WiresharkProtocol) -> Iterator[str]:
    yield f'{name} = {{ title = "{protocol.title}", column = "{protocol.column}",'
    for kind in FieldKind:
        names = sorted(path for path, each in protocol.kinds.items() if each is kind)
        if names:
            line = f"{kind.value} = [[{' '.join(names)}]],"
            yield from wrap(line, 116, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False)
    yield "},"


if __name__ == "__main__":
    DISSECTOR.write_text(with_table(DISSECTOR.read_text()))
