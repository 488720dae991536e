"""A gateway that is given another configuration while its clients are at work."""

from __future__ import annotations

import http.client
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.process import BASIN, CONFIG, GatewayProcess
from support.reloads import KeptAlive, ask_for_reload, rewrite, wait_for
from support.s3p.client import S3PClient, S3PError
from support.tls.certificates import needs_openssl, self_signed

BACK = '[backs.far]\nkind = "s2"\naddress = "127.0.0.1:1"\n'


@pytest.fixture(scope="module")
def shared() -> Iterator[GatewayProcess]:
    """Each test puts its file back."""
    with GatewayProcess() as gateway:
        yield gateway


@pytest.fixture
def gateway(shared: GatewayProcess) -> Iterator[GatewayProcess]:
    path = shared.directory / "gateway.toml"
    before = path.read_text()
    yield shared
    path.write_text(before)
    assert ask_for_reload(shared)[0] == 200
    assert shared.running


def s3p_of(gateway: GatewayProcess) -> S3PClient:
    return S3PClient(("127.0.0.1", gateway.s3p_port))


def test_tokens_hold_from_the_next_request_of_open_connections(gateway: GatewayProcess) -> None:
    with closing(KeptAlive(gateway.s2_port)) as client:
        assert client.append("tokens", "first") == 200
        rewrite(gateway, ("[listeners.s2]\n", '[listeners.s2]\nauth_tokens = ["sesame"]\n'))
        status, answer = ask_for_reload(gateway)
        assert (status, answer["changed"]) == (200, "changed: listeners.s2.auth_tokens")
        assert client.append("tokens", "second") in (401, 403)
        assert client.append("tokens", "third", authorization="Bearer sesame") == 200
        assert client.bodies("tokens", authorization="Bearer sesame") == ["first", "third"]


def test_access_tokens_are_wanted_and_not_from_the_next_request_of_open_connections(gateway: GatewayProcess) -> None:
    with closing(KeptAlive(gateway.s2_port)) as client:
        assert client.append("guarded", "first") == 200
        before = rewrite(gateway, more="[access]\n")
        assert ask_for_reload(gateway)[0] == 200
        assert client.append("guarded", "second") == 401
        assert client.ask("GET", "/v1/access-tokens")[0] == 401
        (gateway.directory / "gateway.toml").write_text(before)
        assert ask_for_reload(gateway)[0] == 200
        assert client.append("guarded", "third") == 200


def test_limits_hold_from_the_next_request_of_open_connections(gateway: GatewayProcess) -> None:
    with closing(KeptAlive(gateway.s2_port)) as client:
        assert client.append("limited", "first") == 200
        rewrite(gateway, more="[limits]\nrequests_per_second = 1\nburst_seconds = 2\n")
        assert ask_for_reload(gateway)[0] == 200
        statuses = [client.append("limited", "more") for _ in range(10)]
        assert statuses.count(429) >= 1


def test_faults_hold_from_the_next_request_of_open_connections(gateway: GatewayProcess) -> None:
    with closing(KeptAlive(gateway.s2_port)) as client:
        assert client.append("faulty", "first") == 200
        rewrite(gateway, more='[[faults]]\nname = "busy"\naction = "error"\ncode = "rate_limited"\n')
        assert ask_for_reload(gateway)[0] == 200
        assert client.append("faulty", "second") == 429


def test_routes_hold_from_the_next_request_of_open_connections(gateway: GatewayProcess) -> None:
    with closing(KeptAlive(gateway.s2_port)) as client, s3p_of(gateway) as s3p:
        assert client.append("routed", "first") == 200
        assert len(s3p.append("routed", b"second")) > 0
        rewrite(gateway, more='[[routes]]\nname = "window"\nread_only = true\n')
        assert ask_for_reload(gateway)[0] == 200
        assert client.append("routed", "third") == 403
        refused = s3p.append("routed", b"fourth")
        assert isinstance(refused, S3PError) and "read-only" in refused.message
        assert client.bodies("routed") == [body.decode() for _, body in s3p.read("routed")] == ["first", "second"]


