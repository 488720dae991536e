"""The wheel in a virtual environment that has nothing else: every command, and every shipped configuration.

The wheel is built by the project's own backend, and what it depends on comes from where pip is configured to look, or
from pip's cache. One environment serves all tests of this file.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.parser import BytesParser
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest
from support.segment.client import ReleasedSocket
from support.shipping import ROOT, install_packages, pip, serving

PACKAGES: Final = (
    "proto/penstock_proto",
    "codecs/penstock_durable",
    "codecs/penstock_kafka",
    "codecs/penstock_pravega",
    "codecs/penstock_s2",
    "codecs/penstock_s3p",
    "gateway/penstock",
    "pipeline/penstock_spark",
)
CONTEXT: Final = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "proto",
    "codecs",
    "gateway",
    "pipeline",
    "config",
)
BUILD: Final = "python3 -m pip wheel --no-deps --wheel-dir dist ."
"""As docs/install.md says it."""
OTHERS: Final = frozenset({"pipeline.toml"})
"""Configurations that are not a gateway's."""

EVERY_HELP: Final = """
import json, click
from penstock.cli import main

def commands(command, path):
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.resolve_command(context, [name])[1], [*path, name])

from click.testing import CliRunner
failed = []
asked = list(commands(main, []))
for path in asked:
    result = CliRunner().invoke(main, [*path, "--help"])
    if result.exit_code or not result.output.startswith("Usage: "):
        failed.append([path, result.output, repr(result.exception)])
print(json.dumps({"asked": asked, "failed": failed}))
"""


EVERY_CHECK: Final = """
import json, sys
from click.testing import CliRunner
from penstock.cli import main

results = [CliRunner().invoke(main, ["check", "--config", path]) for path in sys.argv[1:]]
print(json.dumps([[result.exit_code, result.output] for result in results]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from what is here."""
    directory = tmp_path_factory.mktemp("wheel")
    here = {"dist": directory, ".": ROOT}
    pip(*(here.get(word, word) for word in BUILD.split()[3:]))
    (built,) = directory.iterdir()
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A virtual environment with the wheel, and nothing that is not asked for by it."""
    place = tmp_path_factory.mktemp("clean") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    install_packages(place, wheel)
    yield place
    shutil.rmtree(place)


def _python(environment: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The environment's Python, where nothing of the repository can be imported."""
    command = [str(environment / "bin" / "python"), "-I", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=environment, timeout=100, check=False)


def configurations() -> list[str]:
    return sorted({file.name for file in (ROOT / "config").glob("*.toml")} - OTHERS)


def test_everything_is_in_the_wheel(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    for package in PACKAGES:
        root = ROOT / package
        for file in root.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                assert str(file.relative_to(root.parent)) in names, file
    shared = {name.partition("/share/penstock/")[2] for name in names if "/share/penstock/" in name}
    shipped = {str(file.relative_to(ROOT)) for file in (ROOT / "config").rglob("*") if file.is_file()}
    assert shared == shipped
    assert not any(name.startswith("tests/") for name in names)


def test_it_is_reproducible(wheel: Path, tmp_path: Path) -> None:
    """A copy elsewhere, whose files are younger and only their owner's, gives the same bytes."""
    copy, built = tmp_path / "copy", tmp_path / "built"
    copy.mkdir()
    for name in CONTEXT:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, copy / name, ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copy
            )
        else:
            shutil.copy(source, copy)
    for file in copy.rglob("*"):
        file.chmod(file.stat().st_mode & 0o700)
    pip("wheel", "--no-deps", "--wheel-dir", built, copy)
    (again,) = built.iterdir()
    assert (again.name, again.read_bytes()) == (wheel.name, wheel.read_bytes())


