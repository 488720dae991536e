"""Certificates by name, and files that cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.tls import client_context, greet
from support.tls.authority import Authority, Issued

from penstock.core.errors import CannotStart
from penstock.net.tls import Pair, ServerFiles, ServerTls


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Issued:
    return authority.issue("server", "server.example", cn="default")


def pair(issued: Issued, *names: str) -> Pair:
    return Pair(issued.certificate, issued.key, names)


@pytest.mark.parametrize("asked, shown", [
    ("one.example", "one"),
    ("ONE.example", "one"),
    ("x.two.example", "two"),
    ("exact.two.example", "exact"),
    ("two.example", "default"),
    ("x.y.two.example", "default"),
    ("three.example", "three"),
    ("elsewhere.example", "default"),
    (None, "default"),
])  # fmt: skip
async def test_a_certificate_for_each_name(authority: Authority, server: Issued, asked: str | None, shown: str) -> None:
    others = (
        pair(authority.issue("one", "one.example", cn="one")),
        pair(authority.issue("exact", "exact.two.example", cn="exact")),
        pair(authority.issue("two", "*.two.example", cn="two")),
        pair(authority.issue("three", "other.example", cn="three"), "three.example"),
    )
    tls = ServerTls("listeners.test", ServerFiles(pair=pair(server), others=others))
    context = client_context(authority, alpn=("h2",))
    context.check_hostname = False
    found = await greet(tls, context, name=asked)
    assert (found.shown, found.alpn, found.served) == (shown, "h2", [""])


async def test_clients_are_asked_whatever_name_they_ask_for(authority: Authority, server: Issued) -> None:
    other = authority.issue("one", "one.example", cn="one")
    files = ServerFiles(pair=pair(server), others=(pair(other),), client_ca=authority.ca)
    tls = ServerTls("listeners.test", files)
    for name in ("server.example", "one.example"):
        assert (await greet(tls, client_context(authority), name=name)).served == []
        shown = client_context(authority, authority.issue("good", "a.example"))
        assert (await greet(tls, shown, name=name)).served == [""]


def test_the_first_certificate_for_a_name_has_it(authority: Authority, server: Issued) -> None:
    others = tuple(pair(authority.issue(f"n{number}", cn=f"n{number}"), "same.example") for number in range(2))
    tls = ServerTls("listeners.test", ServerFiles(pair=pair(server), others=others))
    assert [about.subject for _file, about in tls.described()] == ["CN=default", "CN=n0", "CN=n1"]


@pytest.fixture
def files(authority: Authority, server: Issued, tmp_path: Path) -> dict[str, str]:
    other = authority.issue("unnamed", cn="")
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    return {
        "certificate": server.certificate,
        "key": server.key,
        "other_certificate": other.certificate,
        "other_key": other.key,
        "garbage": str(garbage),
        "none": str(tmp_path / "none.pem"),
        "ca": authority.ca,
    }


@pytest.mark.parametrize("said, reason", [
    ({"key": "other_key"}, "server.pem and .*unnamed-key.pem for TLS: the key belongs to another certificate"),
    ({"certificate": "garbage"}, "garbage.pem and .* not a PEM certificate chain and its key"),
    ({"certificate": "none"}, "none.pem and .*: .*none.pem: No such file or directory"),
    ({"key": "none"}, "server.pem and .*none.pem for TLS: .*none.pem: No such file or directory"),
    ({"ca": "none"}, "cannot use the clients' authorities in .*none.pem: No such file or directory"),
    ({"ca": "garbage"}, "cannot use the clients' authorities in .*garbage.pem: the file contains none"),
    ({"crl": "none"}, "cannot use the revocation lists in .*none.pem: No such file or directory"),
    ({"crl": "garbage"}, "cannot use the revocation lists in .*garbage.pem: the file contains none"),
    ({"crl": "ca"}, "cannot use the revocation lists in .*authority.pem: the file contains no revocation list"),
    ({"other": "other_certificate"}, ".*unnamed.pem contains no host name: set `names`"),
])  # fmt: skip
def test_files_that_cannot_be_used_are_named(files: dict[str, str], said: dict[str, str], reason: str) -> None:
    use = {key: files[name] for key, name in {"certificate": "certificate", "key": "key", "ca": "ca", **said}.items()}
    others = (Pair(use["other"], files["other_key"]),) if "other" in use else ()
    with pytest.raises(CannotStart, match=f"^listeners.test: .*{reason}"):
        ServerTls(
            "listeners.test",
            ServerFiles(
                pair=Pair(use["certificate"], use["key"]),
                others=others,
                client_ca=use["ca"],
                client_crl=use.get("crl"),
            ),
        )


def test_a_key_with_a_password_is_not_asked_for_on_the_terminal(
    authority: Authority, server: Issued, tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(Path(server.key).read_bytes(), None)
    secret = tmp_path / "secret.pem"
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"word"),
        )
    )
    with pytest.raises(CannotStart, match="the key is encrypted"):
        ServerTls("listeners.test", ServerFiles(pair=Pair(server.certificate, str(secret))))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_key_that_may_not_be_read(server: Issued, tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(Path(server.key).read_bytes())
    key.chmod(0)
    with pytest.raises(CannotStart, match="Permission denied"):
        ServerTls("listeners.test", ServerFiles(pair=Pair(server.certificate, str(key))))
