"""Admission of requests: browser checks, rate limits, and the bearer token's identity and rights.

A request is admitted before anything but its head is read.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from typing import Final

from penstock.core.grants import Grant
from penstock.core.identity import CLIENT
from penstock.net.http.browsers import foreign_host, foreign_page
from penstock.net.http.exchange import Request
from penstock.net.limits import current_quota
from penstock.net.limits.limiter import too_many
from penstock.observe.taps.tap import note_identity
from penstock.protocols.s2.front.call import S2Call
from penstock.protocols.s2.front.settings import S2Settings
from penstock.routing.access.authority import UNKNOWN
from penstock_codecs.failures import Failure, FailureCode, OperationFailed
from penstock_codecs.s2.access_tokens import Op
from penstock_codecs.s2.routes import S2Endpoint

__all__ = ["OPS", "RequestAdmission"]

OPS: Final[dict[S2Endpoint, tuple[Op, ...]]] = {
    S2Endpoint.HEALTH: (),
    S2Endpoint.LIST_BASINS: (Op.LIST_BASINS,),
    S2Endpoint.CREATE_BASIN: (Op.CREATE_BASIN,),
    S2Endpoint.ENSURE_BASIN: (Op.CREATE_BASIN, Op.RECONFIGURE_BASIN),
    S2Endpoint.GET_BASIN: (Op.GET_BASIN_CONFIG,),
    S2Endpoint.RECONFIGURE_BASIN: (Op.RECONFIGURE_BASIN,),
    S2Endpoint.DELETE_BASIN: (Op.DELETE_BASIN,),
    S2Endpoint.LIST_STREAMS: (Op.LIST_STREAMS,),
    S2Endpoint.CREATE_STREAM: (Op.CREATE_STREAM,),
    S2Endpoint.ENSURE_STREAM: (Op.CREATE_STREAM, Op.RECONFIGURE_STREAM),
    S2Endpoint.GET_STREAM: (Op.GET_STREAM_CONFIG,),
    S2Endpoint.RECONFIGURE_STREAM: (Op.RECONFIGURE_STREAM,),
    S2Endpoint.DELETE_STREAM: (Op.DELETE_STREAM,),
    S2Endpoint.LIST_ACCESS_TOKENS: (Op.LIST_ACCESS_TOKENS,),
    S2Endpoint.ISSUE_ACCESS_TOKEN: (Op.ISSUE_ACCESS_TOKEN,),
    S2Endpoint.REVOKE_ACCESS_TOKEN: (Op.REVOKE_ACCESS_TOKEN,),
    S2Endpoint.ACCOUNT_METRICS: (Op.ACCOUNT_METRICS,),
    S2Endpoint.BASIN_METRICS: (Op.BASIN_METRICS,),
    S2Endpoint.STREAM_METRICS: (Op.STREAM_METRICS,),
    S2Endpoint.LIST_LOCATIONS: (Op.LIST_LOCATIONS,),
    S2Endpoint.GET_DEFAULT_LOCATION: (Op.GET_DEFAULT_LOCATION,),
    S2Endpoint.SET_DEFAULT_LOCATION: (Op.SET_DEFAULT_LOCATION,),
    S2Endpoint.CHECK_TAIL: (Op.CHECK_TAIL,),
    S2Endpoint.APPEND: (Op.APPEND,),
    S2Endpoint.READ: (Op.READ,),
}
"""Operations that each endpoint needs. The guard checks what a body names (names, commands) once it is read."""

_ABOUT_BASIN: Final = frozenset(
    {
        *(S2Endpoint.ENSURE_BASIN, S2Endpoint.GET_BASIN, S2Endpoint.RECONFIGURE_BASIN, S2Endpoint.DELETE_BASIN),
        *(S2Endpoint.LIST_STREAMS, S2Endpoint.CREATE_STREAM, S2Endpoint.BASIN_METRICS),
    }
)
"""Endpoints whose head names a basin and no stream."""


class RequestAdmission:
    """Admits requests to one listener."""

    def __init__(self, settings: S2Settings) -> None:
        self._settings = settings

    def refusal(self, request: Request) -> Failure | None:
        """Return why a browser may not make this request; None if it may, or if no browser makes it."""
        settings, why = self._settings, None
        if settings.hosts is not None and (why := foreign_host(request, settings.hosts)) is not None:
            why += ", or add its name to `hosts` of the listener"
        elif (why := foreign_page(request, settings.cors_origins)) is not None:
            why += ": add its origin to `cors_origins` of the listener to allow it"
        return None if why is None else Failure(FailureCode.PERMISSION_DENIED, why)

    def admit(self, call: S2Call, endpoint: S2Endpoint) -> None:
        """Authenticate and authorize the client, and set it in `CLIENT`.

        Raises AUTHN if the token is missing or unknown, PERMISSION_DENIED if it has expired or does not allow this,
        RATE_LIMITED if the client makes too many requests.
        """
        quota = current_quota()
        if wait := quota.request():
            raise too_many(wait)
        token = _bearer(call)
        identity = self._settings.identities.of_token(token) if token else None
        grant = None
        if identity is None and endpoint is not S2Endpoint.HEALTH:
            grant = self._known(call, token)
        client = CLIENT.get()
        name = client.identity if identity is None else identity
        if (name, token or None, grant) != (client.identity, client.token, client.grant):  # replacing takes 3 us
            CLIENT.set(replace(client, identity=name, token=token or None, grant=grant))
        who = name or (f"token:{grant.info.id}" if grant else "")
        note_identity(who)
        quota.admit(who)
        if grant is not None:
            _check(grant, call, endpoint)

    def _known(self, call: S2Call, token: str) -> Grant | None:
        """Return the token's grant; None if the client needs none. Raises AUTHN.

        A client needs none with one of the listener's own tokens, if it is anonymous where that is allowed, or if the
        listener has neither tokens nor access control.
        """
        settings = self._settings
        shown, tokens = token.encode("utf-8", "surrogateescape"), settings.bearer_tokens
        if sum(hmac.compare_digest(shown, one.encode()) for one in tokens):
            call.trusted = True
            return None
        if settings.access is None and not tokens:
            return None
        if settings.anonymous and not token:
            return None
        if settings.access is None:
            raise OperationFailed(UNKNOWN)
        return settings.access.grant(token)


def _bearer(call: S2Call) -> str:
    scheme, _, token = (call.request.header("authorization") or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _check(grant: Grant, call: S2Call, endpoint: S2Endpoint) -> None:
    grant.check(OPS[endpoint])
    if endpoint in _ABOUT_BASIN:
        grant.check((), call.basin())
    elif "stream" in call.path_parameters:
        stream = grant.place(call.stream())
        grant.check((), stream.basin, stream.stream)
