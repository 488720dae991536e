"""Admission of requests to the management listener: what its tokens permit, and which browsers may ask."""

from __future__ import annotations

import hmac
from typing import Final

from penstock.app.management.settings import ManagementSettings
from penstock.app.management.words import RequestRefused
from penstock.model.failures import FailureCode, fail
from penstock.net.http.browsers import foreign_host, foreign_page
from penstock.net.http.exchange import Exchange, Request

__all__ = ["admit", "check_may_change", "may_change"]

_LOOKING: Final = ("GET", "HEAD")


def admit(exchange: Exchange, settings: ManagementSettings) -> None:
    """Admit the request. Raises RequestRefused for pages of other origins and for host names that are not this
    machine's (see `penstock.net.http.browsers`), and OperationFailed(AUTHN) if a token is missing."""
    request, tokens = exchange.request, settings.bearer_tokens | settings.read_tokens
    if (reason := foreign_page(request)) is not None:
        raise RequestRefused(403, "foreign_page", reason)
    if settings.loopback and not tokens and (reason := foreign_host(request)) is not None:
        raise RequestRefused(403, "foreign_name", reason)
    if tokens and not _has_one_of(request, tokens):
        raise fail(FailureCode.AUTHN, "a valid bearer token is required")


def may_change(exchange: Exchange, settings: ManagementSettings) -> bool:
    """Return whether an admitted request may change something: not if its token is one of `read_tokens`."""
    return not settings.read_tokens or _has_one_of(exchange.request, settings.bearer_tokens)


def check_may_change(exchange: Exchange, settings: ManagementSettings) -> None:
    """Raise RequestRefused if the method of an admitted request changes something, and its token permits only
    looking."""
    if exchange.request.method not in _LOOKING and not may_change(exchange, settings):
        raise RequestRefused(403, "permission_denied", "this token permits only looking (management.read_tokens)")


def _has_one_of(request: Request, tokens: frozenset[str]) -> bool:
    """Return whether the request carries one of these bearer tokens; compares all of them, in constant time."""
    scheme, _, token = (request.header("authorization") or "").partition(" ")
    known = [hmac.compare_digest(token.strip().encode(), each.encode()) for each in tokens]
    return scheme.lower() == "bearer" and any(known)
