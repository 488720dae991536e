"""Every command of docs/operations.md works as it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.walking import Walk, blocks_of

EXPECTED = {
    "penstock store check": ["checked ", " payloads of "],
    "grace_seconds = 5": ["changed: drain.grace_seconds", '"start":{"seq_num":0'],
    "orders-again": ["first"],
    "elsewhere": ["store.directory: cannot change while the gateway runs", "nothing has changed"],
    "penstock drain": ["draining"],
}


@pytest.mark.peer
def test_the_commands(tmp_path: Path) -> None:
    later = []
    expected = dict(EXPECTED)
    with Walk(tmp_path) as walk:
        for block in blocks_of("operations.md"):
            if block.language == "toml":
                walk.write("gateway.toml", block.text + '\n[management]\nbind = "127.0.0.1:9600"\n')
            elif block.text.startswith("penstock serve"):
                walk.serve(block.text)
            elif block.text.startswith("penstock drain"):
                later.append(block)
            else:
                check(walk, block.text, expected)
        for block in later:  # it ends what the others ask
            check(walk, block.text, expected)
        walk.ended()
    assert not expected, "these blocks are not there any more"


def check(walk: Walk, text: str, expected: dict[str, list[str]]) -> None:
    key = next(key for key in expected if key in text)
    text = f"export PENSTOCK_SERVER=s2://127.0.0.1:8080\n{text}"
    printed = walk.run(text.replace("penstock reload", "penstock reload --management 127.0.0.1:9600")
                       .replace("penstock drain", "penstock drain --management 127.0.0.1:9600"))  # fmt: skip
    for words in expected.pop(key):
        assert words in printed, printed
