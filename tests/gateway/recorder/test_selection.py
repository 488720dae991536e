"""Selection of the connections that are recorded."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.capture.pcapng import Conversation, Side, SocketAddress
from penstock.model.records import StreamRef
from penstock.observe.taps.tap import Use
from penstock.recorder.selection import Selection, Verdict, network

CLIENT, SERVER = SocketAddress("10.1.2.3", 5000), SocketAddress("10.9.9.9", 8080)
FRONT = Conversation(7, CLIENT, SERVER, Side.FRONT, "listeners.s2.public", "s2")
BACK = Conversation(8, SERVER, CLIENT, Side.BACK, "backs.lite", "s2")
MANAGEMENT = Conversation(9, CLIENT, SERVER, Side.FRONT, "management", "management")
BACKS = {"orders": ("lite", "second"), "rest": ()}
YES, NO, LATER = Verdict.YES, Verdict.NO, Verdict.LATER

JUDGED: list[tuple[dict[str, Any], Verdict, Verdict]] = [
    ({}, YES, YES),
    ({"listeners": ("s2",)}, YES, NO),
    ({"listeners": ("s2.public",)}, YES, NO),
    ({"listeners": ("s2.inner", "s3p")}, NO, NO),
    ({"backs": ("lite",)}, NO, YES),
    ({"backs": ("other",)}, NO, NO),
    ({"listeners": ("s2",), "backs": ("lite",)}, YES, YES),
    ({"protocols": ("s2",)}, YES, YES),
    ({"protocols": ("s3p",)}, NO, NO),
    ({"peers": (network("10.1.0.0/16"),)}, YES, YES),
    ({"peers": (network("10.9.9.9"), network("::1"))}, NO, NO),
    ({"connections": (7,)}, YES, NO),
    ({"connections": (8, 9)}, NO, YES),
    ({"connections": (7,), "listeners": ("s3p",)}, NO, NO),
    ({"routes": ("orders",)}, LATER, YES),
    ({"routes": ("ord*",)}, LATER, YES),
    ({"routes": ("rest",)}, LATER, NO),
    ({"routes": ("orders",), "listeners": ("s2",)}, LATER, NO),
    ({"streams": ("x",)}, LATER, NO),
    ({"streams": ("x",), "listeners": ("s3p",)}, NO, NO),
    ({"identities": ("analytics",)}, LATER, NO),
]


@pytest.mark.parametrize(("asked", "front", "back"), JUDGED)
def test_connections_are_judged_when_they_are_opened(asked: dict[str, Any], front: Verdict, back: Verdict) -> None:
    selection = Selection(**asked)
    assert selection.judge(FRONT, BACKS) is front
    assert selection.judge(BACK, BACKS) is back
    assert selection.judge(MANAGEMENT, BACKS) is NO
    assert selection.late is bool(asked.keys() & {"routes", "streams", "identities"})


def test_a_peer_by_its_ipv4_address_behind_ipv6() -> None:
    mapped = Conversation(1, SocketAddress("::ffff:10.1.2.3", 1), SocketAddress("::1", 2), Side.FRONT)
    assert Selection(peers=(network("10.1.2.3"),)).judge(mapped, {}) is YES


USE = Use("orders", StreamRef("penstock", "eu/north/1"), "analytics")


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({"streams": ("penstock/eu/north/1",)}, True),
        ({"streams": ("eu/north/1",)}, False),
        ({"streams": ("eu/*",)}, False),
        ({"streams": ("*/eu/**",)}, True),
        ({"streams": ("**",)}, True),
        ({"streams": ("*",)}, False),
        ({"streams": ("pen*/**",)}, True),
        ({"streams": ("other/**", "**1")}, True),
        ({"streams": ("other/**",)}, False),
        ({"routes": ("o*",)}, True),
        ({"routes": ("rest",)}, False),
        ({"identities": ("analytics",)}, True),
        ({"identities": ("*",), "routes": ("orders",), "streams": ("**",)}, True),
        ({"identities": ("analytics",), "routes": ("rest",)}, False),
    ],
)
def test_a_request_must_be_about_all_that_is_asked_for(asked: dict[str, Any], wanted: bool) -> None:
    assert Selection(**asked).wants(USE) is wanted


def test_what_is_about_no_stream_is_about_its_identity_alone() -> None:
    listing = Use("", None, "analytics")
    assert Selection(identities=("analytics",)).wants(listing)
    assert not Selection(identities=("analytics",), streams=("**",)).wants(listing)


def test_requests_without_a_client_have_no_identity_and_no_route() -> None:
    nobodys = Use("", StreamRef("penstock", "orders"), "")
    assert not Selection(identities=("*",)).wants(nobodys)
    assert not Selection(routes=("**",)).wants(nobodys)
    assert Selection(streams=("*",)).wants(nobodys)


def test_bad_networks_are_refused() -> None:
    with pytest.raises(ValueError, match=r"10\.1\.0\.1/16 has host bits set"):
        network("10.1.0.1/16")
