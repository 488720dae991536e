"""Bad certificates on every listener: no request is served, no data is touched, and both sides get the reason."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import NamedTuple

import pytest
import s2_sdk as s2
from support.peers import Curl, finish, unique
from support.pravega.clients import PravegaClient, need_pravega, wait_until
from support.process import BASIN
from support.s3p.client import encode
from support.tls.authority import Authority, Issued
from support.tls.gateway import SecuredGateway, secured_gateway

from penstock_pravega.codec import Dialect, SegmentClient
from penstock_pravega.codec.released import CreateSegment, Hello

RECORDS = b'{"records":[{"body":"must not be there"}]}'


class Bad(NamedTuple):
    """`told`: the alert that the client gets, in OpenSSL's words; `reason`: the reason in the log."""

    who: str
    told: str
    reason: str


BAD = [
    Bad("no certificate", "CERTIFICATE_REQUIRED", "the client presented no certificate"),
    Bad("strange", "UNKNOWN_CA", "the client's certificate is refused: unable to get local issuer certificate"),
    Bad("expired", "CERTIFICATE_EXPIRED", "the client's certificate is refused: certificate has expired"),
    Bad("revoked", "CERTIFICATE_REVOKED", "the client's certificate is refused: certificate revoked"),
]
EVERY_BAD = pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.who)


class Place(NamedTuple):
    """A gateway, and a certificate for each of the bad ones."""

    gateway: SecuredGateway
    shown: dict[str, Issued | None]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with secured_gateway(tmp_path_factory.mktemp("secured")) as gateway:
        authority = gateway.authority
        good = "spiffe://example.org/ns/prod/sa/ingest"
        revoked = authority.issue("revoked", good)
        stranger = Authority(tmp_path_factory.mktemp("stranger"), "stranger")
        shown = {
            "no certificate": None,
            "strange": stranger.issue("strange", good),
            "expired": authority.issue("expired", good, until=-timedelta(days=1)),
            "revoked": revoked,
        }
        authority.revoke(revoked)
        gateway.reload()
        yield Place(gateway, shown)


@pytest.fixture
def stream(place: Place, curl: Curl) -> str:
    """One with a record in it."""
    name = unique("guarded")
    ask(curl, place, name, "--data-binary", '{"records":[{"body":"one"}]}')
    return name


def ask(curl: Curl, place: Place, stream: str, *more: str, path: str = "") -> dict[str, dict[str, int]]:
    """As a client that may do everything."""
    gateway = place.gateway
    url = f"https://localhost:{gateway.port('s2.mutual')}/v1/streams/{stream}/records{path}"
    files = ("--cacert", gateway.authority.ca, "--cert", gateway.ingest.certificate, "--key", gateway.ingest.key)
    headers = ("-H", f"s2-basin: {BASIN}", "-H", "content-type: application/json")
    answer = curl("--fail", *files, *headers, *more, url)
    assert answer.returncode == 0, answer.stderr
    found: dict[str, dict[str, int]] = json.loads(answer.stdout)
    return found


def by_http(stream: str) -> bytes:
    head = f"POST /v1/streams/{stream}/records HTTP/1.1\r\nhost: localhost\r\ns2-basin: {BASIN}\r\n"
    return f"{head}content-type: application/json\r\ncontent-length: {len(RECORDS)}\r\n\r\n".encode() + RECORDS


def by_s3p(stream: str) -> bytes:
    return encode(["APPEND", stream, [], [b"must not be there"]])


def by_segment(stream: str) -> bytes:
    client = SegmentClient(Dialect.RELEASED)
    create = CreateSegment(1, f"{BASIN}/{stream}-2/0.#epoch.0", 0, 0, "", 0)
    return b"".join([*client.send(Hello(16, 5)), *client.send(create)])


def by_management(_stream: str) -> bytes:
    return b"POST /drain HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


