"""Who may ask: by the bearer token of a request, before anything else of it is looked at."""

from __future__ import annotations

import hmac
from dataclasses import replace
from typing import Final

from penstock.access.authority import UNKNOWN
from penstock.access.grants import Grant
from penstock.fronts.s2.call import Call
from penstock.fronts.s2.settings import S2Settings
from penstock.identity import CLIENT
from penstock.limits import current_seat, too_many
from penstock.recorder.tap import note_identity
from penstock_codecs.failures import OperationFailed
from penstock_codecs.s2.access_tokens import Op
from penstock_codecs.s2.routes import Endpoint

__all__ = ["OPS", "Admission"]

OPS: Final[dict[Endpoint, tuple[Op, ...]]] = {
    Endpoint.HEALTH: (),
    Endpoint.NOT_IMPLEMENTED: (),
    Endpoint.LIST_BASINS: (Op.LIST_BASINS,),
    Endpoint.CREATE_BASIN: (Op.CREATE_BASIN,),
    Endpoint.ENSURE_BASIN: (Op.CREATE_BASIN, Op.RECONFIGURE_BASIN),
    Endpoint.GET_BASIN: (Op.GET_BASIN_CONFIG,),
    Endpoint.RECONFIGURE_BASIN: (Op.RECONFIGURE_BASIN,),
    Endpoint.DELETE_BASIN: (Op.DELETE_BASIN,),
    Endpoint.LIST_STREAMS: (Op.LIST_STREAMS,),
    Endpoint.CREATE_STREAM: (Op.CREATE_STREAM,),
    Endpoint.ENSURE_STREAM: (Op.CREATE_STREAM, Op.RECONFIGURE_STREAM),
    Endpoint.GET_STREAM: (Op.GET_STREAM_CONFIG,),
    Endpoint.RECONFIGURE_STREAM: (Op.RECONFIGURE_STREAM,),
    Endpoint.DELETE_STREAM: (Op.DELETE_STREAM,),
    Endpoint.LIST_ACCESS_TOKENS: (Op.LIST_ACCESS_TOKENS,),
    Endpoint.ISSUE_ACCESS_TOKEN: (Op.ISSUE_ACCESS_TOKEN,),
    Endpoint.REVOKE_ACCESS_TOKEN: (Op.REVOKE_ACCESS_TOKEN,),
    Endpoint.CHECK_TAIL: (Op.CHECK_TAIL,),
    Endpoint.APPEND: (Op.APPEND,),
    Endpoint.READ: (Op.READ,),
}
"""What each endpoint takes. What a body says (names, commands) is the guard's to check, once it is read."""

_ABOUT_BASIN: Final = frozenset(
    {
        *(Endpoint.ENSURE_BASIN, Endpoint.GET_BASIN, Endpoint.RECONFIGURE_BASIN, Endpoint.DELETE_BASIN),
        *(Endpoint.LIST_STREAMS, Endpoint.CREATE_STREAM),
    }
)
"""They name a basin, and no stream, before their body."""


class Admission:
    """See the module."""

    def __init__(self, settings: S2Settings) -> None:
        self._settings = settings

    def admit(self, call: Call, endpoint: Endpoint) -> None:
        """Note who asks. Raises AUTHN where nobody knows that, PERMISSION_DENIED where the client's token has expired
        or is not good for this."""
        seat = current_seat()
        if wait := seat.request():
            raise too_many(wait)
        token = _bearer(call)
        identity = self._settings.identities.of_token(token) if token else None
        grant = None
        if identity is None and endpoint is not Endpoint.HEALTH:
            grant = self._known(call, token)
        client = CLIENT.get()
        name = client.identity if identity is None else identity
        CLIENT.set(replace(client, identity=name, token=token or None, grant=grant))
        who = name or (f"token:{grant.info.id}" if grant else "")
        note_identity(who)
        seat.admit(who)
        if grant is not None:
            _check(grant, call, endpoint)

    def _known(self, call: Call, token: str) -> Grant | None:
        """The token's grant; None for whoever needs none."""
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


def _bearer(call: Call) -> str:
    scheme, _, token = (call.request.header("authorization") or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _check(grant: Grant, call: Call, endpoint: Endpoint) -> None:
    grant.check(OPS[endpoint])
    if endpoint in _ABOUT_BASIN:
        grant.check((), call.basin())
    elif "stream" in call.path_parameters and endpoint is not Endpoint.NOT_IMPLEMENTED:
        stream = grant.place(call.stream())
        grant.check((), stream.basin, stream.stream)
