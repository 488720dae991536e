"""TLS that begins, and certificates that belong to others, while connections are open."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.process import GatewayProcess
from support.reloads import KeptAlive, ask_for_reload, rewrite
from support.s3p.client import S3PClient, S3PError
from support.tls import client_context
from support.tls.authority import Authority

DASHBOARD = """
[[identities]]
name = "dashboard"
certificates = ["dns:dashboard.example"]

[[routes]]
name = "looking"
identity = ["dashboard"]
read_only = true

[[routes]]
name = "rest"
"""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    with GatewayProcess(directory=tmp_path) as process:
        yield process


class SecuredS3P(S3PClient):
    """The same over TLS."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket = context.wrap_socket(plain, server_hostname="localhost")
        self._file = self.socket.makefile("rb")


def test_tls_begins_and_whose_a_certificate_is_changes(gateway: GatewayProcess, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("server", "localhost")
    shown = authority.issue("shown", "dashboard.example")
    files = 'tls_certificate = "server.pem"\ntls_key = "server-key.pem"\n'
    asking = files + 'tls_client_ca = "authority.pem"\n'
    with closing(KeptAlive(gateway.s2_port)) as before, S3PClient(("127.0.0.1", gateway.s3p_port)) as old:
        assert before.append("kept", "first") == 200
        rewrite(
            gateway,
            ("[listeners.s2]\n", f"[listeners.s2]\n{files}"),
            ("[listeners.s3p]\n", f"[listeners.s3p]\n{asking}"),
        )
        assert ask_for_reload(gateway)[0] == 200
        assert before.append("kept", "second") == 200
        assert len(old.append("kept", b"third")) > 0
        with socket.create_connection(("127.0.0.1", gateway.s2_port), timeout=20) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert not plain.recv(1000).startswith(b"HTTP")
        with SecuredS3P(gateway.s3p_port, client_context(authority, shown)) as new:
            assert len(new.append("kept", b"fourth")) > 0
            rewrite(gateway, more=DASHBOARD)
            assert ask_for_reload(gateway)[0] == 200
            refused = new.append("kept", b"fifth")
            assert isinstance(refused, S3PError) and "read-only" in refused.message, refused
            assert [body for _, body in new.read("kept")] == [b"first", b"second", b"third", b"fourth"]
    (tmp_path / "server.pem").write_text("half of a certif")
    status, answer = ask_for_reload(gateway)
    assert status == 409 and "cannot use server.pem and server-key.pem for TLS" in answer["message"], answer
