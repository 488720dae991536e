"""Backs and mirrors come and go with reloads: operations in flight keep a back open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from support.management import ask
from support.process import BASIN, CONFIG, GatewayProcess
from support.reloads import KeptAlive, ask_for_reload, wait_for

BACK = '\n[backs.far]\nkind = "s2"\naddress = "127.0.0.1:{port}"\n'
ROUTE = '\n[[routes]]\nname = "there"\nbasin = "penstock"\nback = "far"\n'
MIRROR = '\n[[routes]]\nname = "both"\nbasin = "penstock"\nmirror = "far"\n'


@pytest.fixture(scope="module")
def here() -> Iterator[GatewayProcess]:
    with GatewayProcess(CONFIG.replace('level = "info"', 'level = "debug"')) as gateway:
        yield gateway


def reloaded(gateway: GatewayProcess, more: str) -> None:
    """All that the file had at first, and `more`."""
    path = gateway.directory / "gateway.toml"
    first = gateway.directory / "first.toml"
    if not first.exists():
        first.write_text(path.read_text())
    path.write_text(first.read_text() + more)
    status, answer = ask_for_reload(gateway)
    assert status == 200, answer


@pytest.mark.parametrize("accept", ["text/event-stream", "s2s/proto"])
def test_a_session_keeps_its_back_until_it_ends(here: GatewayProcess, gateway: GatewayProcess, accept: str) -> None:
    stream = f"kept-{accept.replace('/', '-')}"
    retired = len(here.events("back_retired"))
    closed = len(here.events("back_closed"))
    with closing(KeptAlive(here.s2_port)) as client, closing(KeptAlive(gateway.s2_port)) as there:
        reloaded(here, BACK.format(port=gateway.s2_port) + ROUTE)
        assert client.append(stream, "first") == 200
        assert there.bodies(stream) == ["first"]
        follower = KeptAlive(here.s2_port)
        headers = {"s2-basin": BASIN, "accept": accept}
        if accept == "s2s/proto":
            headers["content-type"] = accept
        follower.connection.request("GET", f"/v1/streams/{stream}/records?seq_num=0", headers=headers)
        answer = follower.connection.getresponse()
        assert answer.status == 200
        reloaded(here, "")
        assert wait_for(here, "back_retired", retired + 1)["under_way"] >= 1
        assert client.append(stream, "in the embedded store") == 200
        assert there.append(stream, "second") == 200
        read = b""
        while b"second" not in read:
            read += answer.read1()
        assert b"first" in read and b"embedded" not in read
        assert len(here.events("back_closed")) == closed, "it is still used"
        answer.close()
        follower.close()
        wait_for(here, "back_closed", closed + 1)


def test_what_no_client_asks_for_uses_the_new_routes(here: GatewayProcess, gateway: GatewayProcess) -> None:
    """A stream of Durable Streams whose time is over is deleted by the gateway, at the back that it is on now."""
    path = "/v1/stream/brief"
    reloaded(here, "")
    with closing(KeptAlive(here.durable_port)) as client, closing(KeptAlive(gateway.s2_port)) as there:
        reloaded(here, BACK.format(port=gateway.s2_port) + ROUTE)
        assert client.ask("PUT", path, ["record"], **{"stream-ttl": "1"})[0] == 201
        assert there.ask("GET", "/v1/streams/brief/records/tail")[0] == 200
        time.sleep(1.1)  # its time to live is by the clock on the wall
        assert client.ask("GET", f"{path}?offset=-1")[0] == 404
        assert there.ask("GET", "/v1/streams?prefix=brief")[1]["streams"] == []
    reloaded(here, "")


def test_operators_are_shown_what_is_in_force(here: GatewayProcess, gateway: GatewayProcess) -> None:
    def shown(what: str, path: str = "") -> list[str]:
        status, answer = ask(here.management_port, f"/{path or what}")
        assert status == 200
        return [one["name"] for one in answer[what]]

    reloaded(here, BACK.format(port=gateway.s2_port) + ROUTE)
    assert shown("backs") == ["embedded", "far"]
    assert shown("routes") == ["there"]
    status, answer = ask(here.management_port, "/config")
    assert status == 200 and list(answer["backs"]) == ["far"]
    with closing(KeptAlive(gateway.s2_port)) as there:
        assert there.append("shown", "there") == 200
    status, answer = ask(here.management_port, "/positions?stream=penstock/shown&seq_num=0")
    assert status == 200, answer
    reloaded(here, "")
    assert shown("backs") == ["embedded"] and shown("routes") == []
    assert ask(here.management_port, "/positions?stream=penstock/shown&seq_num=0")[0] == 404


def test_a_mirror_begins_and_ends_with_its_route(here: GatewayProcess, gateway: GatewayProcess) -> None:
    back = BACK.format(port=gateway.s2_port)
    with closing(KeptAlive(here.s2_port)) as client, closing(KeptAlive(gateway.s2_port)) as there:
        reloaded(here, "")
        assert client.append("mirrored", "before") == 200
        reloaded(here, back + MIRROR)
        assert client.append("mirrored", "first") == 200
        _wait_for(there, "mirrored", ["before", "first"])
        reloaded(here, back)
        assert client.append("mirrored", "alone") == 200
        reloaded(here, back + MIRROR.replace("both", "again"))
        assert client.append("mirrored", "second") == 200
        _wait_for(there, "mirrored", ["before", "first", "alone", "second"])
        reloaded(here, "")


def _wait_for(client: KeptAlive, stream: str, wanted: list[str]) -> None:
    deadline = time.monotonic() + 15
    while (found := client.ask("GET", f"/v1/streams/{stream}/records?seq_num=0")) and time.monotonic() < deadline:
        if found[0] == 200 and [record["body"] for record in found[1]["records"]] == wanted:
            return
        time.sleep(0.02)
    raise AssertionError(found)
