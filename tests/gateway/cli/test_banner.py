"""The banner's commands work with any configuration, not only the shipped one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.peers import need
from support.process import GatewayProcess
from support.tls.certificates import needs_openssl, self_signed

LOG = '[store]\ndirectory = "{data}"\n[log]\nformat = "json"\n'
S2 = '[listeners.s2]\nbind = "127.0.0.1:{s2_port}"\n'
S3P = '[listeners.s3p]\nbind = "127.0.0.1:{s3p_port}"\n'
PRAVEGA = (
    '[listeners.segment]\nbind = "127.0.0.1:{segment_port}"\n'
    '[listeners.controller]\nbind = "127.0.0.1:{controller_port}"\n'
)
needs_kcat = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


def run(banner: str, **environment: str) -> list[str]:
    """Run the banner's commands and return the output of each; one that follows a stream is cut short."""
    for program in ("bash", "curl"):
        need(program)
    joined = re.sub(r"\\\n *", "", banner)
    commands = re.findall(
        r"^  ((?:curl|kcat|penstock|printf|python3|pravega_client_tls_cert_path).*)", joined, re.MULTILINE
    )
    if any("pravega_client" in text for text in commands):
        pytest.importorskip("pravega_client")
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    clean["PATH"] = f"{Path(sys.executable).parent}:{clean['PATH']}"
    printed = []
    for text in commands:
        text = text.replace(" -N ", " -N --max-time 1 ")
        done = subprocess.run(["bash", "-c", text], capture_output=True, env=clean | environment, timeout=30)
        assert done.returncode == 0 or "python3" not in text, done.stderr.decode()
        printed.append(done.stdout.decode())
    return printed


@pytest.mark.peer
@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        pytest.param(S2 + LOG, ["my-first-basin", '"seq_num":2', "second"], id="no basin yet"),
        pytest.param(
            S2 + LOG + "[[store.basins]]\nname = 'some-basin'\ncreate_stream_on_append = false",
            ["hello", '"seq_num":2', "second"],
            id="streams must be created",
        ),
        pytest.param(S3P + LOG + "[[store.basins]]\nname = 'penstock'", ["", "", "first\nsecond\n"], id="S3P alone"),
        pytest.param(
            S2 + S3P + "names = 'path'\n" + LOG + "[[store.basins]]\nname = 'some-basin'",
            ['"seq_num":2', "second", "first\nsecond\n"],
            id="S3P names with a basin",
        ),
        pytest.param(
            S2 + S3P + "basin = 'other-basin'\n" + LOG + "[[store.basins]]\nname = 'some-basin'",
            ["other-basin", '"seq_num":2', "second", "first\nsecond\n"],
            id="S3P in a basin that is not configured",
        ),
        pytest.param(PRAVEGA + LOG, [""], id="Pravega alone"),
        pytest.param(
            '[listeners.segment]\nbind = "127.0.0.1:{segment_port}"\n' + LOG,
            ["", "", "first\nsecond\n"],
            id="segments alone",
        ),
        pytest.param(
            '[listeners.kafka]\nbind = "127.0.0.1:{kafka_port}"\n' + LOG + "[[store.basins]]\nname = 'penstock'",
            ["", "first\nsecond\n"],
            id="Kafka alone",
            marks=needs_kcat,
        ),
        pytest.param(
            '[listeners.durable]\nbind = "127.0.0.1:{durable_port}"\n' + LOG + "[[store.basins]]\nname = 'penstock'",
            ["", "", "firstsecond"],
            id="Durable Streams alone",
        ),
        pytest.param(
            PRAVEGA + S2 + LOG + "[[store.basins]]\nname = 'some-basin'\ncreate_stream_on_append = false",
            ["hello", '"seq_num":2', "second", ""],
            id="Pravega in a basin of its own",
        ),
    ],
)
def test_the_commands_work(config: str, wanted: list[str]) -> None:
    with GatewayProcess(config) as gateway:
        printed = run(gateway.banner())
    assert len(printed) == len(wanted)
    for text, words in zip(printed, wanted, strict=True):
        assert words in text


@pytest.mark.peer
def test_the_commands_work_with_tls_and_tokens(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    try:
        subprocess.run([*command.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    tls = f"tls_certificate = '{certificate}'\ntls_key = '{key}'\nauth_tokens = ['secret']\n"
    with GatewayProcess(S2 + tls + LOG + "[[store.basins]]\nname = 'some-basin'") as gateway:
        assert "secret" not in gateway.banner()
        printed = run(gateway.banner(), TOKEN="secret")
        refused = run(gateway.banner(), TOKEN="wrong")
        http1 = run(gateway.banner().replace("curl ", "curl --http1.1 "), TOKEN="secret")
    assert '"seq_num":2' in printed[0] and "second" in printed[1]
    assert '"seq_num":4' in http1[0]
    assert all('"code":"authn"' in text for text in refused)


@pytest.mark.peer
@needs_openssl
def test_s3ps_command_works_with_tls(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    tls = f"tls_certificate = '{certificate}'\ntls_key = '{key}'\n"
    with GatewayProcess(S3P + tls + LOG + "[[store.basins]]\nname = 'penstock'") as gateway:
        assert run(gateway.banner()) == ["", "", "first\nsecond\n"]


@pytest.mark.peer
def test_pravegas_command_works_with_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
        "-addext basicConstraints=critical,CA:FALSE"
    )
    try:
        subprocess.run([*command.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    files = f"tls_certificate = '{certificate}'\ntls_key = '{key}'\n"
    config = PRAVEGA.replace("[listeners.controller]\n", files + "[listeners.controller]\n") + files
    with GatewayProcess(S2 + config + LOG) as gateway:
        create, append, _, pravega = run(gateway.banner())
        again = run(gateway.banner())[1]
    assert "my-first-basin" in create and '"seq_num":2' in append and pravega == ""
    assert '"start":{"seq_num":3' in again
