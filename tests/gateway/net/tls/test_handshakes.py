"""A listener's handshakes: which clients get through, their identities, and the errors of those that do not."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs
from support.tls import client_context, greet
from support.tls.authority import Authority, Issued

from penstock.core.identity import NO_IDENTITIES, Identities
from penstock.net.limits import CONNECTION_QUOTA, Limiter
from penstock.net.limits.limiter import ConnectionQuota, client_key
from penstock.net.tls import Pair, ServerFiles, ServerTls, tls_stream
from penstock.net.tls.handshakes import Handshakes, HandshakeSettings
from penstock.observe.metrics.families import CONNECTIONS_REFUSED, LIMITED

DAY = timedelta(days=1)
Serving = Callable[..., ServerTls]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that is not trusted."""
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module")
def server(authority: Authority) -> Issued:
    return authority.issue("server", "server.example", cn="the server")


@pytest.fixture
def serving(server: Issued) -> Serving:
    """The TLS of a listener with this certificate, and whatever else is said."""

    def serve(**files: Any) -> ServerTls:
        return ServerTls("listeners.test", ServerFiles(pair=Pair(server.certificate, server.key), **files))

    return serve


async def test_without_authorities_no_certificate_is_requested(authority: Authority, serving: Serving) -> None:
    found = await greet(serving(), client_context(authority))
    assert (found.served, found.error, found.shown, found.version) == ([""], None, "the server", "TLSv1.3")


async def test_a_client_that_does_not_trust_the_server_is_not_served(stranger: Authority, serving: Serving) -> None:
    with capture_logs() as logs:
        found = await greet(serving(), client_context(stranger))
    assert found.served == []
    (said,) = [line for line in logs if line["event"] == "tls_refused"]
    assert (said["log_level"], said["reason"]) == ("warning", "the client does not trust our certificate")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("who, alert, reason", [
    ("no certificate", "CERTIFICATE_REQUIRED HANDSHAKE_FAILURE", "the client presented no certificate"),
    ("strange", "UNKNOWN_CA", "the client's certificate is refused: unable to get local issuer certificate"),
    ("expired", "CERTIFICATE_EXPIRED", "the client's certificate is refused: certificate has expired"),
    ("revoked", "CERTIFICATE_REVOKED", "the client's certificate is refused: certificate revoked"),
])  # fmt: skip
async def test_bad_certificates_are_refused_and_told_why(
    authority: Authority,
    stranger: Authority,
    serving: Serving,
    who: str,
    alert: str,
    reason: str,
    version: ssl.TLSVersion,
) -> None:
    revoked = authority.issue("revoked", "a.example")
    authority.revoke(revoked)
    shown = {
        "no certificate": None,
        "strange": stranger.issue("strange", "a.example"),
        "expired": authority.issue("expired", "a.example", until=-DAY),
        "revoked": revoked,
    }[who]
    before = CONNECTIONS_REFUSED.labels("listeners.test", "test", "handshake").value
    context = client_context(authority, shown)
    context.maximum_version = version
    with capture_logs() as logs:
        found = await greet(serving(client_ca=authority.ca, client_crl=authority.crl), context)
    assert found.served == []
    assert found.error is not None and any(word in found.error for word in alert.split()), found.error
    assert [line["reason"] for line in logs if line["event"] == "tls_refused"] == [reason]
    assert CONNECTIONS_REFUSED.labels("listeners.test", "test", "handshake").value == before + 1


async def test_a_good_certificate_is_served_with_or_without_being_required(
    authority: Authority, serving: Serving
) -> None:
    context = client_context(authority, authority.issue("good", "a.example"))
    for required in (True, False):
        authority.revoke()
        tls = serving(client_ca=authority.ca, client_crl=authority.crl, required=required)
        assert (await greet(tls, context)).served == [""]


async def test_where_certificates_are_optional_none_is_fine_and_a_bad_one_is_not(
    authority: Authority, stranger: Authority, serving: Serving
) -> None:
    tls = serving(client_ca=authority.ca, required=False)
    assert (await greet(tls, client_context(authority))).served == [""]
    assert (await greet(tls, client_context(authority, stranger.issue("s", "a.example")))).served == []


