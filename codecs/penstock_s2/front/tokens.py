"""Access tokens: list, issue, revoke (S2 fact sheet 1.3)."""

from __future__ import annotations

from penstock.core.grants import Grant
from penstock.core.identity import CLIENT
from penstock.core.scopes import common_prefix, excess
from penstock.model.access_tokens import Op, ResourceSet, inheriting, validate_token_id
from penstock.model.failures import FailureCode, fail
from penstock.routing.access.authority import Authority
from penstock_s2.codec.json_access_tokens import decode_issue, encode_issued, encode_page
from penstock_s2.codec.names import decode_path_segment
from penstock_s2.front.call import JSON, S2Call
from penstock_s2.front.control import json_body, listing
from penstock_s2.front.settings import S2Settings

__all__ = ["Tokens"]

_ALL = ResourceSet(prefix="")


class Tokens:
    """Endpoints for access tokens.

    A token's scope says whether it may issue and revoke, and it cannot give rights that it does not have. The
    listener's own tokens (`auth_tokens`) may give all rights; clients without any token none.
    """

    def __init__(self, settings: S2Settings) -> None:
        self._settings = settings

    async def list(self, call: S2Call) -> None:
        """GET /v1/access-tokens"""
        access = self._authority()
        prefix, start_after, limit = listing(call.query())
        issuer = _issuer(call)
        if issuer is not None:
            access.vigil.check(issuer)
            issuer.check((Op.LIST_ACCESS_TOKENS,))
        names = _names(issuer)
        begin = common_prefix(names, prefix)
        if begin is None:
            await call.respond(200, encode_page([], has_more=False), JSON)
            return
        page = await access.page(begin, start_after, limit)
        items = [info for info in page.items if names.has(info.id)]
        more = page.has_more and names.prefix is not None
        await call.respond(200, encode_page(items, more), JSON)

    async def issue(self, call: S2Call) -> None:
        """POST /v1/access-tokens"""
        access, issuer = self._authority(), _issuer(call)
        wanted = decode_issue(await json_body(call))
        if issuer is not None:
            access.vigil.check(issuer)
            issuer.check_token(Op.ISSUE_ACCESS_TOKEN, wanted.id)
            wanted = inheriting(wanted, issuer.info)
            more = excess(wanted, issuer.info)
            if more is not None:
                raise issuer.denied(f"it does not have {more} itself")
        await call.respond(201, encode_issued(await access.issue(wanted)), JSON)

    async def revoke(self, call: S2Call) -> None:
        """DELETE /v1/access-tokens/{id}"""
        name = decode_path_segment(call.path_parameters["id"])
        token_id = validate_token_id(name, FailureCode.BAD_PATH)
        access, issuer = self._authority(), _issuer(call)
        if issuer is not None:
            access.vigil.check(issuer)
            issuer.check_token(Op.REVOKE_ACCESS_TOKEN, token_id)
        await access.revoke(token_id)
        await call.respond_empty(204)

    def _authority(self) -> Authority:
        if self._settings.clients.access is None:
            raise fail(FailureCode.NOT_IMPLEMENTED, "Not implemented")
        return self._settings.clients.access


def _issuer(call: S2Call) -> Grant | None:
    """Return the grant that limits the client, or None for the listener's own tokens.

    Raises PERMISSION_DENIED without a token.
    """
    grant = CLIENT.get().grant
    if grant is None and not call.trusted:
        raise fail(FailureCode.PERMISSION_DENIED, "access tokens need a token that permits managing them")
    return grant


def _names(grant: Grant | None) -> ResourceSet:
    return _ALL if grant is None else grant.info.scope.access_tokens or ResourceSet(exact="")
