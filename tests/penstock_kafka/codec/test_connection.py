"""A client wired to a server, in both directions, and connections that break the rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.kafka.messages import messages

from penstock.model.failures import FailureCode, LocalProtocolError, RemoteProtocolError
from penstock.wire.codec import NEED_DATA, PAUSED
from penstock_kafka.codec import APIS, KafkaClient, KafkaRequest, KafkaResponse, KafkaServer
from penstock_kafka.codec.cluster_messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from penstock_kafka.codec.conversation import encode_request

METADATA = MetadataRequest(topics=())
ANSWER = MetadataResponse(brokers=[], topics=())


def request(version: int = 1, number: int = 1, client: str | None = "me") -> KafkaRequest:
    return KafkaRequest(APIS[3], version, number, client, METADATA)


def failure(server: KafkaServer | KafkaClient) -> str:
    with pytest.raises(RemoteProtocolError) as failed:
        server.next_event()
    return str(failed.value.failure)


@examples(most=60)
@given(st.data())
def test_a_client_and_a_server_understand_each_other(data: st.DataObject) -> None:
    client, server = KafkaClient(), KafkaServer()
    asked = []
    for number in range(data.draw(st.integers(1, 3))):
        api = data.draw(st.sampled_from(list(APIS.values())))
        version = data.draw(st.integers(api.oldest, api.newest))
        one = KafkaRequest(api, version, number, data.draw(st.none() | st.just("me")), data.draw(messages(api.request)))
        try:
            server.receive(b"".join(client.send(one)))
        except LocalProtocolError:  # this version cannot spell a null
            continue
        asked.append(one)
    for one in asked:
        got = server.next_event()
        assert isinstance(got, KafkaRequest)
        assert (got.api, got.version, got.correlation_id) == (one.api, one.version, one.correlation_id)
        answer = data.draw(messages(one.api.response))
        try:
            client.receive(b"".join(server.send(KafkaResponse(got, answer))))
        except LocalProtocolError:
            return
        back = client.next_event()
        assert isinstance(back, KafkaResponse) and back.request is one
    assert server.next_event() is NEED_DATA and client.next_event() is NEED_DATA
    assert (server.buffered, client.buffered) == (0, 0)


def test_responses_come_in_the_order_of_the_requests() -> None:
    server = KafkaServer()
    server.receive(b"".join(encode_request(request(number=1)) + encode_request(request(number=2))))
    first, second = server.next_event(), server.next_event()
    with pytest.raises(LocalProtocolError, match="oldest"):
        server.send(KafkaResponse(second, ANSWER))
    with pytest.raises(LocalProtocolError, match="ApiVersionsResponse does not answer Metadata"):
        server.send(KafkaResponse(first, ApiVersionsResponse(api_keys=())))
    assert b"".join(server.send(KafkaResponse(first, ANSWER)))[4:8] == b"\0\0\0\1"
    assert server.send(KafkaResponse(second, None)) == []
    with pytest.raises(LocalProtocolError):
        server.send(KafkaResponse(second, ANSWER))


def test_apis_in_an_unknown_version_are_answered_in_version_0() -> None:
    """The header of the response is the old one in all versions, and the client asks again (KIP-511)."""
    server = KafkaServer()
    server.receive(bytes.fromhex("0000000d 0012 0063 00000009 ffff 00 aabb"))
    asked = server.next_event()
    assert isinstance(asked, KafkaRequest)
    assert (asked.supported, asked.version, asked.message) == (False, 0, ApiVersionsRequest())
    response = ApiVersionsResponse(error_code=35, api_keys=())
    assert b"".join(server.send(KafkaResponse(asked, response))).hex() == "0000000a" + "00000009" + "0023" + "00000000"


def test_the_response_to_apis_has_no_tags_in_its_header() -> None:
    client, server = KafkaClient(), KafkaServer()
    asked = KafkaRequest(APIS[18], 3, 5, None, ApiVersionsRequest())
    server.receive(b"".join(client.send(asked)))
    sent = b"".join(server.send(KafkaResponse(server.next_event(), ApiVersionsResponse(api_keys=()))))
    assert sent.hex() == "0000000c" + "00000005" + "0000" + "01" + "00000000" + "00"
    client.receive(sent)
    assert client.next_event() == KafkaResponse(asked, ApiVersionsResponse(api_keys=()))


@pytest.mark.parametrize(
    ("sent", "code", "why"),
    [
        ("00000007", FailureCode.BAD_FRAME, "length 7 of request 1 is less than 8, that of its header"),
        ("ffffffff", FailureCode.BAD_FRAME, "length -1 of request 1"),
        ("00000401", FailureCode.LIMIT_EXCEEDED, "length 1025 of request 1 exceeds the limit of 1024 bytes"),
        ("0000000a 7000 0000 00000001 ffff", FailureCode.BAD_FRAME, "API 28672 is not known"),
        ("0000000a 0003 000e 00000001 ffff", FailureCode.BAD_FRAME, "Metadata has the versions 0 to 13, not 14"),
        ("0000000a 0003 0001 00000001 0005", FailureCode.BAD_FRAME, "client id of 5 bytes, of which only 0 are there"),
        ("0000000e 0003 0001 00000001 ffff 7fffffff", FailureCode.BAD_FRAME, "an array of 2147483647 elements"),
    ],
)
def test_a_request_that_breaks_the_protocol_is_named(sent: str, code: FailureCode, why: str) -> None:
    server = KafkaServer(max_frame=1024)
    server.receive(bytes.fromhex(sent))
    said = failure(server)
    assert said.startswith(code.value) and why in said, said
    assert failure(server) == said
    assert server.buffered == 0


def test_a_connection_may_end_between_messages_only() -> None:
    whole = b"".join(encode_request(request()))
    server = KafkaServer()
    server.receive(whole)
    server.receive(b"")
    assert isinstance(server.next_event(), KafkaRequest)
    assert server.next_event() is PAUSED
    server = KafkaServer()
    server.receive(whole + whole[:7])
    server.receive(b"")
    server.next_event()
    assert failure(server) == "client_hangup: the connection ended after 7 bytes of request 2"


def test_a_client_refuses_what_it_did_not_ask_for() -> None:
    client = KafkaClient()
    client.receive(bytes.fromhex("00000004 00000001"))
    assert "answers no request" in failure(client)
    client = KafkaClient()
    client.send(request(number=3))
    client.receive(bytes.fromhex("00000004 00000001"))
    assert "correlation id 1, expected 3" in failure(client)
    client = KafkaClient()
    client.send(request())
    client.receive(b"")
    assert failure(client) == "unavailable: the connection ended with 1 responses outstanding"


def test_bytes_behind_a_request_are_ignored() -> None:
    """librdkafka 2.16 asks for all topics in version 9 so, with an array's length in 4 bytes instead of one."""
    server = KafkaServer()
    server.receive(bytes.fromhex("0000001a 0003 0009 00000003 0007 72646b61666b61 00 00000000 01 000000"))
    asked = server.next_event()
    assert isinstance(asked, KafkaRequest) and asked.message == MetadataRequest(
        topics=None, allow_auto_topic_creation=False
    )
