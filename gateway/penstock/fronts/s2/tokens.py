"""Access tokens: list, issue, revoke (S2 fact sheet 1.3)."""

from __future__ import annotations

from penstock.access.authority import Authority
from penstock.access.grants import Grant
from penstock.access.scopes import common_prefix, excess
from penstock.fronts.s2.call import JSON, Call
from penstock.fronts.s2.control import json_body, listing
from penstock.fronts.s2.settings import S2Settings
from penstock.identity import CLIENT
from penstock_codecs.failures import FailureCode, fail
from penstock_codecs.s2 import access_tokens as spelled
from penstock_codecs.s2.access_tokens import Op, ResourceSet
from penstock_codecs.s2.names import decode_path_segment

__all__ = ["Tokens"]

_ALL = ResourceSet(prefix="")


class Tokens:
    """The endpoints about tokens. Who may issue and revoke says a token's scope; nobody gives more than they have.

    The listener's own tokens (`auth_tokens`) may give everything; clients without any token nothing.
    """

    def __init__(self, settings: S2Settings) -> None:
        self._settings = settings

    async def list(self, call: Call) -> None:
        """GET /v1/access-tokens"""
        access = self._authority()
        prefix, start_after, limit = listing(call.query())
        names = _names(_issuer(call))
        begin = common_prefix(names, prefix)
        if begin is None:
            await call.respond(200, spelled.encode_page([], has_more=False), JSON)
            return
        page = await access.page(begin, start_after, limit)
        items = [info for info in page.items if names.has(info.id)]
        more = page.has_more and names.prefix is not None
        await call.respond(200, spelled.encode_page(items, more), JSON)

    async def issue(self, call: Call) -> None:
        """POST /v1/access-tokens"""
        access, issuer = self._authority(), _issuer(call)
        wanted = spelled.decode_issue(await json_body(call))
        if issuer is not None:
            access.vigil.check(issuer)
            issuer.check_token(Op.ISSUE_ACCESS_TOKEN, wanted.id)
            wanted = spelled.with_expiry(wanted, issuer.info.expires_at)
            more = excess(wanted, issuer.info)
            if more is not None:
                raise issuer.denied(f"it has not itself {more}")
        await call.respond(201, spelled.encode_issued(await access.issue(wanted)), JSON)

    async def revoke(self, call: Call) -> None:
        """DELETE /v1/access-tokens/{id}"""
        access, issuer = self._authority(), _issuer(call)
        name = decode_path_segment(call.path_parameters["id"])
        token_id = spelled.validate_token_id(name, FailureCode.BAD_PATH)
        if issuer is not None:
            issuer.check_token(Op.REVOKE_ACCESS_TOKEN, token_id)
        await access.revoke(token_id)
        await call.respond_empty(204)

    def _authority(self) -> Authority:
        if self._settings.access is None:
            raise fail(FailureCode.NOT_IMPLEMENTED, "Not implemented")
        return self._settings.access


def _issuer(call: Call) -> Grant | None:
    """Whose words limit what is done; None for whoever has the listener's own token."""
    grant = CLIENT.get().grant
    if grant is None and not call.trusted:
        raise fail(FailureCode.PERMISSION_DENIED, "access tokens are for clients with a token that is for them")
    return grant


def _names(grant: Grant | None) -> ResourceSet:
    return _ALL if grant is None else grant.info.scope.access_tokens or ResourceSet(exact="")
