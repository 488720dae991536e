"""SASL at the front: what clients may do before it, and what they are afterwards."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.kafka.front import Client, serving

from penstock.core.back import Back
from penstock.core.identity import Identities
from penstock.net.limits import CONNECTION_QUOTA, Limiter
from penstock.net.limits.limiter import FAILED_PER_SECOND, FAILED_SECONDS, ConnectionQuota
from penstock.routing.access.clients import ClientRules
from penstock.routing.access.passwords import Passwords, hash_password
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.cluster_messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from penstock_kafka.front import KafkaSettings

RULES = ClientRules(frozenset({"own"}), Identities({"of-plant": "plant"}, ()))
PASSWORDS = {"user": ("analytics", hash_password("password"))}


@pytest.fixture
def settings() -> KafkaSettings:
    return KafkaSettings(clients=replace(RULES, passwords=Passwords(PASSWORDS)))


async def shake(client: Client, mechanism: str = "PLAIN") -> int:
    response = await client.call(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, 1)
    assert response.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    return response.error_code


async def plain(client: Client, name: str, secret: str) -> int:
    message = SaslAuthenticateRequest(auth_bytes=f"\0{name}\0{secret}".encode())
    return (await client.call(message, SaslAuthenticateResponse)).error_code


async def test_nothing_is_answered_before_authentication(back: Back, settings: KafkaSettings) -> None:
    async with serving(back, settings) as (connect, _):
        client = connect()
        await client.call(ApiVersionsRequest(), ApiVersionsResponse)
        await client.send(MetadataRequest(topics=None))
        assert await client.ended()


@pytest.mark.parametrize(("name", "secret"), [("any", "own"), ("plant", "of-plant"), ("user", "password")])
async def test_a_token_or_a_password_lets_a_client_in(
    back: Back, settings: KafkaSettings, name: str, secret: str
) -> None:
    async with serving(back, settings) as (connect, _):
        client = connect()
        assert await shake(client) == 0
        assert await plain(client, name, secret) == 0
        await client.call(MetadataRequest(topics=None), MetadataResponse)
        assert await shake(client) == KafkaError.ILLEGAL_SASL_STATE


@pytest.mark.parametrize(("name", "secret"), [("any", "other"), ("user", "of-user"), ("plant", "")])
async def test_wrong_secrets_are_refused_and_may_be_tried_again(
    back: Back, settings: KafkaSettings, name: str, secret: str
) -> None:
    async with serving(back, settings) as (connect, _):
        client = connect()
        await shake(client)
        assert await plain(client, name, secret) == KafkaError.SASL_AUTHENTICATION_FAILED
        assert await plain(client, "any", "own") == KafkaError.ILLEGAL_SASL_STATE
        await shake(client)
        assert await plain(client, "any", "own") == 0


async def test_unknown_mechanisms_are_refused(back: Back, settings: KafkaSettings) -> None:
    async with serving(back, settings) as (connect, _):
        client = connect()
        assert await shake(client, "GSSAPI") == KafkaError.UNSUPPORTED_SASL_MECHANISM
        assert await plain(client, "any", "own") == KafkaError.ILLEGAL_SASL_STATE


async def test_an_open_listener_still_refuses_wrong_secrets(back: Back) -> None:
    async with serving(back) as (connect, _):
        client = connect()
        await client.call(MetadataRequest(topics=None), MetadataResponse)
        await shake(client)
        assert await plain(client, "any", "other") == KafkaError.SASL_AUTHENTICATION_FAILED


async def test_new_settings_hold_from_the_next_login(back: Back, settings: KafkaSettings) -> None:
    """As a reload of the configuration changes them."""
    async with serving(back, settings) as (connect, _):
        settings.clients = ClientRules(frozenset({"new"}))
        client = connect()
        await shake(client)
        assert await plain(client, "any", "own") == KafkaError.SASL_AUTHENTICATION_FAILED
        await shake(client)
        assert await plain(client, "any", "new") == 0


async def test_failed_logins_count_as_failed_connections(back: Back) -> None:
    """Too many slow the client, and end its connection; others log in."""
    limiter = Limiter()
    async with serving(back, KafkaSettings(clients=RULES)) as (connect, _):

        def connected(host: str) -> Client:
            quota = limiter.enter("kafka", 100, host)
            assert isinstance(quota, ConnectionQuota)
            before = CONNECTION_QUOTA.set(quota)
            client = connect()
            CONNECTION_QUOTA.reset(before)
            return client

        attacker = connected("10.0.0.1")
        for number in range(2 * int(FAILED_PER_SECOND * FAILED_SECONDS)):
            if limiter.pause(limiter.account("10.0.0.1"))[0]:
                assert number >= FAILED_PER_SECOND * FAILED_SECONDS
                break
            await shake(attacker)
            assert await plain(attacker, "any", "guess") == KafkaError.SASL_AUTHENTICATION_FAILED
        else:
            raise AssertionError("nothing slows it")
        assert await attacker.ended()
        other = connected("10.0.0.2")
        await shake(other)
        assert await plain(other, "any", "own") == 0