async def test_a_list_that_is_out_of_date_lets_no_client_in(authority: Authority, serving: Serving) -> None:
    authority.revoke(until=-DAY)
    with capture_logs() as logs:
        found = await greet(
            serving(client_ca=authority.ca, client_crl=authority.crl),
            client_context(authority, authority.issue("good", "a.example")),
        )
    assert found.served == []
    assert [line["reason"] for line in logs if line["event"] == "tls_refused"] == [
        "the client's certificate is refused: CRL has expired"
    ]


@pytest.mark.parametrize("names, cn, identity", [
    (("web.apps.example",), "x", "web"),
    (("WEB.apps.example",), "x", "web"),
    (("spiffe://example.org/ns/prod/sa/ingest",), "x", "ingest"),
    (("spiffe://example.org/ns/a/b/sa/ingest",), "x", ""),
    (("ann@example.org",), "x", "people"),
    ((), "collector", "by-name"),
    (("collector",), "x", ""),
    (("web.apps.example", "spiffe://example.org/ns/prod/sa/ingest"), "collector", "ingest"),
])  # fmt: skip
async def test_a_certificate_says_who_a_client_is(
    authority: Authority, serving: Serving, names: tuple[str, ...], cn: str, identity: str
) -> None:
    """Kinds of names are not mixed up, and what stands first in the configuration counts."""
    identities = Identities.of(
        [
            ("ingest", (), ("spiffe://example.org/ns/*/sa/ingest",), ()),
            ("web", (), ("dns:*.apps.example",), ()),
            ("people", (), ("email:*@example.org",), ()),
            ("by-name", (), ("cn:collector",), ()),
        ]
    )
    shown = authority.issue("named", *names, cn=cn)
    found = await greet(serving(client_ca=authority.ca), client_context(authority, shown), identities=identities)
    assert found.served == [identity]


@pytest.mark.parametrize("shown, known, counted", [("ingest", True, "ingest"), ("other", True, ""), (None, False, "")])
async def test_who_shows_a_certificate_is_no_stranger_to_limits(
    authority: Authority, serving: Serving, shown: str | None, known: bool, counted: str
) -> None:
    """It is counted under its identity, whatever address it connects from."""
    limiter = Limiter()
    quota = limiter.enter("listeners.test", 10, "192.0.2.1", "")
    assert isinstance(quota, ConnectionQuota)
    CONNECTION_QUOTA.set(quota)
    identities = Identities.of([("ingest", (), ("cn:ingest",), ())])
    context = client_context(authority, authority.issue("named", cn=shown) if shown else None)
    found = await greet(serving(client_ca=authority.ca, required=False), context, identities=identities)
    assert found.served == [counted]
    assert (quota.authenticated, quota.account.key) == (known, client_key("" if counted else "192.0.2.1", counted))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("asking", [False, True])
def test_no_session_is_resumed_where_certificates_are_shown(
    authority: Authority, serving: Serving, version: ssl.TLSVersion, asking: bool
) -> None:
    """A resumed session shows no certificate again: a client revoked meanwhile would get in."""
    tls = serving(client_ca=authority.ca) if asking else serving()
    context = client_context(authority, authority.issue("good", "a.example"))
    context.maximum_version = version
    session, resumed = None, []
    for _ in range(2):
        ours, theirs = socket.socketpair()
        thread = threading.Thread(target=_say_one, args=(theirs, tls.context))
        thread.start()
        with context.wrap_socket(ours, server_hostname="server.example", session=session) as client:
            assert client.recv(1) == b"x"
            session = client.session
            resumed.append(client.session_reused)
        thread.join()
    assert resumed == [False, not asking]


def _say_one(plain: socket.socket, context: ssl.SSLContext) -> None:
    with context.wrap_socket(plain, server_side=True) as server:
        server.sendall(b"x")
        server.recv(1)


async def test_a_flood_of_bad_handshakes_is_no_flood_of_lines(
    serving: Serving, autojump_clock: trio.testing.MockClock
) -> None:
    handshakes = Handshakes("listeners.test", HandshakeSettings(), _never, lambda: None)
    tls = serving()
    before = CONNECTIONS_REFUSED.labels("listeners.test", "test", "handshake").value

    async def refused(times: int) -> list[str]:
        with capture_logs() as logs:
            for _ in range(times):
                ours, theirs = trio.testing.memory_stream_pair()
                await ours.send_all(b"GET / HTTP/1.1\r\n\r\n")
                await ours.send_eof()
                await handshakes.serve(tls_stream(theirs, tls.context))
        return [line["reason"] for line in logs]

    assert await refused(25) == ["the client does not speak TLS"] * 10
    await trio.sleep(1)
    assert await refused(1) == ["15 more, which are not logged one by one", "the client does not speak TLS"]
    assert CONNECTIONS_REFUSED.labels("listeners.test", "test", "handshake").value == before + 26


