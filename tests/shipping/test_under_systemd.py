"""The units under systemd itself: installed as they say, started, reloaded, restarted under load, killed, stuck and
stopped.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator

import pytest
from support.captures.traffic import until
from support.shipping import ROOT
from support.systemd import Machine, machine

pytestmark = pytest.mark.timeout(300)

SERVICE = "penstock.service"
CONFIG = "/etc/penstock/gateway.toml"
LOOP = """
for number in $(seq 100); do
  curl --silent --fail-with-body --max-time 60 --header 's2-basin: penstock' \
    --json "{\\"records\\": [{\\"body\\": \\"$number\\"}]}" http://127.0.0.1:8080/v1/streams/restarted/records
  sleep 0.05
done
"""
"""A client that appends, and ends with an error if one append fails."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine on which the commands in the head of the service were run."""
    text = (ROOT / "config" / "systemd" / SERVICE).read_text()
    commands = [shlex.split(line) for line in re.findall(r"^#     (.+)$", text, re.MULTILINE)]
    assert [command[0] for command in commands] == ["useradd", "install", "install", "systemctl"]
    with machine(tmp_path_factory.mktemp("machine")) as found:
        for command in commands:
            if command[0] == "systemctl":
                found.run("systemctl", "daemon-reload")
            found.run("env", "--chdir=/opt/source", *command)
        yield found


def append(on: Machine, *bodies: str) -> None:
    on.run("penstock", "append", "greetings", input="".join(f"{body}\n" for body in bodies))


def bodies(on: Machine) -> list[str]:
    return on.run("penstock", "read", "greetings").splitlines()


def journal(on: Machine) -> str:
    return on.run("journalctl", "--unit", SERVICE, "--output=cat", "--no-pager")


def pid(on: Machine) -> str:
    return on.show(SERVICE, "MainPID")


def test_it_is_ready_once_started(installed: Machine) -> None:
    """Under its own user, with no privileges, in a file system that is read-only but for its store."""
    assert installed.show(SERVICE, "ActiveState") == "active"
    status = installed.run("cat", f"/proc/{pid(installed)}/status")
    assert re.search(r"^NoNewPrivs:\s1$", status, re.MULTILINE)
    assert re.search(r"^CapBnd:\s0+$", status, re.MULTILINE)
    assert installed.run("stat", "--format=%U", f"/proc/{pid(installed)}").strip() == "penstock"
    append(installed, "hello")
    assert bodies(installed) == ["hello"]
    assert installed.run("stat", "--format=%U %a", "/var/lib/penstock").strip() == "penstock 750"


def test_it_takes_a_new_configuration(installed: Machine) -> None:
    installed.run("sed", "--in-place", 's|^level = "info"|level = "debug"|', CONFIG)
    installed.run("systemctl", "reload", SERVICE)
    until(lambda: '"event":"reloaded"' in journal(installed))
    assert installed.run("penstock", "log-level").strip() == "debug"


def test_clients_wait_while_it_restarts(installed: Machine) -> None:
    """systemd holds the ports, so that none is refused."""
    before = pid(installed)
    installed.run("penstock", "create", "restarted")
    with installed.start("bash", "-ec", LOOP) as client:
        for _ in range(2):
            time.sleep(1)
            installed.run("systemctl", "restart", SERVICE)
        output, _ = client.communicate()
    assert client.returncode == 0, output.decode()[-400:]
    assert pid(installed) != before
    assert installed.run("penstock", "read", "restarted").split() == [str(number) for number in range(1, 101)]


def test_it_is_started_again_after_a_kill(installed: Machine) -> None:
    before = pid(installed)
    append(installed, "before the kill")
    installed.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", SERVICE)
    until(lambda: pid(installed) not in (before, "0"))
    append(installed, "after the kill")
    assert bodies(installed) == ["hello", "before the kill", "after the kill"]


def test_it_is_started_again_when_stuck(installed: Machine) -> None:
    """The watchdog finds a process that does nothing."""
    installed.run("mkdir", "-p", f"/run/systemd/system/{SERVICE}.d")
    installed.run("tee", f"/run/systemd/system/{SERVICE}.d/soon.conf", input="[Service]\nWatchdogSec=5\n")
    installed.run("systemctl", "daemon-reload")
    installed.run("systemctl", "restart", SERVICE)
    before = pid(installed)
    installed.run("kill", "-STOP", before)
    until(lambda: pid(installed) not in (before, "0"), 60)
    assert "watchdog" in installed.run("journalctl", "--unit", SERVICE, "--no-pager").lower()
    append(installed, "after the watchdog")


def test_a_stop_drains(installed: Machine) -> None:
    installed.run("systemctl", "stop", "penstock.socket", SERVICE)
    assert installed.show(SERVICE, "Result") == "success"
    assert '"event":"stopped"' in journal(installed).splitlines()[-3:][0]


def test_a_configuration_that_cannot_be_used_is_not_tried_again(installed: Machine) -> None:
    installed.run("tee", CONFIG, input="[store]\ndirectory = 7\n")
    installed.run("systemctl", "start", SERVICE, status=1)
    assert installed.show(SERVICE, "ActiveState") == "failed"
    assert installed.show(SERVICE, "NRestarts") == "0"
    assert installed.show(SERVICE, "ExecMainStatus") == "2"
    assert "store.directory" in journal(installed)
