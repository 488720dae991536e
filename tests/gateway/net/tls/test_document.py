"""Every command and configuration of docs/tls.md works as it says."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from support.walking import Walk, blocks_of

from penstock.app.config import parse_config

EXPECTED = {
    "gateway.ext": [],
    "touch index.txt": [],
    "penstock check": [
        "S3P 0.2.0 by TLS on 127.0.0.1:", "for clients with a certificate of authority.pem", "gateway.pem (until",
    ],
    "--cert ingest.pem": ['"end":{"seq_num":1'],
    "penstock read": ["first"],
    "second": ["read-only"],
    "echo refused": ["certificate required", "refused"],
    "revoked.new": ['"streams":[{"name":"orders"'],
    "s2_sdk": ["seq_num=1"],
    "StreamManager": ["written"],
}  # fmt: skip
BLOCKS = blocks_of("tls.md")


@pytest.mark.peer
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_the_tour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = dict(EXPECTED)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    monkeypatch.setenv("pravega_client_tls_cert_path", str(tmp_path / "authority.pem"))
    with Walk(tmp_path) as walk:
        for block in BLOCKS:
            if block.language == "toml":
                if "12345" in block.text:
                    walk.write("tls.toml", block.text + "\n[management]\nenabled = false\n")
                continue
            if block.text.startswith("penstock serve"):
                walk.serve(block.text)
                continue
            key = next((key for key in expected if key in block.text), None)
            assert key is not None, f"say in EXPECTED what this prints: {block.text}"
            printed = run(walk, block.language, block.text)
            for words in expected.pop(key):
                assert words in " ".join(printed.split()), printed
    assert not expected, "these blocks are not there any more"


def run(walk: Walk, language: str, text: str) -> str:
    if language == "sh":
        return walk.run(text)
    pytest.importorskip("pravega_client" if "pravega" in text else "s2_sdk")
    walk.write("program.py", text)
    return walk.run(f"{sys.executable} program.py")


@pytest.mark.parametrize("text", [block.text for block in BLOCKS if block.language == "toml"])
def test_every_configuration_can_be_read(text: str) -> None:
    assert parse_config(text)
