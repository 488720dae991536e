"""A real gateway behind proxies: PROXY protocol before TLS and other protocols, and X-Forwarded-For."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from support.process import BASIN, GatewayProcess, running_gateway
from support.tls.certificates import self_signed

from penstock.net.proxies import BadForwarding, TrustedProxies
from penstock.wire.proxy_header import SIGNATURE

PROXY, OFFICE, STRANGER = "127.0.0.5", "203.0.113.7", "198.51.100.9"
PROXIED = """
[[listeners.s2]]
bind = "127.0.0.1:{s2_port}"
proxies = ["127.0.0.5/32", "10.0.0.0/8"]
forwarded_for = true

[[listeners.s2]]
name = "tls"
bind = "127.0.0.1:0"
tls_certificate = "CERTIFICATE"
tls_key = "TLS_KEY"
proxies = ["127.0.0.5/32"]
proxy_protocol = true

[[listeners.s3p]]
bind = "127.0.0.1:{s3p_port}"
basin = "{basin}"
proxies = ["127.0.0.5/32"]
proxy_protocol = true

[store]
directory = "{data}"

[[store.basins]]
name = "{basin}"
create_stream_on_append = true

[[identities]]
name = "office"
addresses = ["203.0.113.0/24"]

[[routes]]
name = "office"
identity = ["office"]

[limits]
requests_per_second = 1
burst_seconds = 20

[log]
level = "info"
format = "json"
"""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    certificate, key = self_signed(tmp_path_factory.mktemp("certificate"))
    with running_gateway(PROXIED.replace("CERTIFICATE", certificate).replace("TLS_KEY", key)) as process:
        yield process


def connected(port: int, beginning: bytes = b"", source: str = PROXY) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(source, 0))
    connection.sendall(beginning)
    return connection


def append(connection: socket.socket, *headers: tuple[str, str]) -> tuple[int, bytes]:
    """Append over HTTP/1.1; return status and body of the answer."""
    client = http.client.HTTPConnection("localhost")
    client.sock = connection
    body = json.dumps({"records": [{"body": "x"}]})
    client.putrequest("POST", "/v1/streams/proxied/records")
    for name, value in (
        ("s2-basin", BASIN),
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        *headers,
    ):
        client.putheader(name, value)
    client.endheaders(body.encode())
    answer = client.getresponse()
    return answer.status, answer.read()


def v1(client: str) -> bytes:
    return f"PROXY TCP4 {client} 192.0.2.1 4711 443\r\n".encode()


def v2(client: str) -> bytes:
    addresses = socket.inet_aton(client) + socket.inet_aton("192.0.2.1") + struct.pack(">HH", 4711, 443)
    return SIGNATURE + struct.pack(">BBH", 0x21, 0x11, len(addresses)) + addresses


@pytest.mark.parametrize("header", [v1, v2])
def test_the_header_comes_before_tls_and_names_the_client(
    header: Callable[[str], bytes], process: GatewayProcess
) -> None:
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    statuses, listening = [], process.events("listening")
    port = next(event["port"] for event in listening if event["listener"] == "listeners.s2.tls")
    for client in (OFFICE, STRANGER):
        with trust.wrap_socket(connected(port, header(client))) as connection:
            statuses.append(append(connection)[0])
    assert (statuses[0], statuses[1] >= 400) == (200, True)


def test_limits_are_those_of_the_client(process: GatewayProcess) -> None:
    with closing(connected(process.s2_port)) as connection:
        statuses = [append(connection, ("x-forwarded-for", "198.51.100.20"))[0] for _ in range(40)]
        assert statuses[0] != 429 and 429 in statuses
        assert append(connection, ("x-forwarded-for", "198.51.100.21"))[0] != 429, "another client of the same proxy"


@pytest.mark.parametrize(
    ("source", "beginning"),
    [("127.0.0.6", v1(OFFICE)), (PROXY, b"*2\r\n$6\r\nDELETE\r\n$1\r\nx\r\n"), (PROXY, b"PROXY TCP4 a b 1 2\r\n")],
    ids=["no proxy", "no header", "malformed"],
)
def test_connections_without_a_proxy_s_header_are_closed(
    source: str, beginning: bytes, process: GatewayProcess
) -> None:
    with connected(process.s3p_port, source=source) as connection:
        try:
            connection.sendall(beginning)
            assert connection.recv(100) == b""
        except ConnectionError:
            pass  # it was closed with unread bytes


def test_the_last_address_that_is_no_proxy_is_the_client_of_a_request(process: GatewayProcess) -> None:
    with closing(connected(process.s2_port)) as connection:
        forwarded = [
            f"{STRANGER}, 203.0.113.8",
            "203.0.113.9, 10.1.2.3",
            f"203.0.113.8, {STRANGER}",
            STRANGER,
        ]
        statuses = [append(connection, ("x-forwarded-for", value))[0] for value in forwarded]
        assert statuses[:2] == [200, 200]
        assert all(status >= 400 for status in statuses[2:])
        assert append(connection, ("x-forwarded-for", STRANGER), ("x-forwarded-for", "203.0.113.10"))[0] == 200
        for wrong in ((), (("x-forwarded-for", "unknown"),), (("x-forwarded-for", ""),)):
            status, reason = append(connection, *wrong)
            assert (status, b"x-forwarded-for" in reason) == (400, True)


def test_others_cannot_name_a_client(process: GatewayProcess) -> None:
    with closing(connected(process.s2_port, source="127.0.0.6")) as connection:
        assert append(connection, ("x-forwarded-for", OFFICE))[0] >= 400


@pytest.mark.parametrize("value", ["a" * 100, "1.2.3.4," * 40 + "1.2.3.4", "[::1", "1.2.3.4.5", "", ","])
def test_what_is_no_address_is_refused(value: str) -> None:
    with pytest.raises(BadForwarding):
        TrustedProxies(forwarded_for=True).client_of([value])


def test_addresses_with_ports() -> None:
    proxies = TrustedProxies(forwarded_for=True)
    assert proxies.client_of(["192.0.2.1:80"]) == "192.0.2.1"
    assert proxies.client_of(["[2001:db8::1]:80"]) == proxies.client_of(["2001:db8::1"]) == "2001:db8::1"


def test_a_connection_is_told_for_how_long_it_stays_open(process: GatewayProcess) -> None:
    with closing(connected(process.s2_port)) as connection:
        for close in (False, True):
            closing_header = b"connection: close\r\n" if close else b""
            head = b"GET /health HTTP/1.1\r\nhost: a\r\nx-forwarded-for: %b\r\n" % OFFICE.encode()
            connection.sendall(head + closing_header + b"\r\n")
            answer = connection.recv(65536).lower()
            assert (b"\r\nkeep-alive: timeout=120\r\n" in answer) is not close
            assert (b"\r\nconnection: keep-alive\r\n" in answer) is not close
