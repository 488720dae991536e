"""The report of `penstock check` about TLS."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.tls.authority import Authority

from penstock.app.config import parse_config
from penstock.app.report import report

FILES = "tls_certificate = 'CERT'\ntls_key = 'KEY'\n"
ASKING = "tls_client_ca = 'clients.pem'\n"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> object:
    issued = Authority(tmp_path_factory.mktemp("tls")).issue("server", "a.example", until=timedelta(days=10))

    def say(text: str) -> str:
        text = text.replace("CERT", issued.certificate).replace("KEY", issued.key)
        told = report(parse_config(text), "gateway.toml").replace("\n    ", " ")
        return told.replace(issued.certificate, "server.pem")

    return say


def day(days: int) -> str:
    return f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%d}"


@pytest.mark.parametrize("text, line", [
    ("[listeners.s2]\n" + FILES, "S2 by HTTPS (S2S"),
    (
        "[listeners.s2]\n" + FILES,
        f"listeners.s2: TLS 1.2 or newer, with server.pem (until {day(10)}); clients are not asked for certificates",
    ),
    ("[listeners.s3p]\n" + FILES, "S3P 0.2.0 by TLS on 127.0.0.1:7500, for any client"),
    ("[listeners.s3p]\n" + FILES + ASKING, "S3P 0.2.0 by TLS on 127.0.0.1:7500, for clients with a certificate of"),
    (
        "[listeners.s3p]\n" + FILES + ASKING + "tls_client_crl = 'revoked.pem'",
        "clients must present a certificate from an authority in clients.pem and not revoked in revoked.pem",
    ),
    (
        "[listeners.s2]\n" + FILES + ASKING + "tls_client_auth = 'optional'",
        "clients may present a certificate, from an authority in clients.pem",
    ),
    ("[listeners.s2]\n" + FILES + ASKING + "tls_client_auth = 'optional'", "S2 clients: any client, without a token"),
    (
        "[listeners.s2]\nauth_tokens = ['t']\n" + FILES + ASKING,
        "S2 clients: clients with a certificate of clients.pem, and clients with one of 1 bearer tokens",
    ),
    (
        "[listeners.s2]\n" + FILES + "[[listeners.s2.tls_certificates]]\ncertificate = 'o.pem'\nkey = 'k'\n"
        "names = ['b.example', '*.c.example']",
        "; for b.example, *.c.example: o.pem; clients",
    ),
    ("[listeners.segment]\n" + FILES + ASKING, "Clients of segments: clients with a certificate of clients.pem"),
    ("[listeners.s2]\n[management]\n" + FILES + ASKING, "HTTPS) on 127.0.0.1:9600, for clients with a certificate"),
    (
        "[listeners.s2]\n[backs.far]\nkind = 's2'\naddress = 'a:1'\ntls = true\n" + FILES,
        f"backs.far gets server.pem (until {day(10)})",
    ),
    (
        "[listeners.s2]\n[[identities]]\nname = 'web'\ncertificates = ['dns:web.example', 'cn:web']",
        "Identity web: certificates with dns:web.example or cn:web",
    ),
])  # fmt: skip
def test_who_shows_what_and_who_is_served(said, text: str, line: str) -> None:
    assert line in said(text)


def test_that_a_certificate_has_expired(tmp_path: Path) -> None:
    old = Authority(tmp_path).issue("old", "a.example", until=-timedelta(days=3))
    text = f"[listeners.s2]\ntls_certificate = '{old.certificate}'\ntls_key = '{old.key}'\n"
    assert f"old.pem (EXPIRED on {day(-3)})" in report(parse_config(text), "gateway.toml").replace("\n    ", " ")


def test_without_tls_nothing_is_said_of_it(said) -> None:
    assert "\nTLS\n" not in said("[listeners.s2]")


@pytest.mark.parametrize("listener", ["s2", "s3p", "segment"])
def test_who_proves_himself_is_no_danger(said, listener: str) -> None:
    asking = f"[listeners.{listener}]\nbind = '0.0.0.0:1'\n" + FILES + ASKING
    assert "INSECURE" not in said(asking)
    assert "INSECURE" in said(asking.replace(ASKING, ASKING + "tls_client_auth = 'optional'\n"))


@pytest.mark.parametrize("text, reason", [
    ("tls_certificate = 'c'", "tls_certificate and tls_key go together"),
    ("tls_client_ca = 'c'", "tls_client_ca is for TLS: give tls_certificate and tls_key too"),
    ("tls_client_crl = 'c'", "tls_client_crl is for TLS"),
    ("tls_client_auth = 'optional'", 'tls_client_auth = "optional" is about clients\' certificates'),
    (FILES + "tls_client_crl = 'c'", "tls_client_crl is about clients' certificates: give tls_client_ca too"),
    (FILES + "tls_handshake_seconds = 0", "at listeners.s3p.tls_handshake_seconds"),
    (
        FILES + "[[listeners.s3p.tls_certificates]]\ncertificate = 'c'\nkey = 'k'\nnames = ['a b']",
        "at listeners.s3p.tls_certificates[0].names[0]",
    ),
])  # fmt: skip
def test_keys_that_need_others(text: str, reason: str) -> None:
    with pytest.raises(Exception, match="(?s)" + reason.replace("[", r"\[").replace("]", r"\]")):
        parse_config(f"[listeners.s3p]\n{text}")


def test_a_pattern_that_is_none() -> None:
    with pytest.raises(Exception, match="certificates: expected dns:, uri:, email: or cn: and a glob"):
        parse_config("[listeners.s2]\n[[identities]]\nname = 'web'\ncertificates = ['web.example']")


def test_files_are_looked_at_relative_to_the_working_directory(
    said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Authority(tmp_path).issue("mine", "a.example", until=timedelta(days=3))
    monkeypatch.chdir(tmp_path)
    text = "[listeners.s2]\ntls_certificate = 'mine.pem'\ntls_key = 'mine-key.pem'"
    assert f"with mine.pem (until {day(3)})" in said(text)
