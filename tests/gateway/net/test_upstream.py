"""Dialling: deadlines, TLS, the circuit breaker, credentials."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs
from support.tls.certificates import needs_openssl, self_signed
from support.upstreams import WHERE, Far, far_server

from penstock.core.errors import CannotStart
from penstock.core.identity import CLIENT, Client
from penstock.model.failures import FailureCode, OperationFailed
from penstock.net.tls import ClientTls, tls_context, tls_stream
from penstock.net.upstream import (
    BreakerState,
    Credentials,
    CredentialsMode,
    Upstream,
    UpstreamSettings,
    lost,
    reason_of,
    too_late,
    unreachable,
)

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


async def quiet(stream: trio.abc.Stream) -> None:
    """A server that waits for the client to close."""
    while await stream.receive_some():
        pass


async def refusal(upstream: Upstream) -> str:
    """The message of a connection that cannot be made."""
    with pytest.raises(OperationFailed) as caught:
        await upstream.connect()
    failure = caught.value.failure
    assert failure.code is FailureCode.HOT_SERVER and failure.retryable and not failure.side_effect_possible
    return failure.message


# ---- failures ----------------------------------------------------------------------------------------------------
def test_failures_name_the_back_and_say_what_is_known() -> None:
    back = UpstreamSettings(name="lite", host="127.0.0.1", port=8090)
    where = "back lite at 127.0.0.1:8090"
    for error, code, text in (
        (unreachable(back, "why"), FailureCode.HOT_SERVER, f"{where}: why"),
        (lost(back, "why"), FailureCode.UNAVAILABLE, f"{where}: why"),
        (too_late(back, "acknowledgement", 2.5), FailureCode.UPSTREAM_TIMEOUT, f"{where}: no acknowledgement in 2.5 s"),
    ):
        assert (error.failure.code, error.failure.message) == (code, text)
    assert UpstreamSettings(name="x", host="::1", port=1).where == "back x at [::1]:1"


async def test_a_refused_connection_is_told() -> None:
    async with far_server(quiet) as far:
        far.up = False
        assert await refusal(far.upstream()) == f"{WHERE}: cannot connect: connection refused"


async def test_a_real_port_without_a_listener_is_reported() -> None:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    upstream = Upstream(UpstreamSettings(name="far", host="127.0.0.1", port=port))
    assert await refusal(upstream) == f"back far at 127.0.0.1:{port}: cannot connect: connection refused"


async def test_an_unknown_name_is_reported() -> None:
    upstream = Upstream(UpstreamSettings(name="far", host="no such host", port=1))
    assert re.search(r"cannot connect: the host name cannot be resolved \(.+\)$", await refusal(upstream))


@pytest.mark.parametrize("host", ["x" * 70 + ".test", ".", "a..b", "\0"])
async def test_what_can_be_no_hosts_name_is_told(host: str) -> None:
    upstream = Upstream(UpstreamSettings(name="far", host=host, port=1))
    assert "cannot connect: " in await refusal(upstream)


async def test_a_server_that_does_not_answer_is_given_up_in_time(autojump_clock: trio.testing.MockClock) -> None:
    async with far_server(quiet) as far:
        far.silent = True
        start = trio.current_time()
        assert await refusal(far.upstream(connect_seconds=2.0)) == f"{WHERE}: cannot connect: no connection in 2 s"
        assert trio.current_time() - start == 2.0


# ---- TLS ---------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return self_signed(tmp_path_factory.mktemp("tls"), "DNS:example")


def secured(far: Far, context: ssl.SSLContext, **settings: object) -> Upstream:
    return far.upstream(tls=context, **settings)


async def tls_server(stream: trio.abc.Stream, context: ssl.SSLContext) -> None:
    try:
        await quiet(tls_stream(stream, context))
    except trio.BrokenResourceError:
        return  # the client did not like the certificate, or we not its


def serving_tls(context: ssl.SSLContext):
    return lambda stream: tls_server(stream, context)


@needs_openssl
@pytest.mark.parametrize("offered, spoken, agreed", [
    (("h2", "http/1.1"), ("http/1.1", "h2"), "h2"),
    (("h2", "http/1.1"), ("http/1.1",), "http/1.1"),
    (("http/1.1",), (), None),
    ((), ("h2",), None),
])  # fmt: skip
async def test_tls_agrees_on_a_protocol(
    offered: tuple[str, ...], spoken: tuple[str, ...], agreed: str | None, certificate: tuple[str, str]
) -> None:
    context = tls_context(*certificate, protocols=spoken)
    async with far_server(serving_tls(context)) as far:
        upstream = secured(far, ClientTls(certificate[0]))
        for _ in range(2):
            async with await upstream.connect(offered) as stream:
                assert isinstance(stream, trio.SSLStream)
                # The client's order counts for nothing in Python's servers; those that have one choose by theirs.
                found = stream.selected_alpn_protocol()
                assert found == agreed or (found in offered and found in spoken)
        assert upstream.breaker.state is CLOSED


@needs_openssl
async def test_a_certificate_that_is_not_trusted_is_told(certificate: tuple[str, str]) -> None:
    async with far_server(serving_tls(tls_context(*certificate))) as far:
        message = await refusal(secured(far, ClientTls()))
    assert message == f"{WHERE}: cannot connect: TLS: the server's certificate is not trusted: self-signed certificate"


@needs_openssl
async def test_a_certificate_for_another_name_is_told(certificate: tuple[str, str]) -> None:
    async with far_server(serving_tls(tls_context(*certificate))) as far:
        message = await refusal(secured(far, ClientTls(certificate[0]), server_name="elsewhere"))
        assert "TLS: the server's certificate is for another name: Hostname mismatch" in message
        message = await refusal(secured(far, ClientTls(certificate[0]), host="127.0.0.1"))
        assert "TLS: the server's certificate is for another name: IP address mismatch" in message
        async with await secured(far, ClientTls(certificate[0]), host="127.0.0.1", server_name="example").connect():
            pass


async def test_a_server_without_tls_is_told(autojump_clock: trio.testing.MockClock) -> None:
    async def plain(stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with far_server(plain) as far:
        message = await refusal(secured(far, ClientTls()))
    assert message == f"{WHERE}: cannot connect: TLS: the server does not speak TLS"


async def test_a_server_that_hangs_up_during_the_handshake_is_told() -> None:
    async def deaf(stream: trio.abc.Stream) -> None:
        await stream.receive_some()

    async with far_server(deaf) as far:
        message = await refusal(secured(far, ClientTls()))
    assert message == f"{WHERE}: cannot connect: TLS: the server closed the connection during the handshake"


async def test_a_handshake_has_the_same_deadline(autojump_clock: trio.testing.MockClock) -> None:
    async with far_server(quiet) as far:
        message = await refusal(secured(far, ClientTls(), connect_seconds=1.5))
        assert message == f"{WHERE}: cannot connect: no connection in 1.5 s"
        await trio.testing.wait_all_tasks_blocked()
        assert far.open == 0


@needs_openssl
async def test_a_client_certificate_is_shown(certificate: tuple[str, str]) -> None:
    context = tls_context(*certificate)
    context.load_verify_locations(certificate[0])
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # in TLS 1.3 the client's handshake is over by then
    async with far_server(serving_tls(context)) as far:
        async with await secured(far, ClientTls(certificate[0], *certificate)).connect():
            pass
        assert "during the handshake" in await refusal(secured(far, ClientTls(certificate[0])))


@pytest.mark.parametrize("reason, text", [
    ("TLSV1_ALERT_NO_APPLICATION_PROTOCOL", "the server supports none of the offered protocols"),
    ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "the server requires a client certificate"),
    ("TLSV1_ALERT_UNKNOWN_CA", "the server does not trust our client certificate"),
    ("TLSV1_ALERT_PROTOCOL_VERSION", "no common version of TLS"),
    ("SSLV3_ALERT_DECOMPRESSION_FAILURE", "sslv3 alert decompression failure"),
])  # fmt: skip
def test_what_servers_say_in_alerts_is_told_in_words(reason: str, text: str) -> None:
    cause = ssl.SSLError(1, "...")
    cause.reason = reason
    error = trio.BrokenResourceError()
    error.__cause__ = cause
    assert reason_of(error) == f"TLS: {text}"


@needs_openssl
def test_files_that_cannot_be_used_are_named(certificate: tuple[str, str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("not a certificate")
    none = str(tmp_path / "none.pem")
    for arguments, text in (
        ((none,), f"cannot use the authorities in {none}: No such file"),
        ((str(bad),), f"cannot use the authorities in {bad}"),
        ((None, none), f"cannot use the certificate {none}: No such file"),
        ((None, certificate[0], str(bad)), f"cannot use the certificate {certificate[0]} with key {bad}"),
        ((None, None, none), "a key without a certificate"),
    ):
        with pytest.raises(CannotStart, match=re.escape(text)):
            ClientTls(*arguments)


# ---- the circuit -------------------------------------------------------------------------------------------------
async def test_the_circuit_opens_after_failures_in_a_row(autojump_clock: trio.testing.MockClock) -> None:
    async with far_server(quiet) as far:
        upstream = far.upstream(breaker_failures=3, breaker_open_seconds=2.0)
        breaker = upstream.breaker
        far.up = False
        for _ in range(2):
            await refusal(upstream)
        far.up = True
        await (await upstream.connect()).aclose()  # that ends the row
        far.up = False
        with capture_logs() as logs:
            for _ in range(3):
                assert breaker.state is CLOSED
                await refusal(upstream)
        assert logs == [
            {"event": "back_circuit", "log_level": "warning", "back": "far", "state": "open",
             "reason": "cannot connect: connection refused"}
        ]  # fmt: skip
        assert (breaker.state, breaker.since, breaker.reason) == (
            OPEN, trio.current_time(), "cannot connect: connection refused",
        )  # fmt: skip


async def opened(far: Far) -> Upstream:
    """An upstream whose circuit was opened just now, for 2 s."""
    upstream = far.upstream(breaker_failures=1, breaker_open_seconds=2.0)
    far.up = False
    await refusal(upstream)
    assert upstream.breaker.state is OPEN
    return upstream


async def test_an_open_circuit_fails_at_once_and_says_for_how_long(autojump_clock: trio.testing.MockClock) -> None:
    async with far_server(quiet) as far:
        upstream = await opened(far)
        await trio.sleep(0.5)
        with pytest.raises(OperationFailed) as caught:
            await upstream.connect()
        assert caught.value.failure.message == f"{WHERE}: the circuit is open: cannot connect: connection refused"
        assert caught.value.failure.details == {"circuit": "open", "retry_after": 1.5}
        assert far.dials == 1


@pytest.mark.parametrize("up, state", [(True, CLOSED), (False, OPEN)])
async def test_half_open_lets_one_through_which_decides(
    up: bool, state: BreakerState, autojump_clock: trio.testing.MockClock
) -> None:
    async with far_server(quiet) as far:
        upstream = await opened(far)
        breaker = upstream.breaker
        await trio.sleep(2.0)
        far.up = up
        with capture_logs() as logs:
            if up:
                await (await upstream.connect()).aclose()
            else:
                await refusal(upstream)
        assert breaker.state is state
        assert [log["state"] for log in logs] == ["half-open", state.value]
        assert (breaker.since, far.dials) == (trio.current_time(), 2)
        assert breaker.reason == ("" if up else "cannot connect: connection refused")


async def test_others_fail_at_once_while_one_is_let_through(autojump_clock: trio.testing.MockClock) -> None:
    async with far_server(quiet) as far, trio.open_nursery() as nursery:
        upstream = await opened(far)
        await trio.sleep(2.0)
        far.silent = True
        nursery.start_soon(refusal, upstream)
        await trio.testing.wait_all_tasks_blocked()
        assert upstream.breaker.state is HALF_OPEN
        assert "the circuit is half-open" in await refusal(upstream)
        assert far.dials == 2


async def test_an_attempt_that_is_cancelled_leaves_the_next_one_through(autojump_clock: trio.testing.MockClock) -> None:
    async with far_server(quiet) as far:
        upstream = await opened(far)
        await trio.sleep(2.0)
        far.silent = True
        with trio.move_on_after(0.1):
            await upstream.connect()
        assert upstream.breaker.state is HALF_OPEN
        far.silent, far.up = False, True
        await (await upstream.connect()).aclose()
        assert upstream.breaker.state is CLOSED


async def test_connections_lost_before_an_answer_open_it_too(autojump_clock: trio.testing.MockClock) -> None:
    async with far_server(quiet) as far:
        upstream = far.upstream(breaker_failures=2, breaker_open_seconds=1.0)
        breaker = upstream.breaker

        async def lose() -> None:
            await (await upstream.connect()).aclose()
            breaker.lost("closed without an answer")

        await lose()
        breaker.succeeded()
        await lose()
        assert breaker.state is CLOSED
        await lose()
        assert (breaker.state, breaker.reason) == (OPEN, "closed without an answer")
        assert not breaker.wants_request
        await trio.sleep(1.0)
        assert breaker.wants_request
        await lose()  # still no answer: one is enough
        assert (breaker.state, far.dials) == (OPEN, 4)


async def test_after_requests_without_an_answer_an_answer_closes_it(autojump_clock: trio.testing.MockClock) -> None:
    async with far_server(quiet) as far:
        upstream = far.upstream(breaker_failures=1, breaker_open_seconds=1.0, connect_seconds=3.0, request_seconds=5.0)
        breaker = upstream.breaker
        breaker.lost("no answer in 5 s")
        await trio.sleep(1.0)
        await (await upstream.connect()).aclose()
        assert (breaker.state, breaker.reason, breaker.wants_request) == (HALF_OPEN, "no answer in 5 s", False)
        with pytest.raises(OperationFailed, match="the circuit is half-open") as caught:
            await upstream.connect()
        assert caught.value.failure.details == {"circuit": "half-open", "retry_after": 1.0}
        await trio.sleep(8.0)  # of the one that was let through nothing was heard: it was not used, or cancelled
        assert breaker.wants_request
        await (await upstream.connect()).aclose()
        breaker.succeeded()
        assert (breaker.state, breaker.reason) == (CLOSED, "")


# ---- credentials -------------------------------------------------------------------------------------------------
def token(credentials: Credentials, client: Client) -> str | None:
    before = CLIENT.set(client)
    try:
        return credentials.token()
    finally:
        CLIENT.reset(before)


def test_what_is_shown_to_the_server() -> None:
    client = Client(identity="ann", token="hers")
    assert token(Credentials(), client) is None
    assert token(Credentials(mode=CredentialsMode.STATIC, secret="ours"), client) == "ours"
    assert token(Credentials(mode=CredentialsMode.PASS), client) == "hers"
    assert token(Credentials(mode=CredentialsMode.PASS), Client(identity="bob")) is None
    swap = Credentials(back="far", mode=CredentialsMode.SWAP, by_identity={"ann": "other"})
    assert token(swap, client) == "other"
    for stranger, text in (
        (Client(identity="bob", token="his"), "back far has no credentials for identity 'bob'"),
        (Client(token="his"), "back far has no credentials for clients without an identity"),
    ):
        with pytest.raises(OperationFailed) as caught:
            token(swap, stranger)
        assert caught.value.failure.code is FailureCode.PERMISSION_DENIED
        assert caught.value.failure.message == text


def test_secrets_are_not_shown() -> None:
    credentials = Credentials(mode=CredentialsMode.SWAP, secret="s3cret", by_identity={"ann": "t0ken"})
    assert "s3cret" not in repr(credentials) and "t0ken" not in repr(credentials)
