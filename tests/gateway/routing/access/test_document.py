"""Every command and configuration of docs/access.md works as it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pravega.clients import need_pravega
from support.walking import Walk, blocks_of

from penstock.app.config import parse_config

EXPECTED = {
    "issue admin": ["telemetry  basins penstock  streams telemetry/*  append  until "],
    "append orders nonsense": ['"seq_num":1', '"code":"permission_denied"', '"code":"authn"'],
    "/v1/access-tokens": ['{"access_token":"pst_'],
    "issue plant": ["access token plant is valid until it is revoked"],
    "revoke telemetry": ["access token telemetry is revoked"],
    "records/tail": ['"code":"authn"'],
}


def is_pravega(text: str) -> bool:
    return any(word in text for word in ("token password", "delegation_tokens", "pravega_client"))


@pytest.mark.peer
def test_the_tour(tmp_path: Path) -> None:
    expected = dict(EXPECTED)
    with Walk(tmp_path) as walk:
        for block in blocks_of("access.md"):
            if is_pravega(block.text):
                continue
            if block.language == "toml":
                if "[listeners.s2]" in block.text:
                    walk.write("access.toml", block.text)
                continue
            if block.text.startswith("penstock serve"):
                walk.serve(block.text)
                continue
            key = next((key for key in expected if key in block.text), None)
            assert key is not None, f"say in EXPECTED what this prints: {block.text}"
            printed = walk.run(block.text)
            for words in expected.pop(key):
                assert words in printed, printed
    assert not expected, "these blocks are not there any more"


@pytest.mark.peer
def test_pravega(tmp_path: Path) -> None:
    need_pravega()
    password, config, program = (block for block in blocks_of("access.md") if is_pravega(block.text))
    with Walk(tmp_path) as walk:
        walk.run(password.text)
        hashed = (tmp_path / "hash").read_text().strip()
        walk.write("guarded.toml", config.text.replace("HASH", hashed))
        walk.serve("penstock serve --config guarded.toml --data data --management off")
        walk.write("program.py", program.text)
        assert walk.run("python program.py") == "True True\non disk\n"


def test_the_policies() -> None:
    (text,) = (block.text for block in blocks_of("access.md") if "[[routes]]" in block.text)
    config = parse_config(f"[listeners.s3p]\nbind = '0.0.0.0:7500'\n{text}")
    assert [route.permissions for route in config.routes] == [("append",), ("read",)]
