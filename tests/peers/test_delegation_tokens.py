"""Pravega's Python client with auth_enabled: Basic credentials at the controller, delegation tokens at the segments.

A second client, by hand, shows tokens that this one never would.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from support.peers import unique
from support.pravega.clients import Found, PravegaClient, bodies_by_s2s, need_pravega, numbered, wait_until
from support.process import CONFIG, GatewayProcess, running_gateway
from support.segment.client import SegmentSocket

from penstock.routing.access.passwords import hash_password
from penstock_pravega.codec import released
from penstock_pravega.segment.delegation import Delegation, load_key

SECONDS = 10
CREDENTIALS = ("ana", "of: ana")
DELEGATING = (
    CONFIG.replace(
        "[listeners.controller]",
        f"delegation_tokens = true\ndelegation_token_seconds = {SECONDS}\n\n[listeners.controller]",
    )
    + f"""
[[identities]]
name = "analytics~?>"
username = "{CREDENTIALS[0]}"
password_hash = "{hash_password(CREDENTIALS[1])}"

[[identities]]
name = "readers"
username = "reader"
password_hash = "{hash_password("of the reader")}"

[[routes]]
name = "for-reading"
identity = ["readers"]
allow = ["read"]

[[routes]]
name = "for-all"
"""
)


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    recorder = '[recorder]\ndirectory = "{data}/recorded"\nstart = true\n'
    with running_gateway(DELEGATING + recorder) as running:
        yield running


@pytest.fixture(scope="module")
def client(gateway: GatewayProcess) -> Iterator[PravegaClient]:
    need_pravega()
    with PravegaClient(gateway.controller_port, credentials=CREDENTIALS) as client:
        yield client


@pytest.fixture
def scope(client: PravegaClient) -> str:
    name = unique("Delegated")
    client.call("manage", "create_scope", name)
    client.call("manage", "create_stream", name, "s", 1)
    return name


@pytest.fixture
def delegation(gateway: GatewayProcess) -> Delegation:
    """The gateway's own key, as its workers have it."""
    return Delegation(load_key(gateway.data / "delegation.key"), SECONDS)


def test_events_bytes_and_transactions(client: PravegaClient, gateway: GatewayProcess, scope: str) -> None:
    events = numbered(50, 7)
    client.call("write", scope, "s", events)
    client.call("group", f"g{scope}", scope, "s")
    client.call("reader", f"r{scope}", f"g{scope}")
    found = Found(client.call("read", [f"r{scope}"], 50, 20)).bodies(f"r{scope}")
    assert found == [body.encode() for body, _ in events]
    client.call("begin", f"t{scope}", scope, "s")
    client.call("write_in", f"t{scope}", numbered(3, 7, 100))
    client.call("of_transaction", f"t{scope}", "commit")
    client.call("manage", "create_stream", scope, "bytes", 1)
    client.call("open_bytes", f"b{scope}", scope, "bytes")
    assert client.call("write_bytes", f"b{scope}", "hello") == 5
    assert client.call("read_bytes", f"b{scope}", 5) == "hello"


@pytest.mark.parametrize("credentials", [None, (CREDENTIALS[0], "wrong"), ("nobody", CREDENTIALS[1])])
def test_wrong_credentials_change_nothing(
    client: PravegaClient, gateway: GatewayProcess, credentials: tuple[str, str] | None
) -> None:
    """This client asks again for ever, without a word to its user."""
    name, before = unique("Refused"), len(gateway.events("call_refused"))
    with PravegaClient(gateway.controller_port, credentials=credentials) as stranger:
        stranger.start("manage", "create_scope", name)
        wait_until(lambda: len(gateway.events("call_refused")) > before)
    assert name not in client.call("manage", "list_scope")


def test_a_client_that_may_only_read(client: PravegaClient, gateway: GatewayProcess, scope: str) -> None:
    """The route restricts its identity, whatever its delegation token permits."""
    client.call("write", scope, "s", numbered(5, 7))
    before = bodies_by_s2s(gateway, f"{scope}/s")
    with PravegaClient(gateway.controller_port, credentials=("reader", "of the reader")) as reader:
        reader.start("write", scope, "s", numbered(1, 1, 50))
        wait_until(lambda: bool(gateway.events("request_denied")))
    assert bodies_by_s2s(gateway, f"{scope}/s") == before


