"""Certificates are replaced while clients come and go: no client sees an error, and open connections stay open."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import hiredis
import pytest
import s2_sdk as s2
from support.peers import need, unique
from support.pravega.clients import wait_until
from support.process import BASIN, running_gateway
from support.s2.client import Answer, S2Client
from support.s3p.client import encode
from support.tls.gateway import SecuredGateway, issue_server, secured_gateway

ROTATIONS = 4


@contextmanager
def going_on(*turns: Callable[[], None]) -> Iterator[list[int]]:
    """Each of these over and over, in threads, until the block ends: how often each was done. Raises what they do."""
    done = [0] * len(turns)
    ended = threading.Event()
    failures: list[BaseException] = []

    def go_on(index: int) -> None:
        try:
            while not ended.is_set():
                turns[index]()
                done[index] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=go_on, args=(index,)) for index in range(len(turns))]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


class Rotating:
    """The server's certificate, and the list of those that are revoked, replaced one after the other."""

    def __init__(self, gateway: SecuredGateway, folder: Path) -> None:
        self._gateway = gateway
        self._folder = folder
        self._number = 0
        (folder / "new").mkdir()

    def __call__(self) -> str:
        """The subject that new clients are shown from now on. Files are written beside and moved, as all tools do."""
        self._number += 1
        cn = f"the server, number {self._number}"
        new = self._gateway.authority.issue(
            "server", "localhost", "127.0.0.1", "gateway.example", cn=cn, to=self._folder / "new"
        )
        self._gateway.authority.revoke(self._gateway.guest)
        before = len(self._reloaded())
        for file in new.pair:
            Path(file).replace(self._folder / Path(file).name)
        wait_until(lambda: len(self._reloaded()) > before)
        return cn

    def _reloaded(self) -> list[object]:
        return [one for one in self._gateway.process.events("tls_reloaded") if one["owner"] == "listeners.s2.mutual"]


def subject(gateway: SecuredGateway, listener: str) -> str:
    """Of the certificate that a new client is shown."""
    plain = socket.create_connection(("127.0.0.1", gateway.port(listener)), timeout=10)
    with gateway.context(gateway.ingest).wrap_socket(plain, server_hostname="localhost") as client:
        certificate = client.getpeercert()
    assert certificate is not None
    return next(str(value) for part in certificate["subject"] for key, value in part if key == "commonName")


def by_s3p(gateway: SecuredGateway, name: str) -> Callable[[], None]:
    """A new connection, an append and its answer."""
    context, port = gateway.context(gateway.ingest), gateway.port("s3p.mutual")

    def turn() -> None:
        reader = hiredis.Reader()
        plain = socket.create_connection(("127.0.0.1", port), timeout=10)
        with context.wrap_socket(plain, server_hostname="localhost") as client:
            client.sendall(encode(["APPEND", name, [], [b"over S3P"]]))
            while (reply := reader.gets()) is False:
                reader.feed(client.recv(65536))
        assert isinstance(reply, bytes), reply

    return turn


def by_curl(gateway: SecuredGateway, name: str) -> Callable[[], None]:
    program = need("curl")
    url = f"https://localhost:{gateway.port('s2.mutual')}/v1/streams/{name}/records"
    files = ("--cacert", gateway.authority.ca, "--cert", gateway.ingest.certificate, "--key", gateway.ingest.key)
    headers = ("-H", f"s2-basin: {BASIN}", "-H", "content-type: application/json")
    command = [program, "-sS", "--fail", *files, *headers, "-d", '{"records":[{"body":"over HTTP"}]}', url]

    def turn() -> None:
        answer = subprocess.run(command, capture_output=True, timeout=20)
        assert answer.returncode == 0, answer.stderr

    return turn


class Session:
    """An append session of the SDK that lasts, beside clients of it that come and go."""

    def __init__(self, gateway: SecuredGateway, name: str) -> None:
        self._origin = f"https://localhost:{gateway.port('s2.mutual')}"
        self._shown = gateway.ingest
        self._name = name
        self._ended = threading.Event()
        self.acked = 0
        self.came = 0

    def run(self) -> None:
        """Until told."""
        asyncio.run(self._run())

    def end(self) -> None:
        """Tell it."""
        self._ended.set()

    @contextlib.asynccontextmanager
    async def _client(self):
        never = s2.Retry(max_attempts=1)
        async with s2.S2("a-token", endpoints=s2.Endpoints(self._origin, self._origin), retry=never) as client:
            client._pool._ssl_context.load_cert_chain(*self._shown.pair)
            yield client.basin(BASIN).stream(self._name)

    async def _run(self) -> None:
        async with self._client() as stream, stream.append_session() as session:
            while not self._ended.is_set():
                ticket = await session.submit(s2.AppendInput([s2.Record(b"over a session")]))
                await ticket
                self.acked += 1
                async with self._client() as another:
                    await another.check_tail()
                    self.came += 1


