"""A running gateway as an interface of tshark: what tshark lists, refuses and stops."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.captures.traffic import until
from support.captures.tshark import SECONDS, as_user, need_tshark
from support.management import ask
from support.process import CONFIG, MANAGEMENT, GatewayProcess
from support.s3p.client import S3PClient

from penstock.tools.extcap import launcher

CLOSED_PORT = "127.0.0.1:1"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    need_tshark()
    launcher(tmp_path / "extcap", sys.executable)
    return {**os.environ, "HOME": str(tmp_path), "WIRESHARK_EXTCAP_DIR": str(tmp_path / "extcap")}


def tshark(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = as_user("tshark", *arguments)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_it_is_listed(environment: dict[str, str]) -> None:
    assert "penstock (Penstock gateway)" in tshark(environment, "-D").stdout
    assert "RAW (Raw IP)" in tshark(environment, "-L", "-i", "penstock").stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("-o", f"extcap.penstock.management:{CLOSED_PORT}"), f"no answer from {CLOSED_PORT}: Connection refused"),
        (("-f", "tcp port 80"), "'tcp': expected NAME=VALUE"),
    ],
)
def test_the_reason_of_a_failure_is_shown(arguments: tuple[str, ...], why: str, environment: dict[str, str]) -> None:
    done = tshark(environment, "-i", "penstock", *arguments)
    assert done.returncode == 1 and why in done.stderr


def preference(gateway: GatewayProcess) -> tuple[str, str]:
    """Return the option with the gateway's address."""
    return "-o", f"extcap.penstock.management:127.0.0.1:{gateway.management_port}"


def test_a_token_is_needed_and_sent(environment: dict[str, str]) -> None:
    with GatewayProcess(CONFIG + MANAGEMENT + 'auth_tokens = ["secret"]\n') as gateway:
        done = tshark(environment, "-i", "penstock", *preference(gateway))
        assert done.returncode == 1 and "a valid bearer token is required" in done.stderr
        command = as_user("tshark", "-i", "penstock", *preference(gateway), "-c", "1")
        environment["PENSTOCK_MANAGEMENT_TOKEN"] = "secret"
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None:  # connections are shown from when tshark listens
                S3PClient(("127.0.0.1", gateway.s3p_port)).close()
                time.sleep(0.1)
            assert process.stdout is not None and b"TCP" in process.stdout.read()


def test_it_ends_with_the_gateway(environment: dict[str, str], fresh_gateway: GatewayProcess) -> None:
    command = as_user("tshark", "-i", "penstock", *preference(fresh_gateway))
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        try:
            until(lambda: ask(fresh_gateway.management_port, "/recordings")[1]["recordings"], SECONDS)
            assert fresh_gateway.terminate() == 0
            _, said = process.communicate(timeout=SECONDS)
            assert process.returncode == 0 and b"Error" not in said, said
        finally:
            process.kill()
