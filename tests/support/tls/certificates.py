"""Certificates for tests, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

OPENSSL = shutil.which("openssl")
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed: no certificate can be made")


def self_signed(folder: Path, name: str = "IP:127.0.0.1") -> tuple[str, str]:
    """Return the files of a self-signed certificate and of its key; `name` as openssl's subjectAltName."""
    certificate, key = str(folder / "c.pem"), str(folder / "k.pem")
    assert OPENSSL is not None
    subprocess.run(
        [OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=localhost", "-addext", f"subjectAltName={name}", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return certificate, key