def test_certificates_are_replaced_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with secured_gateway(tmp_path) as gateway:
        monkeypatch.setenv("SSL_CERT_FILE", gateway.authority.ca)
        names = [unique("rotated") for _ in range(3)]
        plain = socket.create_connection(("127.0.0.1", gateway.port("s3p.mutual")), timeout=10)
        session = Session(gateway, names[0])
        rotate = Rotating(gateway, tmp_path)
        with gateway.context(gateway.ingest).wrap_socket(plain, server_hostname="localhost") as old:
            old.sendall(encode(["CREATE", names[2], []]))
            assert old.recv(100) == b"+OK\r\n"
            with going_on(session.run, by_curl(gateway, names[1]), by_s3p(gateway, names[2])) as done:

                def progress() -> list[int]:
                    return [session.acked, session.came, *done[1:]]

                try:
                    for _ in range(ROTATIONS):
                        before = progress()
                        cn = rotate()
                        assert {subject(gateway, listener) for listener in ("s2.mutual", "s3p.mutual")} == {cn}
                        wait_until(lambda: all(now > then for now, then in zip(progress(), before, strict=True)))  # noqa: B023
                finally:
                    session.end()
            old.sendall(encode(["READ", names[2], ["COUNT", 1]]))
            assert b"over S3P" in old.recv(1000)
        assert gateway.refusals("s2.mutual") == gateway.refusals("s3p.mutual") == []
        counts = {name: tail(gateway, name) for name in names}
        assert counts == {names[0]: session.acked, names[1]: done[1], names[2]: done[2]}
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REVOKED"):
            refused(gateway)


def tail(gateway: SecuredGateway, name: str) -> int:
    """Return the number of records in a stream."""
    url = f"https://localhost:{gateway.port('s2.mutual')}/v1/streams/{name}/records/tail"
    files = ("--cacert", gateway.authority.ca, "--cert", gateway.ingest.certificate, "--key", gateway.ingest.key)
    said = subprocess.run(["curl", "-sS", *files, "-H", f"s2-basin: {BASIN}", url], capture_output=True, check=True)
    return int(json.loads(said.stdout)["tail"]["seq_num"])


def refused(gateway: SecuredGateway) -> None:
    """Connect as the guest, whose certificate was revoked meanwhile."""
    plain = socket.create_connection(("127.0.0.1", gateway.port("s2.mutual")), timeout=10)
    with gateway.context(gateway.guest).wrap_socket(plain, server_hostname="localhost") as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        client.recv(1)


@pytest.mark.long
def test_a_broken_certificate_changes_nothing(tmp_path: Path) -> None:
    with secured_gateway(tmp_path) as gateway:
        (tmp_path / "server.pem").write_text("half of a certif")
        wait_until(lambda: len(gateway.process.events("tls_not_reloaded")) >= 9)
        reasons = {event["reason"] for event in gateway.process.events("tls_not_reloaded")}
        assert all("cannot use server.pem and server-key.pem for TLS: " in reason for reason in reasons), reasons
        assert subject(gateway, "s2.mutual") == "the server"
        issue_server(gateway.authority, cn="another")
        wait_until(lambda: len(gateway.process.events("tls_reloaded")) >= 9)
        assert subject(gateway, "s2.mutual") == "another"


BRIDGE = """
[listeners.s2]
bind = "127.0.0.1:{s2_port}"

[backs.far]
kind = "s3p"
address = "localhost:PORT"
tls = true
tls_ca = "AUTHORITY"
tls_certificate = "mine.pem"
tls_key = "mine-key.pem"

[[routes]]
name = "all"
back = "far"

[management]
enabled = false

[store]
directory = "{data}"

[log]
format = "json"
"""


def test_a_back_shows_its_new_certificate(tmp_path: Path) -> None:
    """The gateway is a client itself: its certificate was revoked, and is replaced by another without a restart."""
    (tmp_path / "far").mkdir()
    (tmp_path / "near").mkdir()
    good = "spiffe://example.org/ns/a/sa/ingest"
    with secured_gateway(tmp_path / "far") as far:
        far.authority.revoke(far.authority.issue("mine", good, to=tmp_path / "near"))
        far.reload()
        config = BRIDGE.replace("PORT", str(far.port("s3p.mutual")))
        with running_gateway(config.replace("AUTHORITY", far.authority.ca), directory=tmp_path / "near") as near:
            client = S2Client(("127.0.0.1", near.s2_port), BASIN)

            def append() -> Answer:
                said = {"content-type": "application/json"}
                client.request("PUT", "/v1/streams/behind", b"{}", said)
                return client.request("POST", "/v1/streams/behind/records", b'{"records":[{"body":"x"}]}', said)

            refused = append()
            assert refused.status >= 500 and "our certificate is revoked" in refused.body.decode(), refused
            far.authority.issue("mine", good, to=tmp_path / "near")
            wait_until(lambda: bool(near.events("tls_reloaded")))
            wait_until(lambda: append().status == 200)
