"""The HTTP server under real programs: curl over TCP, both versions, and TLS with a certificate made here."""

import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio
from support.http.client import HttpClient
from support.tls.certificates import needs_openssl, self_signed

from penstock.net.http.exchange import Exchange
from penstock.net.http.serving import HttpSettings, serve_http
from penstock.net.tls import tls_context, tls_stream

CURL = shutil.which("curl")
needs_curl = pytest.mark.skipif(CURL is None, reason="curl is not installed")
VERSIONS = pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])


async def handler(exchange: Exchange) -> None:
    request = exchange.request
    if request.path == "/echo":
        await exchange.start(200, [("content-type", "application/octet-stream")])
        while data := await exchange.receive():
            await exchange.send([data])
        await exchange.finish()
    elif request.path == "/refuse":
        await exchange.respond(413, [], b"too large")
    else:
        await exchange.respond(200, [], f"{request.http_version} {request.scheme} {request.path}".encode())


@asynccontextmanager
async def server(context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server on a free port of the loopback interface; gives the port."""

    async def serve(stream: trio.SocketStream) -> None:
        await serve_http(stream if context is None else tls_stream(stream, context), handler, HttpSettings())

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def curl(*arguments: str, stdin: bytes = b"") -> bytes:
    """Run curl, which must succeed within a minute, and return its output."""
    assert CURL is not None
    with trio.fail_after(60):
        done = await trio.run_process([CURL, "-sS", *arguments], capture_stdout=True, stdin=stdin)
    return bytes(done.stdout)


@needs_curl
async def test_both_versions_on_one_port() -> None:
    async with server() as port:
        assert await curl("--http1.1", f"http://127.0.0.1:{port}/a%2Fb") == b"1.1 http /a%2Fb"
        assert await curl("--http2-prior-knowledge", f"http://127.0.0.1:{port}/a%2Fb") == b"2 http /a%2Fb"


@needs_curl
@VERSIONS
async def test_large_bodies_both_ways(version: str) -> None:
    body = bytes(range(256)) * 20_000
    async with server() as port:
        assert await curl(version, "-T", "-", f"http://127.0.0.1:{port}/echo", stdin=body) == body


@needs_curl
@VERSIONS
async def test_expect_continue(version: str, tmp_path: Path) -> None:
    # curl expects a continue for bodies over 1 MiB, and waits a second for it before it sends all the same.
    body = bytes(range(256)) * 8_000
    blob = tmp_path / "blob"
    blob.write_bytes(body)
    async with server() as port:
        common = (
            version,
            "-D",
            "-",
            "-H",
            "Expect: 100-continue",
            "--expect100-timeout",
            "30",
            "--data-binary",
            f"@{blob}",
        )
        with trio.fail_after(20):
            said = await curl(*common, f"http://127.0.0.1:{port}/echo")
        head, _, rest = said.partition(b"\r\n\r\n")
        assert b" 100" in head
        assert rest.endswith(body)
        with trio.fail_after(20):
            refused = await curl(*common, f"http://127.0.0.1:{port}/refuse")
        assert b" 100" not in refused.partition(b"\r\n\r\n")[0]
        assert b" 413" in refused
        assert refused.endswith(b"too large")


async def connects(*arguments: str) -> bytes:
    """Return how many connections curl made for each of two requests."""
    null = ("-o", "/dev/null")
    return await curl("-w", "%{num_connects} ", *null, *null, *arguments)


@needs_curl
async def test_requests_share_a_connection() -> None:
    # Over HTTP/1.1 only: curl 7.88 cannot use an h2c connection twice (curl issue 10634).
    async with server() as port:
        assert await connects("--http1.1", f"http://127.0.0.1:{port}/x", f"http://127.0.0.1:{port}/y") == b"1 0 "


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    return self_signed(tmp_path_factory.mktemp("tls"))


@needs_openssl
@needs_curl
@pytest.mark.parametrize("version, number", [("--http1.1", "1.1"), ("--http2", "2")])
async def test_tls_with_alpn(version: str, number: str, certificate: tuple[str, str]) -> None:
    body = bytes(range(256)) * 10_000
    async with server(tls_context(*certificate)) as port:
        trusted = (version, "--cacert", certificate[0])
        assert await curl(*trusted, f"https://127.0.0.1:{port}/x") == f"{number} https /x".encode()
        urls = (f"https://127.0.0.1:{port}/x", f"https://127.0.0.1:{port}/y")
        assert await connects(*trusted, *urls) == b"1 0 "
        assert await curl(*trusted, "-T", "-", f"https://127.0.0.1:{port}/echo", stdin=body) == body


@needs_openssl
@pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
async def test_tls_without_alpn_is_sniffed(alpn: str, certificate: tuple[str, str]) -> None:
    context = ssl.create_default_context(cafile=certificate[0])
    async with server(tls_context(*certificate)) as port:
        stream = await trio.open_ssl_over_tcp_stream("127.0.0.1", port, ssl_context=context, https_compatible=True)
        async with stream:
            answer = await HttpClient(stream, alpn).ask("GET", "/x")
        assert answer.body == ("2 https /x" if alpn == "h2" else "1.1 https /x").encode()


@needs_openssl
async def test_plaintext_on_the_tls_port_harms_no_other(certificate: tuple[str, str]) -> None:
    async with server(tls_context(*certificate)) as port:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            with trio.fail_after(10), suppress(trio.BrokenResourceError):
                assert b"HTTP" not in await stream.receive_some(1000)
        context = ssl.create_default_context(cafile=certificate[0])
        stream2 = await trio.open_ssl_over_tcp_stream("127.0.0.1", port, ssl_context=context, https_compatible=True)
        async with stream2:
            assert (await HttpClient(stream2, "http/1.1").ask("GET", "/x")).status == 200


def test_a_certificate_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        tls_context(str(tmp_path / "none.pem"))
    (tmp_path / "bad.pem").write_text("not a certificate")
    with pytest.raises(ssl.SSLError):
        tls_context(str(tmp_path / "bad.pem"))
