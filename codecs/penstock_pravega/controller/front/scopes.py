"""Calls about scopes and their contents, and about the list of controllers."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from penstock_pravega.controller.controller.listing import PAGE
from penstock_pravega.controller.controller.problems import ControllerProblem
from penstock_pravega.controller.front.calls import CallContext, Calls
from penstock_pravega.controller.front.wire import status_of, token
from penstock_proto import pravega_controller_pb2 as pb

__all__ = ["SCOPES", "host_of"]

_CREATED: Final = pb.CreateScopeStatus(status=pb.CreateScopeStatus.SUCCESS)
_NOT_CREATED: Final = {
    ControllerProblem.SCOPE_EXISTS: pb.CreateScopeStatus(status=pb.CreateScopeStatus.SCOPE_EXISTS),
    ControllerProblem.INVALID_NAME: pb.CreateScopeStatus(status=pb.CreateScopeStatus.INVALID_SCOPE_NAME),
}
_DELETED: Final = pb.DeleteScopeStatus(status=pb.DeleteScopeStatus.SUCCESS)
_NOT_DELETED: Final = {
    ControllerProblem.SCOPE_NOT_FOUND: pb.DeleteScopeStatus(status=pb.DeleteScopeStatus.SCOPE_NOT_FOUND),
    ControllerProblem.SCOPE_NOT_EMPTY: pb.DeleteScopeStatus(status=pb.DeleteScopeStatus.SCOPE_NOT_EMPTY),
}


_NOT_ALL_DELETED: Final = _NOT_DELETED | {ControllerProblem.SCOPE_NOT_FOUND: _DELETED}
"""As Pravega answers: a repetition of a request that was executed succeeds."""


async def _servers(call: CallContext, _request: pb.ServerRequest) -> pb.ServerResponse:
    """Return the address that the client connected to, as the only controller."""
    host, port = host_of(call.context.authority)
    return pb.ServerResponse(nodeURI=[pb.NodeUri(endpoint=host, port=port)])


def host_of(authority: str) -> tuple[str, int]:
    """Return the host, as `bracketed` does, and the port that a client connected to."""
    try:
        parts = urlsplit(f"//{authority}")
        host, port = parts.hostname or "localhost", parts.port or 9090
    except ValueError:  # not a port
        return "localhost", 9090
    return bracketed(host), port


def bracketed(host: str) -> str:
    """Return a host as clients append a port to it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


async def _create(call: CallContext, request: pb.ScopeInfo) -> pb.CreateScopeStatus:
    return await status_of(call.controller.scopes.create(request.scope), _CREATED, _NOT_CREATED)


async def _exists(call: CallContext, request: pb.ScopeInfo) -> pb.ExistsResponse:
    return pb.ExistsResponse(exists=await call.controller.scopes.exists(request.scope))


async def _list(call: CallContext, request: pb.ScopesRequest) -> pb.ScopesResponse:
    before = request.continuationToken
    scopes = await call.controller.scopes.page(before.token, PAGE)
    return pb.ScopesResponse(scopes=scopes, continuationToken=token(scopes, before))


async def _delete(call: CallContext, request: pb.ScopeInfo) -> pb.DeleteScopeStatus:
    return await status_of(call.controller.deletion.delete(request.scope), _DELETED, _NOT_DELETED)


async def _delete_all(call: CallContext, request: pb.ScopeInfo) -> pb.DeleteScopeStatus:
    return await status_of(call.controller.deletion.delete_all(request.scope), _DELETED, _NOT_ALL_DELETED)


SCOPES: Final[Calls] = {
    "getControllerServerList": _servers,
    "createScope": _create,
    "checkScopeExists": _exists,
    "listScopes": _list,
    "deleteScope": _delete,
    "deleteScopeRecursive": _delete_all,
}
