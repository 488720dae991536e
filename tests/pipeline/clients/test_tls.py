"""The client of S2 over TLS: the certificates that it trusts and shows, and its errors if either is wrong."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.process import BASIN, CONFIG, running_gateway
from support.tls.certificates import needs_openssl, self_signed

from penstock.model.failures import FailureCode, OperationFailed
from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.http import HttpConnection
from penstock_spark.clients.transport import BlockingTransport

pytestmark = needs_openssl


@contextmanager
def _wants_certificate(folder: Path, name: str = "IP:127.0.0.1") -> Iterator[int]:
    """A server that talks only to those whose certificate is its own one; it says "ok" and closes. Serves two."""
    certificate, key = self_signed(folder, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(2):
                near, _ = listener.accept()
                try:
                    with context.wrap_socket(near, server_side=True) as tls:
                        tls.sendall(b"ok")
                except OSError:
                    near.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def test_reads_and_appends_over_tls(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    files = f'bind = "127.0.0.1:{{s2_port}}"\ntls_certificate = "{certificate}"\ntls_key = "{key}"'
    with running_gateway(CONFIG.replace('bind = "127.0.0.1:{s2_port}"', files)) as gateway:
        endpoint = Endpoint("127.0.0.1", gateway.s2_port, tls=True, ca_file=certificate, connect_seconds=2.0)
        stream = f"{BASIN}/x"
        bodies = [b"%d" % number * 50_000 for number in range(40)]
        with closing(StreamClient(endpoint)) as client:
            appender = client.appender(stream)
            for number, body in enumerate(bodies):
                appender.append([body], {}, None, number)
            appender.flush()
            read = [body for rows in client.read(stream, 0, 40) for body in rows.columns.bodies]
            assert read == bodies

        faults = {
            "certificate is not trusted: self-signed certificate": replace(endpoint, ca_file=None),
            f"TLS: cannot use {key}": replace(endpoint, ca_file=key),
            f"cannot use .*{certificate}": replace(endpoint, certificate_file=certificate, key_file=certificate),
        }
        for message, wrong in faults.items():
            with closing(StreamClient(wrong)) as client, pytest.raises(OperationFailed, match=message) as raised:
                client.tail(stream)
            assert not raised.value.failure.retryable
        with (
            closing(StreamClient(replace(endpoint, tls=False, recover_seconds=0.0))) as client,
            pytest.raises(OperationFailed),
        ):
            client.tail(stream)


def test_a_server_without_tls_is_named_as_such() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = Endpoint("127.0.0.1", listener.getsockname()[1], tls=True)

        def serve() -> None:
            near, _ = listener.accept()
            with near:
                near.recv(1)
                near.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(OperationFailed, match="TLS: the server does not speak TLS") as raised:
            BlockingTransport(endpoint)
        assert raised.value.failure.code is FailureCode.INVALID
        thread.join(10)


def test_a_server_with_tls_is_named_as_such() -> None:
    """As OpenSSL answers a request in plaintext."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = Endpoint("127.0.0.1", listener.getsockname()[1], tls=False)

        def serve() -> None:
            near, _ = listener.accept()
            with near:
                near.recv(1000)
                near.sendall(b"\x15\x03\x01\x00\x02\x02\x46")

        thread = threading.Thread(target=serve)
        thread.start()
        connection = HttpConnection(BlockingTransport(endpoint), "h")
        connection.request("GET", "/", [])
        with pytest.raises(OperationFailed, match="the server speaks TLS: write https://") as raised:
            connection.head()
        assert raised.value.failure.code is FailureCode.INVALID
        thread.join(10)


def test_our_certificate_is_shown_where_one_is_wanted(tmp_path: Path) -> None:
    with _wants_certificate(tmp_path) as port:
        certificate, key = str(tmp_path / "c.pem"), str(tmp_path / "k.pem")
        bare = Endpoint("127.0.0.1", port, tls=True, ca_file=certificate)
        with pytest.raises(OperationFailed, match="TLS: the server requires a client certificate") as raised:
            BlockingTransport(bare).receive()
        assert raised.value.failure.code is FailureCode.AUTHN
        transport = BlockingTransport(replace(bare, certificate_file=certificate, key_file=key))
        assert bytes(transport.receive()) == b"ok"
        assert transport.receive() == b""
        transport.close()


def test_a_certificate_for_another_name_is_not_trusted(tmp_path: Path) -> None:
    with _wants_certificate(tmp_path, "DNS:elsewhere.example.com") as port:
        endpoint = Endpoint("127.0.0.1", port, tls=True, ca_file=str(tmp_path / "c.pem"))
        for _ in range(2):
            with pytest.raises(OperationFailed, match="certificate is not trusted: IP address mismatch") as raised:
                BlockingTransport(endpoint)
            assert raised.value.failure.code is FailureCode.AUTHN
