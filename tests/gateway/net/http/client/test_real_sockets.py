"""The HTTP client over real TCP and TLS: against our own server, and against `s2 lite`."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import orjson
import pytest
import trio
from support.http.handlers import echo
from support.real_backs import S2Lite
from support.tls.certificates import needs_openssl, self_signed

from penstock.model.failures import OperationFailed
from penstock.net.http.client import HttpClient, HttpClientSettings, HttpVersion
from penstock.net.http.exchange import Exchange
from penstock.net.http.serving import serve_http
from penstock.net.tls import ClientTls, tls_context, tls_stream
from penstock.net.upstream import Upstream, UpstreamSettings

VERSIONS = pytest.mark.parametrize("version", list(HttpVersion), ids=lambda version: version.value)


@asynccontextmanager
async def client(port: int, version: HttpVersion, tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpClient]:
    settings = UpstreamSettings(name="far", host="127.0.0.1", port=port, tls=tls)
    async with HttpClient(Upstream(settings), HttpClientSettings(version=version)) as made:
        yield made


# ---- our own server ----------------------------------------------------------------------------------------------
async def handler(exchange: Exchange) -> None:
    """Echo a POST; respond to other requests with the HTTP version and scheme."""
    if exchange.request.method == "POST":
        await echo(exchange)
    else:
        await exchange.respond(200, [], f"{exchange.request.http_version} {exchange.request.scheme}".encode())


@asynccontextmanager
async def server(context: ssl.SSLContext | None) -> AsyncIterator[int]:
    async def serve(stream: trio.SocketStream) -> None:
        await serve_http(stream if context is None else tls_stream(stream, context), handler)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("version, spoken", [
    (HttpVersion.AUTO, b"1.1 http"), (HttpVersion.H1, b"1.1 http"), (HttpVersion.H2, b"2 http"),
])  # fmt: skip
async def test_plaintext(version: HttpVersion, spoken: bytes) -> None:
    body = bytes(range(256)) * 20_000
    async with server(None) as port, client(port, version) as http:
        assert (await http.request("GET", "/")).body == spoken
        assert (await http.request("POST", "/", body=body, max_body=len(body))).body == body


@needs_openssl
@pytest.mark.parametrize("version, protocols, spoken", [
    (HttpVersion.AUTO, ("h2", "http/1.1"), b"2 https"),
    (HttpVersion.AUTO, ("http/1.1",), b"1.1 https"),
    (HttpVersion.H1, ("h2", "http/1.1"), b"1.1 https"),
    (HttpVersion.H2, ("h2", "http/1.1"), b"2 https"),
])  # fmt: skip
async def test_tls(version: HttpVersion, protocols: Sequence[str], spoken: bytes, certificate: tuple[str, str]) -> None:
    body = bytes(range(256)) * 20_000
    trusted = ClientTls(certificate[0])
    async with server(tls_context(*certificate, protocols)) as port, client(port, version, trusted) as http:
        assert (await http.request("GET", "/")).body == spoken
        assert (await http.request("POST", "/", body=body, max_body=len(body))).body == body
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(http.request, "GET", "/")


@needs_openssl
async def test_a_certificate_that_is_not_trusted(certificate: tuple[str, str]) -> None:
    async with server(tls_context(*certificate)) as port, client(port, HttpVersion.AUTO, ClientTls()) as http:
        with pytest.raises(OperationFailed, match="certificate is not trusted"):
            await http.request("GET", "/")


# ---- s2 lite -----------------------------------------------------------------------------------------------------
class S2LiteTls(S2Lite):
    """With a certificate that it makes itself."""

    def command(self) -> Sequence[object]:
        return [*super().command(), "--tls-self"]

    def ready(self) -> bool:
        socket.create_connection(self.address).close()
        return True

    def prepare(self) -> None:
        pass  # the tests do


@pytest.fixture(scope="module")
def lite() -> Iterator[S2Lite]:
    with S2Lite() as server:
        yield server


@pytest.fixture(scope="module")
def lite_tls() -> Iterator[S2Lite]:
    with S2LiteTls() as server:
        yield server


def unverified() -> ClientTls:
    tls = ClientTls()
    tls.context.check_hostname = False
    tls.context.verify_mode = ssl.CERT_NONE
    return tls


async def use_s2(http: HttpClient, basin: str) -> None:
    """A basin, and the list of basins many times at once."""
    json = [("content-type", "application/json")]
    made = await http.request("PUT", f"/v1/basins/{basin}", json, b"{}")
    assert made.status in (200, 201), made
    async with trio.open_nursery() as nursery:

        async def look() -> None:
            answer = await http.request("GET", "/v1/basins")
            assert answer.status == 200
            assert basin in [found["name"] for found in orjson.loads(answer.body)["basins"]]

        for _ in range(50):
            nursery.start_soon(look)
    assert (await http.request("GET", f"/v1/basins/no-such-{basin}", json)).status == 404


@pytest.mark.peer
@VERSIONS
async def test_s2_lite(version: HttpVersion, lite: S2Lite) -> None:
    async with client(lite.address[1], version) as http:
        await use_s2(http, f"basin-{version.value}")


@pytest.mark.peer
@VERSIONS
async def test_s2_lite_over_tls(version: HttpVersion, lite_tls: S2Lite) -> None:
    async with client(lite_tls.address[1], version, unverified()) as http:
        await use_s2(http, f"basin-{version.value}")


@pytest.mark.peer
async def test_s2_lite_with_a_certificate_of_an_unknown_authority(lite_tls: S2Lite) -> None:
    async with client(lite_tls.address[1], HttpVersion.AUTO, ClientTls()) as http:
        with pytest.raises(OperationFailed, match="certificate is not trusted: self-signed certificate"):
            await http.request("GET", "/v1/basins")
