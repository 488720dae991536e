"""Advice about routes and backs that are valid but probably not intended."""

from __future__ import annotations

import pytest

from penstock.app.config import parse_config
from penstock.app.config.advice import advice

S2 = "[listeners.s2]\n"
ROUTE = "[[routes]]\nname = 'later'\n"


def remarks(text: str) -> list[str]:
    return [("INSECURE " if insecure else "") + said for insecure, said in advice(parse_config(S2 + text))]


def before(text: str) -> str:
    return "[[routes]]\nname = 'first'\n" + text + "\n"


KNOWN = "[[identities]]\nname = 'known'\n"


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("", ""),
        ("", "basin = 'telemetry'\nstream = 'x'"),
        ("basin = 'telemetry'", "basin = 'telemetry'\nstream = 'x'"),
        ("match = 'prefix'\nstream = ''", "stream = 'x'"),
        ("match = 'glob'\nstream = '**'", "stream = 'x'"),
        ("match = 'prefix'\nstream = 'eu/'", "stream = 'eu/x'"),
        ("match = 'prefix'\nstream = 'eu/'", "match = 'prefix'\nstream = 'eu/x/'"),
        ("match = 'glob'\nstream = 'a*'", "match = 'glob'\nstream = 'a*'"),
        ("listeners = ['s2']", "listeners = ['s2']"),
        ("identity = ['known']", "identity = ['known']"),
    ],
)
def test_a_route_that_never_takes_anything(earlier: str, later: str) -> None:
    assert remarks(KNOWN + before(earlier) + ROUTE + later) == [
        "route later: unreachable, since route first before it takes all its streams."
    ]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("basin = 'telemetry'", ""),
        ("basin = 'telemetry'", "basin = 'another-basin'"),
        ("stream = 'x'", "match = 'prefix'\nstream = 'x'"),
        ("match = 'prefix'\nstream = 'eu/'", "stream = 'us/x'"),
        ("identity = ['known']\nback = 'far'", ""),
        ("identity = ['known']\nto_stream = 'known/{stream}'", ""),
        ("identity = ['known']", "basin = 'telemetry'"),
        ("listeners = ['s2']", ""),
    ],
)
def test_routes_that_both_take_something(earlier: str, later: str) -> None:
    far = "[backs.far]\nkind = 's2'\naddress = 'a:1'\n" if "far" in earlier else ""
    assert remarks(KNOWN + far + before(earlier) + ROUTE + later) == []


@pytest.mark.parametrize(
    ("earlier", "later", "what"),
    [
        ("", "", "read and change"),
        ("stream = 'x'", "read_only = true", "read"),
        ("stream = 'eu/x'", "match = 'prefix'\nstream = 'eu/'", "read and change"),
        ("listeners = ['s2']", "listeners = ['s2']", "read and change"),
    ],
)
def test_a_route_for_some_whose_streams_others_get_by_a_later_one(earlier: str, later: str, what: str) -> None:
    assert remarks(KNOWN + before("identity = ['known']\n" + earlier) + ROUTE + later) == [
        f"route later: other clients than known can {what} the streams of route first by it."
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "to_basin = 'one-basin'",
            "route later: several streams of clients may become one-basin/{stream}.",
        ),
        (
            "match = 'glob'\nstream = '*/*'\nto_stream = '{1}-{2}'",
            "route later: clients' names cannot be told from {basin}/{1}-{2}, so listings leave its streams out.",
        ),
        (
            "basin = 'team-*'\nto_basin = 'all-teams'\nto_stream = '{1}/{stream}'",
            "route later: clients' basins cannot be told from all-teams, so listings of basins leave them out.",
        ),
    ],
)
def test_names_that_cannot_be_told(text: str, said: str) -> None:
    assert said in remarks(ROUTE + text)


def test_names_that_can_be_told_are_not_remarked_on() -> None:
    assert remarks(ROUTE + "basin = 'telemetry'\nto_basin = 'prod-telemetry'\nto_stream = 'eu/{stream}'") == []


FAR = "[backs.far]\nkind = 's2'\naddress = '{0}:1'\ncredentials = 'static'\ntoken = 'x'\n"


def test_backs() -> None:
    assert remarks(FAR.format("127.0.0.1")) == ["backs.far: no route uses it."]
    assert remarks(FAR.format("192.0.2.1") + ROUTE + "back = 'far'") == [
        "INSECURE backs.far: credentials cross the network to 192.0.2.1:1 in clear text. Set tls = true."
    ]
    assert remarks(FAR.format("192.0.2.1") + "tls = true\n" + ROUTE + "back = 'far'") == []
    assert remarks(FAR.format("127.0.0.1") + ROUTE + "mirror = 'far'") == []


def test_every_listener_of_a_kind_is_looked_at() -> None:
    text = "[[listeners.s2]]\n[[listeners.s2]]\nname = 'outer'\nbind = '0.0.0.0:1'\n"
    (remark,) = advice(parse_config(text))
    assert remark.insecure and remark.text.startswith("listeners.s2.outer: every client that reaches 0.0.0.0:1")
    segment = "[[listeners.segment]]\nname = 'b'\ntls_certificate = 'c'\ntls_key = 'k'\n"
    text = segment + "[[listeners.controller]]\nname = 'd'\n"
    said = [remark.text for remark in advice(parse_config(text))]
    assert any(
        text.startswith("listeners.segment.b and listeners.controller.d: only one of them has TLS") for text in said
    )


@pytest.mark.parametrize(
    ("credentials", "remarked"),
    [
        ("credentials = 'pass'", True),
        ("credentials = 'swap'\n[backs.far.tokens]\nknown = 'x'", True),
        ("credentials = 'swap'\ntoken = 'own'\n[backs.far.tokens]\nknown = 'x'", False),
        ("credentials = 'static'\ntoken = 'own'", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("ways", ["back = 'far'\nmirror = 'embedded'", "mirror = 'far'"])
def test_a_mirror_that_has_no_token_of_its_own(credentials: str, remarked: bool, ways: str) -> None:
    far = f"[backs.far]\nkind = 's2'\naddress = '127.0.0.1:1'\n{credentials}\n"
    said = "route later: its mirror copies without an identity, for which back far has no token."
    assert remarks(KNOWN + far + ROUTE + ways) == [said] * remarked
