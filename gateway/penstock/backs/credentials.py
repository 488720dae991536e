"""What the gateway shows to a server: nothing, a token of its own, the client's, or one for the client's identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, runtime_checkable

from penstock.identity import CLIENT
from penstock_codecs.failures import FailureCode, fail

__all__ = ["Credentials", "CredentialsMode", "ShowsTokens", "token_shown"]


class CredentialsMode(Enum):
    """Where the token comes from; the value is the TOML word."""

    NONE = "none"
    STATIC = "static"
    """One token for all."""
    PASS = "pass"
    """The token that the client itself sent; none where it sent none."""
    SWAP = "swap"
    """The token that the table has for the client's identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The credentials for one server. Secrets are not part of its `repr`.

    `secret`: the token of STATIC. `by_identity`: the tokens of SWAP; identity "" is whoever proved none, and the
    gateway itself.
    """

    back: str = ""
    """The name of the back, for the failure's message."""
    mode: CredentialsMode = CredentialsMode.NONE
    secret: str | None = field(default=None, repr=False)
    by_identity: Mapping[str, str] = field(default_factory=dict, repr=False)

    def token(self) -> str | None:
        """The token to show for the client that the current task works for; None: show none.

        Raises OperationFailed(PERMISSION_DENIED) naming the identity that the table does not have.
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


@runtime_checkable
class ShowsTokens(Protocol):
    """A back whose server may be shown another token for each client. What is begun there for one client is not for
    those of another token."""

    def token_shown(self) -> str | None:
        """The token for the client that the current task works for. Raises as `Credentials.token`."""


def token_shown(back: object) -> str | None:
    """What `back` says, if it is one of these."""
    return back.token_shown() if isinstance(back, ShowsTokens) else None