def test_the_page_on_installing_says_what_is_built(wheel: Path) -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    assert f"\n{BUILD}\n" in page
    assert set(re.findall(r"dist/([\w.-]+\.whl)", page)) == {wheel.name}
    metadata = BytesParser().parsebytes(ZipFile(wheel).read(f"{wheel.name.rpartition('-py3')[0]}.dist-info/METADATA"))
    assert (metadata["Name"], metadata["License-Expression"]) == ("penstock-gateway", "Apache-2.0")
    assert set(re.findall(r"\.whl\[(\w+)\]", page)) == set(metadata.get_all("Provides-Extra", []))


def test_it_is_the_wheel_that_runs(environment: Path) -> None:
    done = _python(environment, "-c", "import penstock; print(penstock.__file__)")
    assert done.stdout.startswith(str(environment)), done
    done = _python(environment, "-c", "from importlib.util import find_spec; print(find_spec('pytest'))")
    assert done.stdout == "None\n", "it has what the tests need, too"


def test_every_command_has_help(environment: Path) -> None:
    done = _python(environment, "-c", EVERY_HELP)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["failed"] == []
    names = {" ".join(path) for path in told["asked"]}
    assert {"", "serve", "check", "record start", "token issue", "pipeline run", "completion", "doctor"} <= names


def test_the_program_itself(environment: Path) -> None:
    program = environment / "bin" / "penstock"
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=True)
    assert "serve" in done.stdout
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("penstock 0.")


def test_each_configuration_is_checked(environment: Path) -> None:
    place = environment / "share" / "penstock" / "config"
    done = _python(environment, "-c", EVERY_CHECK, *(place / name for name in configurations()))
    assert done.returncode == 0, done.stderr
    for name, (code, output) in zip(configurations(), json.loads(done.stdout), strict=True):
        assert (code, output.startswith(f"{place / name} is valid.")) == (0, True), output


def test_each_configuration_is_served(environment: Path, tmp_path: Path) -> None:
    """It starts, answers /live, and stops by SIGTERM. Servers behind it need not be there."""

    def serve(name: str) -> None:
        file = environment / "share" / "penstock" / "config" / name
        place = tmp_path / name
        place.mkdir()
        text = file.read_text().replace('"../data', f'"{place}/data')
        arguments = ["serve", "--config", "/etc/penstock/gateway.toml"]
        management = tomllib.loads(text).get("management", {}).get("bind", "127.0.0.1:9600")
        if "[management]" not in text:
            arguments += ["--management", management]
        port = int(management.rpartition(":")[2])
        with (
            serving(arguments, text, place / "data", python=environment / "bin" / "python") as served,
            urllib.request.urlopen(f"http://127.0.0.1:{served.ports[port]}/live") as answer,
        ):
            assert answer.status == 200

    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(serve, configurations()):
            pass


FORMATS: Final = {
    "penstock_s2": "s2://{}/penstock/orders",
    "penstock_s3p": "s3p://{}/orders",
    "penstock_kafka": "kafka://{}/orders",
    "penstock_durable": "durable://{}/v1/stream/orders",
    "penstock_pravega": "segment://{}",
}
"""The packages of wire formats, and names of one stream over each."""


@pytest.mark.parametrize("package", ["penstock_s2", "penstock_kafka"])
def test_without_a_wire_format_the_others_are_served(environment: Path, tmp_path: Path, package: str) -> None:
    """Its folder and its entry points are taken out of the environment, and put back."""
    (site,) = (environment / "lib").glob("python*/site-packages")
    (entry_points,) = site.glob("penstock_gateway-*.dist-info/entry_points.txt")
    text = entry_points.read_text()
    shutil.move(site / package, tmp_path)
    try:
        entry_points.write_text("".join(line for line in text.splitlines(True) if f" {package}." not in line))
        _check_others(environment, tmp_path, package)
    finally:
        entry_points.write_text(text)
        shutil.move(tmp_path / package, site)