def test_whose_an_address_is_holds_from_the_next_request_of_open_connections(gateway: GatewayProcess) -> None:
    """The identity that a route is for is given to connections that are open, and taken from them."""
    own = '[[routes]]\nname = "own"\nidentity = ["ours"]\n[[identities]]\nname = "ours"\naddresses = ["{}"]\n'
    with closing(KeptAlive(gateway.s2_port)) as client, s3p_of(gateway) as s3p:
        assert client.append("owned", "first") == 200
        first = rewrite(gateway, more=own.format("127.0.0.1"))
        assert ask_for_reload(gateway)[0] == 200
        assert client.append("owned", "second") == 200
        assert isinstance(s3p.append("owned", b"third"), bytes)
        (gateway.directory / "gateway.toml").write_text(first + own.format("192.0.2.1"))
        assert ask_for_reload(gateway)[0] == 200
        assert client.append("owned", "fourth") == 403
        assert isinstance(s3p.append("owned", b"fifth"), S3PError)


def test_names_of_s3p_hold_for_the_next_command(gateway: GatewayProcess) -> None:
    with s3p_of(gateway) as s3p, closing(KeptAlive(gateway.s2_port)) as client:
        rewrite(gateway, ("[listeners.s3p]\n", '[listeners.s3p]\nnames = "path"\n'))
        assert ask_for_reload(gateway)[0] == 200
        assert s3p.create(f"{BASIN}/by-path") == "OK"
        assert client.append("by-path", "by its other name") == 200


@pytest.mark.parametrize(
    ("changes", "more", "reason"),
    [
        ((), "[listeners.s2", "gateway.toml"),
        ((), "[nonsense]\n", "nonsense"),
        ((("[store]\n", "[store]\ntail_cache_bytes = 1048576\n"),), "", "store.tail_cache_bytes: cannot change while"),
        ((), '[recorder]\ndirectory = "./recordings"\n', "recorder: cannot change while"),
        ((), BACK + 'credentials = "static"\ntoken_file = "missing"\n', "cannot read missing"),
        ((), '[[routes]]\nname = "all"\nback = "far"\n', "far is unknown"),
        ((("[listeners.s2]\n", '[listeners.s2]\ntls_certificate = "a"\ntls_key = "b"\n'),), "", "cannot use a and b"),
        ((('bind = "127.0.0.1:', 'bind = "192.0.2.1:'),), "", "192.0.2.1"),
    ],
)
def test_what_cannot_be_put_in_force_changes_nothing(
    gateway: GatewayProcess, changes: tuple[tuple[str, str], ...], more: str, reason: str
) -> None:
    with closing(KeptAlive(gateway.s2_port)) as client, s3p_of(gateway) as s3p:
        assert client.append("unharmed", "before") == 200
        told = len(gateway.events("reload_refused"))
        rewrite(gateway, *changes, more=more)
        status, answer = ask_for_reload(gateway)
        assert status == 409 and reason in answer["message"], answer
        assert reason in wait_for(gateway, "reload_refused", told + 1)["reason"]
        assert client.append("unharmed", "after") == 200
        assert [body for _, body in s3p.read("unharmed")][-2:] == [b"before", b"after"]


def test_listeners_come_and_go(gateway: GatewayProcess) -> None:
    with closing(KeptAlive(gateway.s2_port)) as client, s3p_of(gateway) as s3p:
        assert client.append("listening", "first") == 200
        rewrite(
            gateway,
            ("[listeners.s2]", '[[listeners.s2]]\nname = "extra"\nbind = "127.0.0.1:0"\n[[listeners.s2]]'),
            (f'[listeners.s3p]\nbind = "127.0.0.1:{gateway.s3p_port}"\nbasin = "{BASIN}"\n', ""),
        )
        status, answer = ask_for_reload(gateway)
        assert (status, answer["changed"]) == (200, "changed: listeners.s2.extra, listeners.s3p")
        extra = next(
            event["port"] for event in gateway.events("listening") if event["listener"] == "listeners.s2.extra"
        )
        with closing(KeptAlive(extra)) as other:
            assert other.append("listening", "second") == 200
        assert client.append("listening", "third") == 200
        with pytest.raises(EOFError):  # in order: it was idle
            s3p.reply()
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", gateway.s3p_port), timeout=5)


