"""docs/mcp.md: each command and its Python client are run, with the page's configuration."""

from __future__ import annotations

import sys
from pathlib import Path

import mcp
from support.walking import Walk, blocks_of

assert mcp, "the page's client"

EXPECTED = {
    "penstock append": "",
    "import asyncio": "penstock/orders first order",
    "mcp-name: positions": '"seq_num":0',
}


def test_it_works(tmp_path: Path) -> None:
    expected = dict(EXPECTED)
    with Walk(tmp_path) as walk:
        for block in blocks_of("mcp.md"):
            if block.language == "toml":
                walk.write("agents.toml", block.text)
                continue
            if block.text.startswith("penstock serve"):
                walk.serve(block.text)
                continue
            key = next(key for key in expected if key in block.text)
            if block.language == "python":
                walk.write("agent.py", block.text)
                printed = walk.run(f"{sys.executable} agent.py")
            else:
                printed = walk.run(block.text)
            assert expected.pop(key) in printed, f"{block.text}\nprinted: {printed}"
    assert not expected, "these blocks are not there any more"
