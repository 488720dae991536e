"""Requests of web pages: by the origin that they name, and by the host that they ask for."""

from __future__ import annotations

import pytest

from penstock.net.http.browsers import foreign_host, foreign_page
from penstock.net.http.exchange import Request


def request(authority: str = "gw:8080", scheme: str = "http", **headers: str) -> Request:
    fields = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Request("GET", "/", "", fields, authority, "1.1", scheme)


@pytest.mark.parametrize(
    ("authority", "allowed"),
    [
        ("", True),
        ("127.0.0.1:9600", True),
        ("127.0.0.1", True),
        ("10.1.2.3:9600", True),
        ("[::1]:9600", True),
        ("[::1]", True),
        ("localhost", True),
        ("LocalHost.:9600", True),
        ("gateway.localhost:9600", True),
        ("evil.example:9600", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:9600", False),
        ("evillocalhost", False),
        ("evil.example:127.0.0.1", False),
        ("[evil.example]:1", False),
    ],
)
def test_hosts_of_this_machine(authority: str, allowed: bool) -> None:
    assert (foreign_host(request(authority)) is None) is allowed


@pytest.mark.parametrize(
    ("authority", "allowed"),
    [
        ("gw:8080", True),
        ("GW.:8080", True),
        ("gw2", False),
        ("a.example.org:1", True),
        ("b.a.example.org", True),
        ("example.org", False),
        ("evilexample.org", False),
        ("a.example.org.evil", False),
    ],
)
def test_hosts_that_are_configured(authority: str, allowed: bool) -> None:
    assert (foreign_host(request(authority), ("Gw", "*.example.org")) is None) is allowed
    assert foreign_host(request(authority), ("*",)) is None


APP = "https://app.example"


@pytest.mark.parametrize(
    ("asked", "origins", "allowed"),
    [
        (request(), (), True),  # no browser
        (request(origin=APP), (), False),
        (request(origin=APP), ("https://other.example",), False),
        (request(origin=APP), (APP,), True),
        (request(origin=APP), ("*",), True),
        (request(origin="null"), (APP,), False),
        (request(origin=APP, sec_fetch_site="cross-site"), (APP,), True),
        (request(origin=APP, sec_fetch_site="same-site"), (), False),
        # Its own pages; an old browser does not say sec-fetch-site, and a proxy may have changed the host.
        (request(origin="http://gw:8080"), (), True),
        (request(origin="https://gw:8080"), (), False),
        (request(origin="https://gw:8080", scheme="https"), (), True),
        (request(origin="http://gw:8081"), (), False),
        (request(origin="https://proxy.example", sec_fetch_site="same-origin"), (), True),
        # A link, an image, a script.
        (request(sec_fetch_site="none"), (), True),
        (request(sec_fetch_site="cross-site"), (), False),
        (request(sec_fetch_site="same-site"), (APP,), False),
        (request(sec_fetch_site="cross-site"), ("*",), True),
    ],
)
def test_pages(asked: Request, origins: tuple[str, ...], allowed: bool) -> None:
    assert (foreign_page(asked, origins) is None) is allowed
