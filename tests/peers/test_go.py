"""The official Go client, unmodified: scenarios of ours, and the tests that its authors ship with it.

Those were written against the S2 service itself, so they are an independent statement of what S2 does.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from support.go import go_tests
from support.peers import run_client
from support.process import GatewayProcess, running_gateway

GO = Path(__file__).parent / "go"
SDK = "github.com/s2-streamstore/s2-sdk-go/s2"

SCENARIOS = re.findall(r"^func (Test\w+)\(", (GO / "sdk_test.go").read_text(), re.MULTILINE)

# One test expects a wrong token to be refused; another always says "ignored".
GUARDED = """\
[listeners.s2]
bind = "127.0.0.1:{s2_port}"
auth_tokens = ["a-token", "ignored"]

[store]
directory = "{data}"

[access]
"""


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("go")


def environment(gateway: GatewayProcess, basin: str) -> dict[str, str]:
    return {
        "S2_ACCESS_TOKEN": "a-token",
        "S2_ACCOUNT_ENDPOINT": gateway.s2_url,
        "S2_BASIN_ENDPOINT": gateway.s2_url,
        "S2_LITE_ENDPOINT": gateway.s2_url,
        "PENSTOCK_BASIN": basin,
    }


@pytest.mark.timeout(180)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(gateway: GatewayProcess, basin: str, directory: Path, scenario: str) -> None:
    test_program = go_tests(GO, ".", directory)
    run_client(
        [str(test_program), f"-test.run=^{scenario}$", "-test.timeout=60s"],
        cwd=GO,
        seconds=70,
        environment=environment(gateway, basin),
    )


@pytest.mark.timeout(400)
def test_the_clients_own_tests(directory: Path) -> None:
    test_program = go_tests(GO, SDK, directory)
    with running_gateway(GUARDED) as gateway:
        result = subprocess.run(
            [str(test_program), "-test.v", "-test.timeout=240s"],
            cwd=directory,
            env={**os.environ, **environment(gateway, "")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
    outcomes = re.findall(r"^--- (PASS|FAIL|SKIP): (\w+)", result.stdout, re.MULTILINE)
    others = sorted(f"{name}: {outcome}" for outcome, name in outcomes if outcome != "PASS")
    assert not others, f"{others}\n{result.stdout[-20000:]}{result.stderr[-2000:]}"
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr
    assert len(outcomes) >= 340, outcomes
