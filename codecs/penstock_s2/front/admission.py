"""Admission of requests: browser checks, and the rights of the client.

A request is admitted before anything but its head is read.
"""

from __future__ import annotations

from typing import Final

from penstock.core.grants import Grant
from penstock.model.access_tokens import Op
from penstock.model.failures import Failure, FailureCode
from penstock.net.http.browsers import browser_refusal
from penstock.net.http.exchange import Request
from penstock.routing.access.clients import admit
from penstock_s2.codec.routes import S2Endpoint
from penstock_s2.front.call import S2Call
from penstock_s2.front.settings import S2Settings

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
        reason = browser_refusal(request, self._settings.hosts, self._settings.cors_origins)
        return None if reason is None else Failure(FailureCode.PERMISSION_DENIED, reason)

    def admit(self, call: S2Call, endpoint: S2Endpoint) -> None:
        """Authenticate and authorize the client, and set it in `CLIENT`.

        Raises AUTHN if the token is missing or unknown, PERMISSION_DENIED if it has expired or does not allow this,
        RATE_LIMITED if the client makes too many requests.
        """
        grant, call.trusted = admit(call.request, self._settings.clients, open_to_all=endpoint is S2Endpoint.HEALTH)
        if grant is not None:
            _check(grant, call, endpoint)


def _check(grant: Grant, call: S2Call, endpoint: S2Endpoint) -> None:
    grant.check(OPS[endpoint])
    if endpoint in _ABOUT_BASIN:
        grant.check((), call.basin())
    elif "stream" in call.path_parameters:
        stream = grant.place(call.stream())
        grant.check((), stream.basin, stream.stream)