@pytest.mark.parametrize("offered, agreed", [
    (("h2", "http/1.1"), "h2"),
    (("http/1.1",), "http/1.1"),
    (("spdy",), None),
    ((), None),
])  # fmt: skip
async def test_alpn(authority: Authority, serving: Serving, offered: tuple[str, ...], agreed: str | None) -> None:
    assert (await greet(serving(), client_context(authority, alpn=offered))).alpn == agreed


async def test_old_versions_are_refused(authority: Authority, serving: Serving) -> None:
    context = client_context(authority)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with capture_logs() as logs:
        found = await greet(serving(), context)
    assert found.served == []
    assert [line["reason"] for line in logs if line["event"] == "tls_refused"] == ["no common version of TLS"]


async def test_plaintext_is_told_from_tls(serving: Serving) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    handshakes = Handshakes("listeners.test", HandshakeSettings(), _never, lambda: None)
    await ours.send_all(b"GET / HTTP/1.1\r\n\r\n")
    await ours.send_eof()
    with capture_logs() as logs:
        await handshakes.serve(tls_stream(theirs, serving().context))
    assert [line["reason"] for line in logs if line["event"] == "tls_refused"] == ["the client does not speak TLS"]


async def test_who_goes_away_is_no_matter_for_a_warning(serving: Serving) -> None:
    """Load balancers look whether the port is open."""
    ours, theirs = trio.testing.memory_stream_pair()
    handshakes = Handshakes("listeners.test", HandshakeSettings(), _never, lambda: None)
    await ours.aclose()
    with capture_logs() as logs:
        await handshakes.serve(tls_stream(theirs, serving().context))
    assert [line["log_level"] for line in logs] == ["debug"]


async def test_a_handshake_has_its_time(serving: Serving, autojump_clock: trio.testing.MockClock) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    await ours.send_all(b"\x16\x03\x01")
    before = LIMITED.labels("listeners.test", "tls_handshake_seconds").value
    handshakes = Handshakes("listeners.test", HandshakeSettings(seconds=2.5), _never, lambda: None)
    began = trio.current_time()
    with capture_logs() as logs:
        await handshakes.serve(tls_stream(theirs, serving().context))
    assert trio.current_time() - began == 2.5
    assert [line["reason"] for line in logs if line["event"] == "tls_refused"] == ["no handshake in 2.5 s"]
    assert LIMITED.labels("listeners.test", "tls_handshake_seconds").value == before + 1
    assert await ours.receive_some() == b""


async def test_a_drain_does_not_wait_for_handshakes(
    serving: Serving, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    drained: list[bool] = []
    handshakes = Handshakes("listeners.test", HandshakeSettings(), _never, lambda: drained.append(True))
    nursery.start_soon(handshakes.serve, tls_stream(theirs, serving().context))
    await trio.testing.wait_all_tasks_blocked()
    began = trio.current_time()
    handshakes.begin_drain()
    assert await ours.receive_some() == b""
    assert (trio.current_time() - began, drained) == (0, [True])


async def test_a_stream_without_tls_is_passed_on_as_it_is() -> None:
    _ours, theirs = trio.testing.memory_stream_pair()
    served: list[trio.abc.Stream] = []

    async def front(stream: trio.abc.Stream) -> None:
        served.append(stream)

    await Handshakes("listeners.test", HandshakeSettings(identities=NO_IDENTITIES), front, lambda: None).serve(theirs)
    assert served == [theirs]


async def _never(_stream: trio.abc.Stream) -> None:
    raise AssertionError("a front was reached")


def test_what_a_handshake_is_told_may_change(tmp_path: Path) -> None:
    """A reload gives it others."""
    settings = HandshakeSettings()
    handshakes = Handshakes("listeners.test", settings, _never, lambda: None)
    settings.seconds = 1
    assert handshakes.settings.seconds == 1