@EVERY_BAD
@pytest.mark.parametrize("listener, request_of", [
    ("s2.mutual", by_http),
    ("s3p.mutual", by_s3p),
    ("segment.mutual", by_segment),
    ("controller.mutual", by_http),
    ("management", by_management),
])  # fmt: skip
def test_no_client_is_served(
    place: Place, curl: Curl, stream: str, listener: str, request_of: Callable[[str], bytes], bad: Bad
) -> None:
    gateway = place.gateway
    before = gateway.refusals(listener).count(bad.reason)
    context = gateway.context(place.shown[bad.who])
    plain = socket.create_connection(("127.0.0.1", gateway.port(listener)), timeout=10)
    with context.wrap_socket(plain, server_hostname="localhost") as client, pytest.raises(ssl.SSLError, match=bad.told):
        client.sendall(request_of(stream))
        client.recv(1)
    wait_until(lambda: gateway.refusals(listener).count(bad.reason) == before + 1)
    assert ask(curl, place, stream, path="/tail")["tail"]["seq_num"] == 1
    assert not gateway.process.events("draining")


def test_s2_sdk_with_a_revoked_certificate(
    place: Place, curl: Curl, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, shown = place.gateway, place.shown["revoked"]
    assert shown is not None
    monkeypatch.setenv("SSL_CERT_FILE", gateway.authority.ca)
    origin = f"https://localhost:{gateway.port('s2.mutual')}"

    async def append() -> None:
        async with s2.S2("a-token", endpoints=s2.Endpoints(origin, origin), retry=s2.Retry(max_attempts=1)) as client:
            client._pool._ssl_context.load_cert_chain(*shown.pair)
            await client.basin(BASIN).stream(stream).append(s2.AppendInput([s2.Record(b"must not be there")]))

    with pytest.raises(s2.S2Error):
        finish(append())
    wait_until(lambda: "the client's certificate is refused: certificate revoked" in gateway.refusals("s2.mutual"))
    assert ask(curl, place, stream, path="/tail")["tail"]["seq_num"] == 1


@EVERY_BAD
@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
def test_curl(place: Place, curl: Curl, stream: str, bad: Bad, version: str) -> None:
    gateway, shown = place.gateway, place.shown[bad.who]
    files = () if shown is None else ("--cert", shown.certificate, "--key", shown.key)
    url = f"https://localhost:{gateway.port('s2.mutual')}/v1/streams/{stream}/records"
    headers = ("-H", f"s2-basin: {BASIN}", "-H", "content-type: application/json")
    answer = curl(version, "--cacert", gateway.authority.ca, *files, *headers, "--data-binary", RECORDS.decode(), url)
    assert answer.returncode in (35, 55, 56) and b"alert" in answer.stderr and answer.stdout == b"", answer
    assert ask(curl, place, stream, path="/tail")["tail"]["seq_num"] == 1


def test_pravega_without_a_certificate(place: Place) -> None:
    need_pravega()
    gateway = place.gateway
    with PravegaClient(gateway.port("controller.mutual"), gateway.authority.ca) as client:
        before = gateway.refusals("controller.mutual")
        client.start("manage", "create_scope", unique("Scope"))  # it tries for ever
        wait_until(lambda: len(gateway.refusals("controller.mutual")) >= len(before) + 2)
    assert set(gateway.refusals("controller.mutual")[len(before) :]) == {"the client presented no certificate"}


def test_pravega_with_the_wrong_authority(place: Place, tmp_path_factory: pytest.TempPathFactory) -> None:
    need_pravega()
    stranger = Authority(tmp_path_factory.mktemp("stranger"), "stranger")
    gateway = place.gateway
    with PravegaClient(gateway.port("controller.tls"), stranger.ca) as client:
        client.start("manage", "create_scope", unique("Scope"))  # it tries for ever
        wait_until(lambda: len(gateway.refusals("controller.tls")) >= 2)
    assert set(gateway.refusals("controller.tls")) == {"the client does not trust our certificate"}
