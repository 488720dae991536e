"""Every command and configuration of docs/faults.md works as it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.walking import Walk, blocks_of

from penstock.app.config import parse_config

EXPECTED = {
    "penstock check": ["Injected faults", "busy: fails with rate_limited", "broken-off: the connection is cut"],
    "for number in 1 2 3 4": ['"seq_num":1', '"code":"rate_limited"', '"seq_num":3'],
    "seq_num=0": ['{"records" curl: 18', '"body":"4"'],
    "/metrics": ['rule="busy"', 'rule="broken-off"'],
}


@pytest.mark.peer
def test_the_tour(tmp_path: Path) -> None:
    expected = dict(EXPECTED)
    with Walk(tmp_path) as walk:
        for block in blocks_of("faults.md"):
            if block.language == "toml":
                if "[listeners" in block.text:
                    walk.write("faults.toml", block.text + '\n[management]\nbind = "127.0.0.1:9600"\n')
                continue
            if block.text.startswith("penstock serve"):
                walk.serve(block.text)
                continue
            key = next((key for key in expected if key in block.text), None)
            assert key is not None, f"say in EXPECTED what this prints: {block.text}"
            printed = walk.run(block.text)
            for words in expected.pop(key):
                assert words in printed.replace("\n", ""), printed
    assert not expected, "these blocks are not there any more"


@pytest.mark.parametrize("text", [block.text for block in blocks_of("faults.md") if block.language == "toml"])
def test_the_recipes(text: str) -> None:
    config = parse_config(text if "[listeners" in text else f"[listeners.s2]\n{text}")
    assert config.faults
