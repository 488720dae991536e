"""Protection of HTTP listeners from web pages: requests of foreign origins, and DNS rebinding.

A browser sends requests of any page to this machine and to the private network, some of them (a form's POST) without
asking first. It names the page's origin in `origin`, and its relation to the listener in `sec-fetch-site`; other
clients send neither. With DNS rebinding a page lets its own host name resolve to the listener's address: the browser
then takes both for one origin, but the request still carries that name as its host.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from functools import lru_cache
from typing import Final

from penstock.net.http.exchange import Request

__all__ = [
    "ANY_ORIGIN",
    "browser_refusal",
    "cors_headers",
    "foreign_host",
    "foreign_page",
    "host_of",
    "preflight_headers",
]

ANY_ORIGIN: Final = "*"
"""The wildcard for all origins, or all hosts."""

_PORT: Final = re.compile(r":[0-9]*\Z")
_OWN: Final = ("same-origin", "none")
"""Values of `sec-fetch-site` for the listener's own pages, and for requests that the user makes without a page."""


def foreign_page(request: Request, origins: Collection[str] = ()) -> str | None:
    """Return why a page of another origin may not make this request; None if it may, or if no such page makes it.

    `origins`: origins whose pages may, as browsers spell them (`https://app.example:8443`), or `*` for all.
    """
    origin, site = request.header("origin"), request.header("sec-fetch-site")
    if ANY_ORIGIN in origins or origin in origins or site in _OWN:
        return None
    if origin is None:
        return None if site is None else f"the request comes from a page of another origin ({site!r:.40})"
    if site is None and origin == f"{request.scheme}://{request.authority}":
        return None
    return f"the request comes from a page of another origin ({origin!r:.80})"


def foreign_host(request: Request, hosts: Collection[str] = ()) -> str | None:
    """Return why the request's host is not allowed; None if it is.

    Addresses, `localhost` and names under it, and requests without a host always are. `hosts`: further names,
    `*.example.org` for all names under that one, or `*` for all.
    """
    if _is_local(request.authority):
        return None
    host = host_of(request.authority)
    if any(_matches(host, allowed.lower()) for allowed in hosts):
        return None
    return f"the host {request.authority!r:.80} is not allowed here: use an address"


def browser_refusal(request: Request, hosts: Collection[str] | None, origins: Collection[str]) -> str | None:
    """Return why a browser may not make this request of a listener with the keys `hosts` and `cors_origins`; None if it
    may, or if no browser makes it. `hosts` None: all are allowed."""
    if hosts is not None and (reason := foreign_host(request, hosts)) is not None:
        return f"{reason}, or add its name to `hosts` of the listener"
    if (reason := foreign_page(request, origins)) is not None:
        return f"{reason}: add its origin to `cors_origins` of the listener to allow it"
    return None


def cors_headers(request: Request, origins: Collection[str], exposed: str) -> list[tuple[str, str]]:
    """Return the headers that let a page of an allowed origin read the answer; none for other requests. `exposed`: the
    headers of answers that pages may read beside the usual ones.

    If any origin is allowed, answers to requests with cookies or client certificates stay unreadable.
    """
    origin = request.header("origin")
    if origin is None or not origins:
        return []
    vary, expose = ("vary", "origin"), ("access-control-expose-headers", exposed)
    if origin in origins:
        credentials = ("access-control-allow-credentials", "true")
        return [("access-control-allow-origin", origin), credentials, expose, vary]
    return [("access-control-allow-origin", ANY_ORIGIN), expose, vary] if ANY_ORIGIN in origins else [vary]


def preflight_headers(request: Request) -> list[tuple[str, str]]:
    """Return the headers of the answer to a browser's OPTIONS, which mirror what it asks for."""
    headers_asked = {
        "access-control-allow-methods": request.header("access-control-request-method"),
        "access-control-allow-headers": request.header("access-control-request-headers"),
    }
    return [
        *((name, value) for name, value in headers_asked.items() if value is not None),
        ("access-control-max-age", "600"),
    ]


def host_of(authority: str) -> str:
    """Return the host of a Host header or `:authority`, in lower case, without the port."""
    return _PORT.sub("", authority).lower().removesuffix(".")


def _matches(host: str, pattern: str) -> bool:
    return pattern in (ANY_ORIGIN, host) or (pattern.startswith("*.") and host.endswith(pattern[1:]))


@lru_cache(64)
def _is_local(authority: str) -> bool:
    host = host_of(authority)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    return bare in ("", "localhost") or host.endswith(".localhost") or _is_address(bare)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
