"""Who may ask the management listener."""

from __future__ import annotations

import hmac
from typing import Final

from penstock.fronts.exchange import Exchange
from penstock.management.hosts import is_local_name
from penstock.management.settings import ManagementSettings
from penstock.management.words import Refusal
from penstock_codecs.failures import FailureCode, fail

__all__ = ["admit"]

_OWN: Final = ("same-origin", "none")
"""What browsers say in `sec-fetch-site` of requests of our own page, and of those that the user makes himself."""


def admit(exchange: Exchange, settings: ManagementSettings) -> None:
    """Let the request pass. Raises Refusal for pages of other origins, and for who was led here by the name of another
    machine; OperationFailed(AUTHN) where a token is missing."""
    request, tokens = exchange.request, settings.bearer_tokens
    if (site := request.header("sec-fetch-site")) not in (None, *_OWN):
        raise Refusal(403, "foreign_page", f"a page of another origin asks ({site!r:.40})")
    if settings.loopback and not tokens and not is_local_name(request.authority):
        why = f"{request.authority!r:.80} is no name of this machine: ask by its address"
        raise Refusal(403, "foreign_name", why)
    scheme, _, token = (request.header("authorization") or "").partition(" ")
    known = [hmac.compare_digest(token.strip().encode(), each.encode()) for each in tokens]
    if tokens and (scheme.lower() != "bearer" or not any(known)):
        raise fail(FailureCode.AUTHN, "a valid bearer token is required")
