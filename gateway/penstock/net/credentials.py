"""Credentials that the gateway presents to a server: none, its own token, the client's, or one for the client's
identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from penstock.core.identity import CLIENT
from penstock.model.failures import FailureCode, fail

__all__ = ["Credentials", "CredentialsMode"]


class CredentialsMode(Enum):
    """The source of the token; the value is the TOML word."""

    NONE = "none"
    STATIC = "static"
    """One token for all clients."""
    PASS = "pass"
    """The token that the client itself sent, if any."""
    SWAP = "swap"
    """The token that the table holds for the client's identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The credentials for one server. Secrets are not part of its `repr`.

    `secret`: the token of STATIC. `by_identity`: the tokens of SWAP; identity "" stands for clients without an
    identity, and for the gateway itself.
    """

    back: str = ""
    """Name of the back, for error messages."""
    mode: CredentialsMode = CredentialsMode.NONE
    secret: str | None = field(default=None, repr=False)
    by_identity: Mapping[str, str] = field(default_factory=dict, repr=False)

    def token(self) -> str | None:
        """Return the token for the client that the current task works for, or None to present none.

        Raises OperationFailed(PERMISSION_DENIED), naming the identity, if the table has no token for it.
        """
        if self.mode is CredentialsMode.STATIC:
            return self.secret
        if self.mode is CredentialsMode.PASS:
            return CLIENT.get().token
        if self.mode is CredentialsMode.NONE:
            return None
        identity = CLIENT.get().identity
        if identity not in self.by_identity:
            who = f"identity {identity!r}" if identity else "clients without an identity"
            raise fail(FailureCode.PERMISSION_DENIED, f"back {self.back} has no credentials for {who}")
        return self.by_identity[identity]
