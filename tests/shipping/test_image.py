"""The image, built by buildah without a daemon or a registry, and a gateway that runs in it.

The base that the Dockerfile names comes from a registry. Here it is made from Debian's packages instead.
"""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.peers import need
from support.ports import free_ports
from support.shipping import ROOT

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="run as root: packages are unpacked as root, and buildah mounts"),
]
BASE = "localhost/penstock-base"


class Buildah:
    """buildah with a storage of its own."""

    def __init__(self, place: Path) -> None:
        storage = ("--root", place / "root", "--runroot", place / "run", "--storage-driver", "vfs")
        self.command = [need("buildah"), *map(str, storage)]

    def __call__(self, *words: object, seconds: float = 900) -> str:
        command = [*self.command, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=seconds, check=False)
        if "No matching distribution found" in done.stderr or "Temporary failure in name" in done.stderr:
            pytest.skip("pip finds no packages in the build: it has neither a network nor PIP_FIND_LINKS")
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout.strip()


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Buildah:
    """buildah that has a base with Python 3.11."""
    place = tmp_path_factory.mktemp("buildah")
    found, base = Buildah(place), place / "base"
    packages = "--include=python3.11-venv,python3-pip,ca-certificates"
    command = [need("debootstrap"), "--variant=minbase", packages, "bookworm", base]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        pytest.skip(f"debootstrap found no packages of Debian: {done.stdout[-300:]}")
    (base / "usr" / "bin" / "python").symlink_to("python3")
    container = found("from", "scratch")
    found("add", "--quiet", container, base, "/")
    found("commit", "--quiet", "--rm", container, BASE)
    return found


@pytest.fixture(scope="module")
def container(buildah: Buildah) -> Iterator[str]:
    """A container of the image."""
    certificates = "/etc/ssl/certs:/etc/ssl/certs:ro"  # pip trusts the authorities that this machine trusts
    options = ["--isolation", "chroot", "--build-arg", f"BASE={BASE}", "--volume", certificates]
    if wheels := os.environ.get("PIP_FIND_LINKS"):
        options += ["--env", f"PIP_FIND_LINKS={wheels}", "--volume", f"{wheels}:{wheels}:ro"]
    buildah("build", *options, "--tag", "localhost/penstock", ".")
    name = buildah("from", "localhost/penstock")
    yield name
    buildah("rm", name)


def test_the_image_runs_what_it_says(buildah: Buildah, container: str) -> None:
    """The program as the image's own user, with the image's environment."""
    assert buildah("run", "--isolation", "chroot", container, "--", "penstock", "--version").startswith("penstock 0.")
    assert buildah("run", "--isolation", "chroot", container, "--", "id", "-u") == "10001"


def test_a_gateway_in_it_serves_and_drains(buildah: Buildah, container: str) -> None:
    """With its entry point and its configuration; ports are free ones of this machine, whose network it shares."""
    s2, management = free_ports(2)
    command = ["penstock", "serve", "--config", "/etc/penstock/gateway.toml", "--data", "/var/lib/penstock"]
    command += ["--no-others", "--s2", f"127.0.0.1:{s2}", "--management", f"127.0.0.1:{management}"]
    running = subprocess.Popen([*buildah.command, "run", "--isolation", "chroot", container, "--", *command])
    try:
        assert answer(f"http://127.0.0.1:{management}/live") == 200
        record = urllib.request.Request(
            f"http://127.0.0.1:{s2}/v1/streams/orders/records",
            b'{"records":[{"body":"first"}]}',
            {"s2-basin": "penstock", "content-type": "application/json"},
        )
        with urllib.request.urlopen(record) as acknowledged:
            assert b'"seq_num":0' in acknowledged.read()
        drain = urllib.request.Request(
            f"http://127.0.0.1:{management}/drain", b"{}", {"content-type": "application/json"}
        )
        with urllib.request.urlopen(drain) as drained:
            assert drained.status < 300
        assert running.wait(30) == 0
    finally:
        running.kill()
        running.wait()


def answer(url: str) -> int:
    """Return the status of a server that is about to start."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(url) as found:
                return int(found.status)
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"no answer from {url}")