def test_tokens_are_checked(client: PravegaClient, gateway: GatewayProcess, scope: str, delegation: Delegation) -> None:
    client.call("write", scope, "s", numbered(5, 7))
    before = bodies_by_s2s(gateway, f"{scope}/s")
    segment = f"{scope}/s/0.#epoch.0"
    good = delegation.issue("analytics~?>", scope, "s")
    header, payload, signature = good.split(".")
    expired = Delegation(load_key(gateway.data / "delegation.key"), SECONDS, lambda: int(time.time() - 60) * 1000)
    refused = {
        "": 0,
        "nonsense": 0,
        f"{header}.{payload}.{signature[::-1]}": 0,
        f"eyJhbGciOiJub25lIn0.{payload}.": 0,
        Delegation(b"x" * 32, SECONDS).issue("analytics~?>", scope, "s"): 0,
        delegation.issue("analytics~?>", scope, "other"): 0,
        expired.issue("analytics~?>", scope, "s"): 1,
    }
    with SegmentSocket(("127.0.0.1", gateway.segment_port)) as connection:
        ask = connection.next_id
        connection.send(released.Hello(17, 5))
        assert isinstance(connection.reply(), released.Hello)
        for token, code in refused.items():
            for request in (
                released.ReadSegment(segment, 0, 1000, token, ask()),
                released.GetStreamSegmentInfo(ask(), segment, token),
                released.SealSegment(ask(), segment, token),
                released.DeleteSegment(ask(), segment, token),
                released.TruncateSegment(ask(), segment, 8, token),
                released.MergeSegments(ask(), segment, segment, token),
                released.CreateTableSegment(ask(), f"{scope}/s/t", token),
            ):
                connection.send(request)
                reply = connection.reply()
                assert isinstance(reply, released.AuthTokenCheckFailed), (token, request, reply)
                assert (reply.request_id, reply.error_code) == (request.request_id, code)
        only_read = delegation.issue("analytics~?>", scope, "s", "READ")
        connection.send(released.GetStreamSegmentInfo(ask(), segment, only_read))
        assert isinstance(connection.reply(), released.StreamSegmentInfo)
        connection.send(released.SealSegment(ask(), segment, only_read))
        assert isinstance(connection.reply(), released.AuthTokenCheckFailed)
        connection.send(released.GetStreamSegmentInfo(ask(), segment, good))
        assert isinstance(connection.reply(), released.StreamSegmentInfo)
    assert bodies_by_s2s(gateway, f"{scope}/s") == before


def test_secrets_are_nowhere(client: PravegaClient, gateway: GatewayProcess, scope: str) -> None:
    """Neither in the log nor in recordings, nor in what the management listener shows."""
    client.call("write", scope, "s", numbered(1, 1))
    with urlopen(f"http://127.0.0.1:{gateway.management_port}/config") as answer:
        places = [answer.read(), gateway.log_path.read_bytes()]
    recorded = list((gateway.data / "recorded").glob("*.pcapng"))
    assert recorded
    places += [file.read_bytes() for file in recorded]
    secrets = (CREDENTIALS[1].encode(), b64encode(":".join(CREDENTIALS).encode()), b"eyJhbGciOiJIUzI1NiI", b"scrypt:")
    for secret in secrets:
        assert not any(secret in place for place in places), secret


@pytest.mark.long
def test_a_writer_lives_on_with_another_token(client: PravegaClient, gateway: GatewayProcess, scope: str) -> None:
    """Its token is over after ten seconds; every event is there once."""
    client.start("write_until_told", scope, "s", 3, 10)
    time.sleep(2.5 * SECONDS)
    count = client.stop()
    assert bodies_by_s2s(gateway, f"{scope}/s") == [str(number).encode() for number in range(count)]
    assert count > 0
