"""Kafka: what SASL says is blanked; records are withheld where rules look into contents."""

from __future__ import annotations

import pytest
from support.captures.redaction import CLIENT, SERVER, at_every_cut, leaks

from penstock_analysis.redaction.rules import RedactionRules
from penstock_codecs.codec import Role
from penstock_codecs.kafka import APIS, PLUGIN, KafkaMessage, KafkaRequest
from penstock_codecs.kafka.cluster_messages import SaslAuthenticateRequest, SaslHandshakeRequest
from penstock_codecs.kafka.conversation import encode_request, read_request

HUSH = b"hush-hush-4711"
REQUESTS, RESPONSES = PLUGIN.sample(Role.SERVER, "4"), PLUGIN.sample(Role.CLIENT, "4")


def request(message: KafkaMessage, key: int, version: int) -> bytes:
    return b"".join(encode_request(KafkaRequest(APIS[key], version, 1, "me", message)))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_what_sasl_says_is_blanked_and_the_rest_stays(version: int) -> None:
    shake = request(SaslHandshakeRequest(mechanism="PLAIN"), 17, 1)
    secret = request(SaslAuthenticateRequest(auth_bytes=b"\0user\0" + HUSH), 36, version)
    client, server = at_every_cut([(CLIENT, shake + secret + REQUESTS), (SERVER, RESPONSES)], RedactionRules(), "kafka")
    assert not leaks(client, HUSH)
    assert (client[: len(shake)], client[-len(REQUESTS) :], server) == (shake, REQUESTS, RESPONSES)
    blanked = read_request(client[len(shake) + 4 : len(shake) + len(secret)])
    assert (blanked.api.name, blanked.client_id, blanked.version) == ("SaslAuthenticate", "me", version)


def test_bytes_that_are_no_request_are_withheld() -> None:
    """They may be a token, as they follow the oldest SaslHandshake."""
    client, _ = at_every_cut([(CLIENT, b"\0\0\0\x14\0user\0" + HUSH)], RedactionRules(), "kafka")
    assert not leaks(client, HUSH)


def test_with_rules_for_contents_no_record_is_seen() -> None:
    rules = RedactionRules(patterns=(rb"hush-[a-z]+-[0-9]+",))
    client, server = at_every_cut([(CLIENT, REQUESTS), (SERVER, RESPONSES)], rules, "kafka")
    assert b"first" not in client and b"first" not in server
