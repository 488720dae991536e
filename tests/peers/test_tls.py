"""Real clients over TLS and with certificates of their own, on every listener."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import hiredis
import pytest
import s2_sdk as s2
from click.testing import CliRunner
from support.peers import Curl, finish, unique
from support.pravega.clients import PravegaClient, need_pravega, wait_until
from support.process import BASIN
from support.s3p.client import encode
from support.tls.authority import Authority, Issued
from support.tls.gateway import SecuredGateway, secured_gateway

from penstock.cli import main

JSON = ("-H", "content-type: application/json", "-H", f"s2-basin: {BASIN}")
BODY = b'{"records":[{"body":"one"},{"body":"two"}]}'


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredGateway]:
    with secured_gateway(tmp_path_factory.mktemp("secured")) as gateway:
        yield gateway


@pytest.fixture
def name() -> str:
    return unique("over-tls")


class S3PReader:
    """S3P over TLS, with replies read by hiredis."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self.socket = context.wrap_socket(
            socket.create_connection(("127.0.0.1", port), timeout=10), server_hostname="localhost"
        )
        self._reader = hiredis.Reader()

    def ask(self, *command: object) -> Any:
        self.socket.sendall(encode(list(command)))
        while (reply := self._reader.gets()) is False:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self._reader.feed(data)
        return reply


def files(shown: Issued | None) -> tuple[str, ...]:
    return () if shown is None else ("--cert", shown.certificate, "--key", shown.key)


# ---- curl ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version, spoken", [("--http1.1", "1.1"), ("--http2", "2")])
@pytest.mark.parametrize("listener", ["s2.tls", "s2.mutual"])
def test_curl(curl: Curl, secured: SecuredGateway, name: str, listener: str, version: str, spoken: str) -> None:
    """The HTTP version is negotiated by ALPN."""
    ask = (version, "--cacert", secured.authority.ca, *files(secured.ingest if listener == "s2.mutual" else None))
    url = f"https://127.0.0.1:{secured.port(listener)}/v1/streams/{name}/records"
    answer = curl(*ask, "--fail", *JSON, "-w", "\n%{http_version}", "--data-binary", "@-", url, stdin=BODY)
    assert answer.returncode == 0, answer.stderr
    ack, _, said = answer.stdout.rpartition(b"\n")
    assert (json.loads(ack)["end"]["seq_num"], said.decode()) == (2, spoken)
    read = json.loads(curl(*ask, "--fail", *JSON, f"{url}?seq_num=0").stdout)
    assert [record["body"] for record in read["records"]] == ["one", "two"]


@pytest.mark.parametrize("host, shown", [
    ("gateway.example", "the server"), ("other.example", "the other"), ("127.0.0.1", "the server"),
])  # fmt: skip
def test_curl_is_shown_the_certificate_of_the_name_that_it_asks_for(
    curl: Curl, secured: SecuredGateway, host: str, shown: str
) -> None:
    port = secured.port("s2.tls")
    there = ("--resolve", f"{host}:{port}:127.0.0.1", "--cacert", secured.authority.ca)
    answer = curl("--fail", "--verbose", *there, *JSON, f"https://{host}:{port}/v1/streams")
    assert answer.returncode == 0, answer.stderr
    assert f"subject: CN={shown}".encode() in answer.stderr