def _check_others(environment: Path, place: Path, lacking: str) -> None:
    """A gateway with a listener of each other wire format serves clients of all of them; it refuses one of that."""
    program, config, log = environment / "bin" / "penstock", place / "others.toml", place / "log"
    names = {package: url for package, url in FORMATS.items() if package != lacking}
    kinds = [url.partition(":")[0] for url in names.values()]
    tables = "".join(f'[listeners.{kind}]\nbind = "127.0.0.1:0"\n' for kind in kinds)
    config.write_text(f"{tables}{STORED.format(directory=place / 'data')}")
    with log.open("wb") as output, subprocess.Popen([program, "serve", "--config", config], stderr=output) as gateway:
        try:
            ports = _ports(log, gateway, len(kinds))
            streams = [url.format(f"127.0.0.1:{ports[url.partition(':')[0]]}") for url in names.values()]
            records = [stream for stream in streams if not stream.startswith(("durable:", "segment:"))]
            for stream in records:
                subprocess.run([program, "append", stream], input=f"{stream}\n", text=True, check=True)
            for stream in records:
                done = subprocess.run([program, "read", stream], capture_output=True, text=True, check=False)
                assert done.stdout.splitlines() == records, done.stderr
            for kind, _, address in (stream.partition("://") for stream in streams):
                if kind == "durable":
                    with urllib.request.urlopen(f"http://{address}?offset=-1") as answer:
                        assert answer.read().decode() == "".join(records)
                elif kind == "segment":
                    with ReleasedSocket(("127.0.0.1", ports[kind])) as client:
                        client.new("scope/events/0.#epoch.0", b"first")
        finally:
            gateway.terminate()
    kind = FORMATS[lacking].partition(":")[0]
    config.write_text(f'[listeners.{kind}]\nbind = "127.0.0.1:0"\n')
    refused = subprocess.run([program, "check", "--config", config], capture_output=True, text=True, check=False)
    assert refused.returncode and f"listeners.{kind}" in refused.stderr


STORED: Final = """
[management]
enabled = false
[store]
directory = "{directory}"
[[store.basins]]
name = "penstock"
create_stream_on_append = true
[log]
format = "json"
"""

LINES = """
[listeners.lines]
bind = "127.0.0.1:0"
[management]
enabled = false
[[store.basins]]
name = "penstock"
[log]
format = "json"
"""


def test_another_distribution_adds_a_protocol(environment: Path, tmp_path: Path) -> None:
    """It is installed from its own pyproject.toml, and then serves, records and shows. This is the last test of the
    file, since it changes the environment."""
    pip("--python", environment / "bin" / "python", "install", "--no-compile", "--no-deps", ROOT / "tests" / "outside")
    program, config, log = environment / "bin" / "penstock", tmp_path / "lines.toml", tmp_path / "log"
    config.write_text(LINES)
    checked = subprocess.run([program, "check", "--config", config], capture_output=True, text=True, check=True)
    assert "Numbered Lines (lf) on 127.0.0.1:0, for any client" in checked.stdout
    command = [program, "serve", "--config", config, "--record", tmp_path / "recordings"]
    with log.open("wb") as output, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=output) as gateway:
        try:
            with socket.create_connection(("127.0.0.1", _ports(log, gateway, 1)["lines"]), timeout=30) as client:
                client.sendall(b"PUT orders first\nGET orders 0 10\n")
                answers = client.makefile("rb")
                assert [answers.readline() for _ in range(3)] == [b"OK 0\n", b"ROW 0 first\n", b"END 1\n"]
        finally:
            gateway.terminate()
    (capture,) = (tmp_path / "recordings").glob("*.pcapng")
    shown = subprocess.run([program, "show", "--json", capture], capture_output=True, text=True, check=True)
    kinds = [json.loads(line)["kind"] for line in shown.stdout.splitlines()]
    assert sorted(kinds[:5]) == ["END", "GET", "OK", "PUT", "ROW"]


def _ports(log: Path, gateway: subprocess.Popen[bytes], count: int) -> dict[str, int]:
    """Return the ports on which the gateway's listeners listen, by protocol, as soon as there are so many."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and gateway.poll() is None:
        events = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
        ports = {event["protocol"]: int(event["port"]) for event in events if event["event"] == "listening"}
        if len(ports) == count:
            return ports
        time.sleep(0.05)
    raise AssertionError(log.read_text())
