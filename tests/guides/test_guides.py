"""The guides for the three uses: every command of each is run, in order, and prints what the guide says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from support.walking import Walk, blocks_of

from penstock.config import parse_config


class Guide(NamedTuple):
    """`prints`: for each block, by a piece that no other has, what it prints. `file`: what its configuration is called.
    `ends`: a block before which the gateway that was started last is stopped."""

    prints: dict[str, list[str]]
    file: str = ""
    ends: str = ""


GUIDES = {
    "sidecar.md": Guide(
        {
            "penstock doctor": ["sidecar.toml is valid", "listeners.s2: 127.0.0.1:", "backs.upstream: ", "accepts"],
            "penstock check": ["upstream: S2 at 127.0.0.1:", "all streams of any basin: to back upstream"],
            '"first"': ['"start":{"seq_num":0', '"body":"first"', '"body":"second"'],
            "/live": ['"live": true', '"ready": true', "penstock_connections_accepted_total{", "listeners.s2"],
            "penstock reload": ['"name": "all-of-it"'],
            "penstock drain": [],
        },
        file="sidecar.toml",
    ),
    "bridge.md": Guide(
        {
            "penstock check": ["S3P 0.2.0 on 127.0.0.1:", "lite: S2 at 127.0.0.1:", "guarantee: exactly once"],
            "APPEND": ["+OK", "-1\r\n"],
            "seq_num=0": ['"body":"first"', '"body":"second"', '"start":{"seq_num":2'],
            "READ": ["first", "second", "third"],
            "/positions": ['"seq_num": 2', '"record_id"'],
        }
    ),
    "recorder.md": Guide(
        {
            "penstock check": ["is valid", "connections used by route orders", "Blanked in it"],
            '"card 4111': ['"start":{"seq_num":0', '"body":"first"'],
            ":9600/recordings": ['"state": "recording"'],
            "penstock show": ["AppendInput", "PROTOCOL"],
            "penstock records": ['"body":"first"', '"body":"card ***'],
            "penstock replay": ["2 records appended", "0 answers different"],
            "penstock diff": ["2 appended in A, 2 delivered in B: equal"],
        },
        ends="--data candidate",
    ),
}


@pytest.mark.peer
@pytest.mark.parametrize("name", GUIDES)
def test_it_works(name: str, tmp_path: Path) -> None:
    guide = GUIDES[name]
    expected = dict(guide.prints)
    with Walk(tmp_path) as walk:
        for block in blocks_of(name):
            if block.language == "toml":
                walk.write(guide.file, block.text)
                continue
            if "nc -w" in block.text and shutil.which("nc") is None:
                pytest.skip("nc is not installed")
            if guide.ends and guide.ends in block.text:
                walk.stop()
            if block.text.startswith("penstock serve"):
                walk.serve(block.text)
                continue
            key = next((key for key in expected if key in block.text), None)
            assert key is not None, f"say in GUIDES what this prints: {block.text}"
            printed = walk.run(block.text)
            for words in expected.pop(key):
                assert words in printed, f"{block.text}\nprinted: {printed}"
    assert not expected, "these blocks are not there any more"


@pytest.mark.parametrize("name", GUIDES)
def test_its_configurations_are_valid_and_its_links_lead_somewhere(name: str) -> None:
    docs = Path(__file__).parents[2] / "docs"
    for block in blocks_of(name):
        if block.language == "toml":
            parse_config(block.text)
    targets = [part.partition(")")[0] for part in (docs / name).read_text().split("](")[1:]]
    assert targets
    for target in targets:
        assert (docs / target).exists(), target
