"""SASL: clients authenticate themselves with PLAIN or SCRAM (KIP-12, KIP-43, KIP-152), with the gateway's tokens.

The secret is a token: an access token, one of an identity, or one of the listener's own. With PLAIN, name and secret
may also be the user name and password of an identity; with a token the name does not matter. SCRAM looks secrets up by
the name: the tokens of the identity of this name, and those of the listener for all other names. Of access tokens and
passwords the gateway has only hashes, which SCRAM cannot work with.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.routing.access.clients import admit_token, log_in
from penstock_kafka.codec import KafkaError, KafkaMessage
from penstock_kafka.codec.cluster_messages import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from penstock_kafka.codec.sasl import SCRAM_HASHES, ScramServer, plain_credentials
from penstock_kafka.front.call import KafkaCall, KafkaHandlers
from penstock_kafka.front.link import SaslLogin
from penstock_kafka.front.settings import KafkaSettings

__all__ = ["BEFORE_LOGIN", "SaslHandlers"]

_PLAIN: Final = "PLAIN"
_MECHANISMS: Final = (_PLAIN, *SCRAM_HASHES)
BEFORE_LOGIN: Final = (ApiVersionsRequest, SaslHandshakeRequest, SaslAuthenticateRequest)
"""Requests that clients send before they are authenticated."""


class SaslHandlers:
    """Handlers of SaslHandshake and SaslAuthenticate."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._salts = secrets.token_bytes(32)
        self.handlers: KafkaHandlers = {
            SaslHandshakeRequest: self._handshake,
            SaslAuthenticateRequest: self._authenticate,
        }

    def check(self, message: KafkaMessage, login: SaslLogin) -> None:
        """Raise AUTHN for a request that needs a login before it."""
        if self._settings.clients.closed and not login.done and not isinstance(message, BEFORE_LOGIN):
            raise fail(FailureCode.AUTHN, "clients of this listener must authenticate themselves with SASL")

    async def _handshake(self, request: SaslHandshakeRequest, call: KafkaCall) -> SaslHandshakeResponse:
        login = call.link.login
        error = KafkaError.NONE
        if login.done:
            error = KafkaError.ILLEGAL_SASL_STATE
        elif request.mechanism not in _MECHANISMS:
            error = KafkaError.UNSUPPORTED_SASL_MECHANISM
        else:
            login.mechanism, login.scram = request.mechanism, None
        if error:
            call.refusals += 1
        return SaslHandshakeResponse(error_code=error, mechanisms=list(_MECHANISMS))

    async def _authenticate(self, request: SaslAuthenticateRequest, call: KafkaCall) -> SaslAuthenticateResponse:
        login = call.link.login
        if login.done or not login.mechanism:
            call.refusals += 1
            return SaslAuthenticateResponse(
                error_code=KafkaError.ILLEGAL_SASL_STATE, error_message="there is no exchange of SASL to go on with"
            )
        try:
            if login.mechanism == _PLAIN:
                credentials = plain_credentials(request.auth_bytes)
                await log_in(credentials.name, credentials.secret, self._settings.clients)
            elif login.scram is None:
                login.scram = ScramServer(login.mechanism, self._secrets_of, self._salt_of, secrets.token_hex(18))
                return SaslAuthenticateResponse(auth_bytes=login.scram.first(request.auth_bytes))
            else:
                secret, response = login.scram.final(request.auth_bytes)
                admit_token(secret, self._settings.clients)
                login.done = True
                return SaslAuthenticateResponse(auth_bytes=response)
        except OperationFailed as error:
            call.refused(error.failure)
            call.link.quota.login_failed()
            login.mechanism, login.scram = "", None
            return SaslAuthenticateResponse(
                error_code=KafkaError.SASL_AUTHENTICATION_FAILED, error_message=error.failure.message
            )
        login.done = True
        return SaslAuthenticateResponse()

    def _secrets_of(self, name: str) -> list[str]:
        """Return the secrets that SCRAM may prove; for an unknown name one that does not exist, so that its refusal
        takes as long."""
        rules = self._settings.clients
        return rules.identities.tokens_of(name) or [*rules.tokens] or [self._salts.hex()]

    def _salt_of(self, name: str) -> bytes:
        return hmac.digest(self._salts, name.encode(), "sha256")[:16]
