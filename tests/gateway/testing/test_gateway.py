"""`penstock.testing.Gateway` and `MockServers`, without pytest's fixtures."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from penstock.testing import Gateway, GatewayError, MockServers, RequestsMissed


def append_and_read(url: str, body: str) -> list[str]:
    headers = {"s2-basin": "penstock", "content-type": "application/json"}
    data = json.dumps({"records": [{"body": body}]}).encode()
    urllib.request.urlopen(
        urllib.request.Request(f"{url}/v1/streams/orders/records", data, headers), timeout=60
    ).close()
    request = urllib.request.Request(f"{url}/v1/streams/orders/records?seq_num=0", headers={"s2-basin": "penstock"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return [record["body"] for record in json.load(answer)["records"]]


def test_a_gateway_serves_all_protocols_on_free_ports() -> None:
    with Gateway() as gateway, Gateway() as other:
        directory = gateway.directory
        assert append_and_read(gateway.url("s2"), "mine") == ["mine"]
        assert append_and_read(other.url("s2"), "other") == ["other"], "each has a store of its own"
        variables = gateway.environment
        assert variables["S2_BASIN_ENDPOINT"] == gateway.url("s2") == f"http://{gateway.address('s2')}"
        assert variables["DURABLE_STREAMS_URL"] == f"http://{gateway.address('durable')}/v1/stream"
        assert (
            variables["PRAVEGA_CONTROLLER_URI"] == gateway.url("controller") == f"tcp://{gateway.address('controller')}"
        )
        assert variables["S3P_URL"] == gateway.url("s3p")
        with urllib.request.urlopen(f"{gateway.url('management')}/ready", timeout=60) as answer:
            assert answer.status == 200
    assert not directory.exists()
    gateway.stop()  # does nothing


def test_a_configuration_of_its_own_and_a_restart(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text('[[listeners.s2]]\nbind = "127.0.0.1:1"\n\n[[store.basins]]\nname = "penstock"\n')
    for bodies in (["first"], ["first", "second"]):
        with Gateway(config, directory=tmp_path / "home") as gateway:
            assert set(gateway.environment) >= {"S2_BASIN_ENDPOINT"} and "S3P_URL" not in gateway.environment
            assert append_and_read(gateway.url("s2"), bodies[-1]) == bodies, "records outlive a restart"
    assert '"listening"' in gateway.log


def test_a_gateway_that_cannot_start_says_why(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text('[listeners.s2]\ntls_certificate = "missing.pem"\ntls_key = "missing.pem"\n')
    with pytest.raises(GatewayError, match=r"exit code 2(.|\n)*missing\.pem"):
        Gateway(config).start()
    config.write_text('[listeners.s2]\n\n[log]\nformat = "console"\n')
    with pytest.raises(GatewayError, match="hides the ports"):
        Gateway(config).start()


def test_a_gateway_that_ended_by_itself_is_an_error(tmp_path: Path) -> None:
    gateway = Gateway(directory=tmp_path).start()
    (pid,) = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["kill", "-9", pid], check=True)
    with pytest.raises(GatewayError, match="ended with exit code -9"):
        gateway.stop()


def test_mock_servers_record_and_answer(tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    with Gateway() as gateway:
        server = f"s2://{gateway.address('s2')}"
        with MockServers(recording, on_miss="record", to=[server], test="first") as servers:
            assert append_and_read(servers.environment["S2_BASIN_ENDPOINT"], "a") == ["a"]
            with servers.test("second"):
                assert append_and_read(servers.environment["S2_BASIN_ENDPOINT"], "b") == ["a", "b"]
        assert servers.report["passed_count"] == 4 and len(servers.report["recorded_into"]) == 2
    with MockServers(recording) as servers, servers.test("second"):
        assert append_and_read(f"http://{servers.address('s2')}", "b") == ["a", "b"]
    assert servers.report["answered"] == 2 and servers.report["never_asked"] == []
    with MockServers(recording, forks=["orders@1"]) as servers:
        assert append_and_read(f"http://{servers.address('s2')}", "mine") == ["a", "mine"]


def test_a_miss_fails_the_block_unless_that_fails_itself(tmp_path: Path) -> None:
    def ask(fails: Exception | None) -> None:
        with MockServers(tmp_path, on_miss="record", to=["s2://127.0.0.1:1"], test="t") as servers:
            with pytest.raises(urllib.error.HTTPError):
                append_and_read(servers.environment["S2_BASIN_ENDPOINT"], "a")
            if fails is not None:
                raise fails

    with pytest.raises(RequestsMissed, match="not recorded: POST /v1/streams/orders/records: back origin at"):
        ask(None)
    with pytest.raises(KeyError, match="own"):
        ask(KeyError("own"))


def test_mock_servers_that_cannot_start_say_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="there is no such file or directory"):
        MockServers(tmp_path / "nothing").__enter__()


def test_the_module_is_light() -> None:
    """pytest imports it in every project where Penstock is installed."""
    program = (
        "import sys, penstock.testing; print([name for name in sys.modules if name in ('trio', 'click', 'msgspec')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