def test_curl_with_the_wrong_authority_sends_nothing(
    curl: Curl, secured: SecuredGateway, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stranger = Authority(tmp_path_factory.mktemp("stranger"), "stranger")
    url = f"https://127.0.0.1:{secured.port('s2.tls')}/v1/streams/{name}/records"
    answer = curl("--cacert", stranger.ca, *JSON, "--data-binary", "@-", url, stdin=BODY)
    assert answer.returncode == 60 and b"certificate" in answer.stderr
    wait_until(lambda: "the client does not trust our certificate" in secured.refusals("s2.tls"))


def test_curl_at_the_management_listener(curl: Curl, secured: SecuredGateway) -> None:
    url = f"https://127.0.0.1:{secured.port('management')}/metrics"
    answer = curl("--fail", "--cacert", secured.authority.ca, *files(secured.guest), url)
    assert answer.returncode == 0, answer.stderr
    ends = [line for line in answer.stdout.decode().splitlines() if "certificate_expiry" in line and "#" not in line]
    assert any('file="server.pem"' in line and 'owner="listeners.s2.tls"' in line for line in ends), ends
    assert curl("--fail", "--cacert", secured.authority.ca, url).returncode != 0


def test_our_own_commands_at_the_management_listener(secured: SecuredGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    there = f"https://localhost:{secured.port('management')}"
    told = CliRunner().invoke(main, ["connections", "--management", there])
    assert told.exit_code == 1 and "certificate verify failed" in told.output
    monkeypatch.setenv("PENSTOCK_MANAGEMENT_CA", secured.authority.ca)
    told = CliRunner().invoke(main, ["connections", "--management", there])
    assert told.exit_code == 1 and f"no answer from {there}: " in told.output and "alert" in told.output
    shown = ["--management-certificate", secured.guest.certificate, "--management-key", secured.guest.key]
    told = CliRunner().invoke(main, ["connections", "--management", there, *shown])
    assert told.exit_code == 0, told.output


# ---- s2-sdk --------------------------------------------------------------------------------------------------------


async def append_and_read(port: int, stream: str, shown: Issued | None = None) -> list[bytes]:
    """By sessions. The SDK takes its authorities from SSL_CERT_FILE; a certificate of its own is no option of it, so
    it goes into the context that it has made."""
    origin = f"https://localhost:{port}"
    async with s2.S2("a-token", endpoints=s2.Endpoints(origin, origin), retry=s2.Retry(max_attempts=1)) as client:
        if shown is not None:
            client._pool._ssl_context.load_cert_chain(*shown.pair)
        there = client.basin(BASIN).stream(stream)
        async with there.append_session() as session:
            for number in range(3):
                ticket = await session.submit(s2.AppendInput([s2.Record(b"%d" % number)]))
                await ticket
        found: list[bytes] = []
        async for batch in there.read_session(start=s2.SeqNum(0), limit=s2.ReadLimit(count=3)):
            found += [record.body for record in batch.records]
        return found


@pytest.mark.parametrize("listener", ["s2.tls", "s2.mutual"])
def test_s2_sdk(secured: SecuredGateway, name: str, listener: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", secured.authority.ca)
    shown = secured.ingest if listener == "s2.mutual" else None
    assert finish(append_and_read(secured.port(listener), name, shown)) == [b"0", b"1", b"2"]


def test_s2_sdk_is_who_its_certificate_says(
    secured: SecuredGateway, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", secured.authority.ca)
    assert finish(append_and_read(secured.port("s2.mutual"), name, secured.ingest)) == [b"0", b"1", b"2"]
    with pytest.raises(s2.S2Error, match="read-only"):
        finish(append_and_read(secured.port("s2.mutual"), name, secured.guest))


# ---- S3P -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["s3p.tls", "s3p.mutual"])
def test_s3p(secured: SecuredGateway, name: str, listener: str) -> None:
    client = S3PReader(secured.port(listener), secured.context(secured.ingest if listener == "s3p.mutual" else None))
    with client.socket:
        assert client.ask("CREATE", name, []) == b"OK"
        last = client.ask("APPEND", name, [], [b"one", b"two" * 100_000])
        assert client.ask("READ", name, [])[1::2] == [b"one", b"two" * 100_000]
    if listener == "s3p.tls":
        return
    guest = S3PReader(secured.port(listener), secured.context(secured.guest))
    with guest.socket:
        refused = guest.ask("APPEND", name, [], [b"three"])
        assert isinstance(refused, hiredis.ReplyError) and "read-only" in str(refused), refused
        assert guest.ask("READ", name, ["MIN_ID", last])[1::2] == [b"two" * 100_000]


# ---- Pravega -------------------------------------------------------------------------------------------------------


def test_pravega(secured: SecuredGateway) -> None:
    """Controller and segments; the client cannot show a certificate."""
    need_pravega()
    scope = unique("Scope")
    with PravegaClient(secured.port("controller.tls"), secured.authority.ca) as client:
        assert client.call("manage", "create_scope", scope) is True
        assert client.call("manage", "create_stream", scope, "events", 1) is True
        client.call("write", scope, "events", [["one", None], ["two", None]])
        client.call("group", "readers", scope, "events")
        client.call("reader", "reader", "readers")
        found = client.call("read", ["reader"], 2, 20)
    assert [body for _offset, body in found["reader"]] == ["one", "two"]
