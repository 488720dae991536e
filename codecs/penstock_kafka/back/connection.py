"""One connection to a broker: requests in the newest versions that both sides know."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping
from typing import Final, TypeVar

import trio

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import KIB
from penstock.net.codec_connection import CodecConnection, CodecPool
from penstock.net.upstream import Upstream, broke
from penstock_kafka.back.settings import KafkaLogin
from penstock_kafka.codec import API_OF, API_VERSIONS, KafkaApi, KafkaClient, KafkaMessage, KafkaRequest, KafkaResponse
from penstock_kafka.codec.client_errors import broker_failure
from penstock_kafka.codec.cluster_messages import (
    ApiVersionRange,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from penstock_kafka.codec.sasl import SCRAM_HASHES, ScramClient, plain_message

__all__ = ["CLIENT_ID", "KafkaConnection", "KafkaPool"]

CLIENT_ID: Final = "penstock"
"""The name of the gateway in the logs and quotas of brokers."""
_ROOM: Final = 64 * KIB
"""Bytes of an answer beside its records."""
M = TypeVar("M", bound=KafkaMessage)


class KafkaConnection(CodecConnection):
    """Connection for one request at a time: a broker answers in the order of the requests, so one that waits for
    records holds up all behind it. Unusable after an OperationFailed."""

    def __init__(
        self, stream: trio.abc.Stream, upstream: Upstream, max_fetch_bytes: int, login: KafkaLogin | None = None
    ) -> None:
        self._codec = KafkaClient(max_frame=max_fetch_bytes + _ROOM)
        super().__init__(stream, upstream, self._codec)
        self._numbers = itertools.count(1)
        self._login = login
        self._offered: Mapping[int, ApiVersionRange] | None = None

    async def call(self, message: KafkaMessage, kind: type[M], seconds: float) -> M:
        """Send a request and receive its response within `seconds`.

        Raises OperationFailed: UNAVAILABLE or UPSTREAM_TIMEOUT if its outcome is unknown, NOT_IMPLEMENTED for a request
        that the broker does not know. Cancelling it breaks the connection.
        """
        async with self.within(seconds, "answer"):
            await self.send(message)
            return await self.response(kind)

    async def send(self, message: KafkaMessage) -> None:
        """Send a request; before the first one, ask the broker for its versions, and log in."""
        api = API_OF[type(message)]
        if self._offered is None and api is not API_VERSIONS:
            versions_request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
            await self._send(API_VERSIONS, versions_request, API_VERSIONS.flexible)
            offered = await self.response(ApiVersionsResponse)
            if offered.error_code:
                raise OperationFailed(
                    broker_failure(offered.error_code, f"{self.upstream.settings.where}, ApiVersions")
                )
            self._offered = {api_key.api_key: api_key for api_key in offered.api_keys}
            if self._login is not None:
                try:
                    await self._log_in(self._login)
                except OperationFailed:
                    self.broken = True
                    raise
        await self._send(api, message, self._version(api))

    async def _log_in(self, login: KafkaLogin) -> None:
        """Authenticate (SASL). Raises PERMISSION_DENIED, NOT_IMPLEMENTED if the broker lacks the mechanism."""
        where = f"{self.upstream.settings.where}, login as {login.name} by {login.mechanism}"
        handshake = SaslHandshakeRequest(mechanism=login.mechanism)
        await self._send(API_OF[SaslHandshakeRequest], handshake, self._version(API_OF[SaslHandshakeRequest]))
        chosen = await self.response(SaslHandshakeResponse)
        if chosen.error_code:
            known = ", ".join(chosen.mechanisms)
            raise OperationFailed(broker_failure(chosen.error_code, where, f"the broker has {known or 'none'}"))
        if login.mechanism not in SCRAM_HASHES:
            await self._prove(plain_message(login.name, login.secret), where)
            return
        scram = ScramClient(login.mechanism, login.name, login.secret, secrets.token_hex(16))
        answer = await self._prove(scram.first(), where)
        try:
            last = scram.final(answer)
            scram.check(await self._prove(last, where))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.AUTHN:
                raise
            raise fail(FailureCode.PERMISSION_DENIED, f"{where}: {error.failure.message}") from None

    async def _prove(self, data: bytes, where: str) -> bytes:
        """Send a message of the mechanism; return the answer. Raises OperationFailed."""
        api = API_OF[SaslAuthenticateRequest]
        await self._send(api, SaslAuthenticateRequest(auth_bytes=data), self._version(api))
        proof = await self.response(SaslAuthenticateResponse)
        if proof.error_code:
            raise OperationFailed(broker_failure(proof.error_code, where, proof.error_message))
        return proof.auth_bytes

    async def _send(self, api: KafkaApi, message: KafkaMessage, version: int) -> None:
        request = KafkaRequest(api, version, next(self._numbers), CLIENT_ID, message)
        await self.send_pieces(piece for piece in self._codec.send(request))

    def _version(self, api: KafkaApi) -> int:
        where, offered = self.upstream.settings.where, (self._offered or {}).get(api.key)
        if offered is None:
            raise fail(FailureCode.NOT_IMPLEMENTED, f"{where}: the broker has no {api.name}")
        version = min(api.newest, offered.max_version)
        if version < max(api.oldest, offered.min_version):
            theirs = f"{offered.min_version} to {offered.max_version}"
            reason = f"the broker has {api.name} in versions {theirs}, the gateway in {api.oldest} to {api.newest}"
            raise fail(FailureCode.NOT_IMPLEMENTED, f"{where}: {reason}")
        return version

    async def response(self, kind: type[M]) -> M:
        """Receive the response to the last request. May be cancelled and called again. Raises OperationFailed."""
        event = await self.next_event()
        if not isinstance(event, KafkaResponse) or not isinstance(event.message, kind):
            self.broken = True
            raise broke(self.upstream.settings, f"an answer that is no {kind.__name__}")
        return event.message


KafkaPool = CodecPool[KafkaConnection]
"""Connections to one broker."""
