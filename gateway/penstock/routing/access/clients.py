"""The clients of a listener, and how they prove who they are: by a token, or by a user name and a password.

A request over HTTP is admitted (`admit`) before anything but its head is read. A front of connections that log in once
(SASL, a message CONNECT) calls `log_in`, or `admit_token` where its protocol has tokens alone. Each sets the client in
`CLIENT`, for the task that calls it and those that it starts.
"""

from __future__ import annotations

import hmac
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.core.grants import Grant
from penstock.core.identity import CLIENT, NO_IDENTITIES, Identities
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.net.http.exchange import Request
from penstock.net.limits import current_quota
from penstock.net.limits.limiter import too_many
from penstock.observe.taps.tap import note_identity
from penstock.routing.access.authority import UNKNOWN, Authority
from penstock.routing.access.passwords import Passwords

__all__ = ["Admitted", "ClientRules", "admit", "admit_token", "log_in"]


class Admitted(NamedTuple):
    """The rights of a client: those of its access token, None if it needs none. `trusted`: it has presented one of the
    listener's own tokens, which allow everything."""

    grant: Grant | None
    trusted: bool


class ClientRules(msgspec.Struct, frozen=True):
    """The clients of a listener. `tokens`: the listener's own. `identities`: those that tokens belong to. `access`: the
    access tokens, None if none are configured. `anonymous`: clients without a token are served, too. `passwords`: of
    identities, None if no identity has one."""

    tokens: frozenset[str] = frozenset()
    identities: Identities = NO_IDENTITIES
    access: Authority | None = None
    anonymous: bool = False
    passwords: Passwords | None = None

    @property
    def closed(self) -> bool:
        """True if every client needs a token."""
        return (self.access is not None or bool(self.tokens)) and not self.anonymous


def admit(request: Request, rules: ClientRules, *, open_to_all: bool = False) -> Admitted:
    """Authenticate the client, and set it in `CLIENT`; with `open_to_all`, one that cannot be stays without rights.

    Raises AUTHN if the token is missing or unknown, PERMISSION_DENIED if it has expired, RATE_LIMITED if the client
    makes too many requests.
    """
    if wait := current_quota().request():
        raise too_many(wait)
    return admit_token(_bearer(request), rules, open_to_all=open_to_all)


def admit_token(token: str, rules: ClientRules, *, open_to_all: bool = False) -> Admitted:
    """Authenticate a client by its token ("": none), and set it in `CLIENT`, as `admit` does. Raises AUTHN and
    PERMISSION_DENIED."""
    identity = rules.identities.of_token(token) if token else None
    grant, trusted = None, False
    if identity is None and not open_to_all:
        grant, trusted = _known(token, rules)
    client = CLIENT.get()
    name = client.identity if identity is None else identity
    if (name, token or None, grant) != (client.identity, client.token, client.grant):  # replacing takes 3 us
        CLIENT.set(replace(client, identity=name, token=token or None, grant=grant))
    who = CLIENT.get().principal
    note_identity(who)
    current_quota().admit(who)
    return Admitted(grant, trusted)


async def log_in(name: str, secret: str, rules: ClientRules) -> None:
    """Authenticate a client by a token, with which the name does not matter, or by the user name and password of an
    identity, and set it in `CLIENT`.

    Raises AUTHN if neither is known, PERMISSION_DENIED if the token has expired, and RATE_LIMITED. After AUTHN, the
    front counts it: `ConnectionQuota.login_failed`.
    """
    try:
        if rules.access is None and not (rules.tokens or rules.identities.of_token(secret) is not None):
            raise fail(FailureCode.AUTHN, "name or secret is wrong")  # without tokens, `admit_token` admits all clients
        admit_token(secret, rules)
    except OperationFailed as error:
        if error.failure.code is not FailureCode.AUTHN or rules.passwords is None:
            raise
        identity = await rules.passwords.identity(name, secret)
        if identity is None:
            raise
        CLIENT.set(replace(CLIENT.get(), identity=identity))
        note_identity(identity)
        current_quota().admit(identity)


def _known(token: str, rules: ClientRules) -> Admitted:
    """Return the token's rights. A client needs no grant with one of the listener's own tokens, if it is anonymous
    where that is allowed, or if the listener has neither tokens nor access control. Raises AUTHN."""
    if rules.tokens:
        shown = token.encode("utf-8", "surrogateescape")
        if sum(hmac.compare_digest(shown, one.encode()) for one in rules.tokens):
            return Admitted(None, trusted=True)
    if (rules.access is None and not rules.tokens) or (rules.anonymous and not token):
        return Admitted(None, trusted=False)
    if rules.access is None:
        raise OperationFailed(UNKNOWN)
    return Admitted(rules.access.grant(token), trusted=False)


def _bearer(request: Request) -> str:
    scheme, _, token = (request.header("authorization") or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
