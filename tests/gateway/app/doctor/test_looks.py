"""The findings of `penstock doctor`, each good and bad."""

from __future__ import annotations

import datetime
import os
import socket
from pathlib import Path

import pytest
from cryptography import x509
from support.s3p.front import store_with_basin
from support.tls.certificates import needs_openssl, self_signed

from penstock.app.config import Config, parse_config
from penstock.app.doctor.examination import (
    about_backs,
    about_certificates,
    about_clock,
    about_data,
    about_memory,
    about_ports,
    about_versions,
    owner_of,
)
from penstock.app.doctor.findings import Finding, Severity
from penstock.model.operations import CreateStream
from penstock.model.records import StreamRef
from penstock.store.lock import locked


def config_of(directory: Path, more: str = "") -> Config:
    listener = '[listeners.s2]\nbind = "127.0.0.1:0"\n[management]\nenabled = false\n'
    return parse_config(f'{listener}{more}\n[store]\ndirectory = "{directory}"\n')


def by_name(findings: object) -> dict[str, Finding]:
    return {one.about: one for one in findings}  # type: ignore[attr-defined]


# ---- the machine -----------------------------------------------------------------------------------------------------


def test_versions() -> None:
    assert {one.state for one in about_versions(None)} == {Severity.FINE}


@pytest.mark.parametrize(("mebibytes", "state"), [(100, Severity.NOTABLE), (4096, Severity.FINE)])
def test_memory(tmp_path: Path, mebibytes: int, state: Severity) -> None:
    meminfo, cgroup = tmp_path / "meminfo", tmp_path / "memory.max"
    meminfo.write_text(f"MemTotal: 9 kB\nMemAvailable: {mebibytes * 1024} kB\n")
    (free,) = about_memory(config_of(tmp_path), meminfo, cgroup)
    assert (free.state, "are free" in free.text) == (state, True)
    cgroup.write_text(f"{mebibytes * 1024 * 1024}\n")
    (limited,) = about_memory(config_of(tmp_path), meminfo, cgroup)
    assert (limited.state, "container's limit" in limited.text) == (state, True)
    cgroup.write_text("max\n")
    assert list(about_memory(config_of(tmp_path), meminfo, cgroup)) == [free]


def test_a_clock_that_went_back(tmp_path: Path) -> None:
    file = tmp_path / "penstock.sqlite3"
    file.touch()
    assert [one.state for one in about_clock(config_of(tmp_path))] == [Severity.FINE]
    os.utime(file, (4_000_000_000, 4_000_000_000))
    (found,) = about_clock(config_of(tmp_path))
    assert found.state is Severity.NOTABLE


# ---- the disk --------------------------------------------------------------------------------------------------------


def test_a_good_directory(tmp_path: Path) -> None:
    before = list(tmp_path.iterdir())
    found = by_name(about_data(config_of(tmp_path / "data" / "below")))
    assert found["data"].state is Severity.FINE
    assert found["fsync"].text.endswith("ms")
    assert list(tmp_path.iterdir()) == before


def test_a_directory_that_another_has(tmp_path: Path) -> None:
    with locked(tmp_path):
        found = by_name(about_data(config_of(tmp_path)))
    assert found["data"].state is Severity.WRONG
    assert "in use by another gateway" in found["data"].text
    assert by_name(about_data(config_of(tmp_path)))["data"].state is Severity.FINE


async def test_a_store_with_a_stream_beside_its_partitions(tmp_path: Path) -> None:
    kafka = '[listeners.kafka]\nbind = "127.0.0.1:0"\n'
    async with store_with_basin(tmp_path) as back:
        for name in ("good", "two/0", "two/1", "t/x", "t"):
            await back.perform(CreateStream(StreamRef("penstock", name)))
        assert by_name(about_data(config_of(tmp_path, kafka)))["partitions"].state is Severity.FINE
        for name in ("two", "good/12"):
            await back.perform(CreateStream(StreamRef("penstock", name)))
        found = by_name(about_data(config_of(tmp_path, kafka)))["partitions"]
        assert found.state is Severity.WRONG and found.text.endswith("Kafka: good, two"), found.text
        assert "partitions" not in by_name(about_data(config_of(tmp_path)))


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    (found,) = about_data(config_of(tmp_path / "data" / "below"))
    assert found.state is Severity.WRONG
    assert "cannot be created in" in found.text


@pytest.mark.parametrize(
    ("kind", "state"), [("nfs4", Severity.WRONG), ("tmpfs", Severity.NOTABLE), ("xfs", Severity.FINE)]
)
def test_file_systems(tmp_path: Path, kind: str, state: Severity) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"1 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n2 1 0:5 / {tmp_path.resolve()} rw - {kind} somewhere rw\n"
    )
    assert by_name(about_data(config_of(tmp_path / "data"), mounts))["file system"].state is state


# ---- the network -----------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = config_of(tmp_path, f'[listeners.s3p]\nbind = "127.0.0.1:{port}"')
        found = by_name(about_ports(config))
    assert found["listeners.s2"].state is Severity.FINE
    assert found["listeners.s3p"].state is Severity.WRONG
    assert f"(process {os.getpid()})" in found["listeners.s3p"].text
    assert owner_of(port, Path("/proc")) == "another process", "there is no listener any more"


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    found = by_name(about_ports(config_of(tmp_path, '[listeners.s3p]\nbind = "192.0.2.1:7500"\nanonymous = true')))
    assert "cannot be bound" in found["listeners.s3p"].text


def test_servers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there, socket.create_server(("127.0.0.1", 0)) as gone:
        addresses = {name: f"127.0.0.1:{one.getsockname()[1]}" for name, one in (("there", there), ("gone", gone))}
        more = "".join(f'[backs.{name}]\nkind = "s2"\naddress = "{one}"\n' for name, one in addresses.items())
        gone.close()
        found = by_name(about_backs(config_of(tmp_path, more)))
    assert {name: one.state for name, one in found.items()} == {
        "backs.there": Severity.FINE,
        "backs.gone": Severity.WRONG,
    }
    assert "refused" in found["backs.gone"].text


# ---- certificates ----------------------------------------------------------------------------------------------------


@needs_openssl
def test_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = self_signed(tmp_path)
    config = parse_config(f'[listeners.s2]\ntls_certificate = "{certificate}"\ntls_key = "{key}"\n')
    found = x509.load_pem_x509_certificate(Path(certificate).read_bytes())
    second = datetime.timedelta(seconds=1)
    until, since = found.not_valid_after_utc, found.not_valid_before_utc
    for now, state in ((until - second, Severity.NOTABLE), (until, Severity.WRONG), (since - second, Severity.WRONG)):
        (said,) = about_certificates(config, lambda now=now: now)  # type: ignore[misc]
        assert (said.about, said.state) == ("listeners.s2.tls_certificate", state)
    monkeypatch.setattr("penstock.app.doctor.examination.SOON", second)
    (said,) = about_certificates(config)
    assert said.state is Severity.FINE


def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("no certificate")
    more = f'tls_certificate = "{tmp_path / "c.pem"}"\ntls_key = "{tmp_path / "k.pem"}"\n'
    (found,) = about_certificates(parse_config(f"[listeners.s2]\n{more}"))
    assert (found.state, "contains no PEM certificate" in found.text) == (Severity.WRONG, True)