def test_a_follower_outlives_a_reload_of_everything_about_it(gateway: GatewayProcess) -> None:
    """Its session stays where it is; later requests follow the new routes."""
    with closing(KeptAlive(gateway.s2_port)) as client, closing(KeptAlive(gateway.s2_port)) as follower:
        assert client.append("followed", "first") == 200
        follower.connection.request(
            "GET", "/v1/streams/followed/records?seq_num=0", headers={"s2-basin": BASIN, "accept": "text/event-stream"}
        )
        answer = follower.connection.getresponse()
        rewrite(gateway, more='[[routes]]\nname = "moved"\nbasin = "penstock"\nto_stream = "other/{stream}"\n')
        assert ask_for_reload(gateway)[0] == 200
        assert client.append("followed", "elsewhere") == 200
        assert client.bodies("followed") == ["elsewhere"]
        rewrite(gateway, ('to_stream = "other/{stream}"\n', ""))
        assert ask_for_reload(gateway)[0] == 200
        assert client.append("followed", "second") == 200
        read = b""
        while b'"second"' not in read:
            read += answer.read1()
        assert b'"first"' in read and b"elsewhere" not in read


def test_a_signal_and_a_changed_file_reload_too() -> None:
    watched = CONFIG + "\n[reload]\nwatch = true\nwatch_seconds = 0.1\n"
    with GatewayProcess(watched) as gateway, closing(KeptAlive(gateway.s2_port)) as client:
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGHUP)
        assert wait_for(gateway, "reloaded")["changed"] == []
        rewrite(gateway, ("[listeners.s2]\n", '[listeners.s2]\nauth_tokens = ["sesame"]\n'))
        assert wait_for(gateway, "reloaded", 2)["changed"] == ["listeners.s2.auth_tokens"]
        assert client.append("signals", "first") in (401, 403)


def test_the_management_listener_goes_and_comes() -> None:
    """The client that asked for the reload is answered; a signal brings the listener back."""
    with GatewayProcess() as gateway, closing(KeptAlive(gateway.s2_port)) as client:
        before = rewrite(gateway, ("[management]\n", "[management]\nenabled = false\n"))
        assert ask_for_reload(gateway) == (200, {"changed": "changed: management.enabled"})
        with pytest.raises(OSError):
            ask_for_reload(gateway)
        (gateway.directory / "gateway.toml").write_text(before)
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGHUP)
        wait_for(gateway, "reloaded", 2)
        gateway.management_port = gateway.events("listening")[-1]["port"]
        assert ask_for_reload(gateway)[0] == 200
        assert client.append("managed", "all the while") == 200


@needs_openssl
def test_a_listener_begins_to_speak_tls(gateway: GatewayProcess, tmp_path: Path) -> None:
    """New connections use TLS."""
    certificate, key = self_signed(tmp_path)
    with closing(KeptAlive(gateway.s2_port)) as client:
        tls = f'tls_certificate = "{certificate}"\ntls_key = "{key}"\n'
        rewrite(gateway, ("[listeners.s2]\n", f"[listeners.s2]\n{tls}"))
        assert ask_for_reload(gateway)[0] == 200
        assert client.append("secret", "in the open") == 200
        trusting = ssl.create_default_context(cafile=certificate)
        with closing(http.client.HTTPSConnection("127.0.0.1", gateway.s2_port, context=trusting, timeout=20)) as other:
            other.request("GET", "/health")
            assert other.getresponse().read() == b"OK"
