"""Every `config/bridge-*.toml` is checked, and run with a second Penstock as the server behind it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.bridges.client_fronts import KafkaFront
from support.bridges.fronts import LOOPBACK, Front, JsonFront, Record, S2SFront, SseFront
from support.bridges.plain_fronts import ReleasedFront, S3PFront
from support.ports import free_ports
from support.process import BASIN, CONFIG, LISTENERS, GatewayProcess, running_gateway
from support.real_backs import SecondPenstock
from support.s2.client import S2Client
from support.tls.certificates import needs_openssl, self_signed

from penstock.app.config import load_config
from penstock.app.config.advice import advice
from penstock.app.report import report

CONFIGURATIONS = Path(__file__).parents[2] / "config"
USUAL_PORTS = {"durable": 4437, "kafka": 9092, "s2": 8080, "s3p": 7500, "segment": 12345, "controller": 9090}
JSON = {"content-type": "application/json"}

SAID = {
    "bridge-s3p-to-s2.toml": [
        "lite: S2 at 127.0.0.1:8090, in plaintext, no credentials",
        "all streams of any basin: to back lite",
        "reads, dropped: headers (the body is delivered without them); empty bodies; command records",
        "guarantee: exactly once: after a lost acknowledgement the gateway looks for the records",
    ],
    "bridge-s3p-to-segment.toml": [
        "all streams of basin penstock: to back pravega, named s3p-streams/{stream} there",
        "guarantee: exactly once: after a lost acknowledgement the gateway asks the server for the writer's last",
    ],
    "bridge-segment-to-s2.toml": [
        "larger events, and bytes that are not events (as pieces, which have headers)",
        "transactions (apart from the stream until they are committed)",
        "byte offsets (counted by the gateway, kept in its index)",
    ],
    "bridge-s2-to-segment.toml": [
        "pravega: segments at controller 127.0.0.1:9091, in plaintext",
        "appends, enveloped: headers; empty bodies",
        "appends, refused: command records; fencing_token (the server has no such condition)",
        "sequence numbers (counted by the gateway, kept in its index)",
    ],
    "bridge-s2-to-s3p.toml": [
        "appends, enveloped: headers; empty bodies",
        "appends, refused: command records; match_seq_num (the server has no such condition)",
        "guarantee: at least once: after a lost acknowledgement it is sent again, so records may be stored twice",
    ],
    "bridge-s2-to-durable.toml": [
        "web: Durable Streams at 127.0.0.1:4438, in plaintext, trimmed records are hidden here and stay on the server",
        "headers (on streams of records; refused on streams of JSON)",
        "appends, refused: command records; match_seq_num (the server has no such condition)",
        "guarantee: exactly once: after a lost acknowledgement the gateway sends it again with its number",
    ],
    "bridge-s2-to-kafka.toml": [
        "cluster: Kafka at 127.0.0.1:9094, in plaintext, sequence numbers are offsets",
        "headers (if their names are UTF-8)",
        "appends, refused: command records; match_seq_num (the server has no such condition)",
        "guarantee: exactly once: after a lost acknowledgement the gateway sends the batch again with its number",
    ],
    "bridge-kafka-to-s2.toml": [
        "lite: S2 at 127.0.0.1:8090, in plaintext, no credentials",
        "appends, kept: values (byte for byte, in order); keys and headers; empty values",
        "offsets (they are the sequence numbers)",
    ],
    "bridge-kafka-to-s3p.toml": [
        "appends, enveloped: keys and headers; empty values",
        "guarantee: at least once: after a lost acknowledgement it is sent again, so records may be stored twice",
    ],
    "bridge-segment-to-kafka.toml": [
        "cluster: Kafka at 127.0.0.1:9094, in plaintext",
        "positions of writers (beside the server, in the gateway's state)",
        "byte offsets (counted by the gateway, kept in its index)",
    ],
    "bridge-sse-from-segment.toml": [
        "streams public-... of basin penstock: to back pravega",
        "read-only: all other operations are refused",
    ],
    "bridge-s2-sidecar.toml": [
        "upstream: S2 at 127.0.0.1:8443, over TLS, a token for each identity",
        "all streams of any basin, with identity analytics: to back upstream, named analytics-{basin}/{stream} there",
        "S2S sessions pass through untouched",
    ],
    "bridge-mirror.toml": [
        "streams orders* (glob) of basin penstock: to embedded",
        "mirrored to lite, and compared record by record; a cut-over makes it the route's back",
    ],
    "bridge-several.toml": [
        "all streams of basin team-*, of clients on s2.inner, s3p: to back lite, named all-teams/{1}/{stream} there",
        "Route sensors, clients of s2.inner",
        "clients' names cannot be told from {basin}/{kind}/{number}, so listings leave its streams out",
    ],
    "bridge-stores.toml": [
        "all streams of basin telemetry-*: to back two",
        "S2S sessions pass through untouched",
    ],
    "bridge-s2-source.toml": [
        "source: S2, only read, over SSE at 127.0.0.1:8090",
        "appends, refused: everything (the server is only read)",
    ],
}
"""Part of the output of `penstock check` for each."""


def test_every_example_is_here() -> None:
    assert {path.name for path in CONFIGURATIONS.glob("bridge-*.toml")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_what_check_says(name: str) -> None:
    config = load_config(CONFIGURATIONS / name)
    told = " ".join(report(config, name).split())
    for words in SAID[name]:
        assert words in told
    assert not [remark for remark in advice(config) if remark.insecure]


# ---- running them --------------------------------------------------------------------------------------------


@contextmanager
def running(name: str, **places: object) -> Iterator[GatewayProcess]:
    """Run the example on free ports and in a temporary directory; `places`: the replacement of each text in it."""
    text = (CONFIGURATIONS / name).read_text().replace("{", "{{").replace("}", "}}")
    for kind in LISTENERS:
        text = text.replace(f'"{LOOPBACK}:{USUAL_PORTS[kind]}"', f'"{LOOPBACK}:{{{kind}_port}}"')
    text = text.replace(f'"{LOOPBACK}:8081"', f'"{LOOPBACK}:0"').replace(f'"{LOOPBACK}:9600"', f'"{LOOPBACK}:0"')
    for old, new in places.items():
        wanted = _PLACES[old]
        assert wanted in text
        key = "tls_ca = " if old == "authorities" else ""
        text = text.replace(wanted, f'{key}"{new}"')
    text = re.sub(r'directory = "\.\./data/[a-z0-9-]+"', 'directory = "{data}"', text)
    with running_gateway(text + '\n[log]\nformat = "json"\n') as gateway:
        yield gateway


_PLACES = {
    "s2": f'"{LOOPBACK}:8090"',
    "s3p": f'"{LOOPBACK}:7600"',
    "controller": f'"{LOOPBACK}:9091"',
    "durable": f'"{LOOPBACK}:4438"',
    "kafka": f'"{LOOPBACK}:9094"',
    "tls": f'"{LOOPBACK}:8443"',
    "authorities": '# tls_ca = "ca.pem"',
}


def at(address: tuple[str, int] | None) -> str:
    assert address is not None
    return f"{address[0]}:{address[1]}"


class Pair(NamedTuple):
    """An example, the server behind it, and how its clients come. `basin`: what theirs is called on the server."""

    name: str
    server: str
    front: type[Front]
    basin: str = BASIN

    def __str__(self) -> str:
        return f"{self.name}-{self.front.name}".replace(" ", "-")


PAIRS = [
    Pair("bridge-s3p-to-s2.toml", "s2", S3PFront),
    Pair("bridge-s3p-to-segment.toml", "segment", S3PFront, "s3p-streams"),
    Pair("bridge-segment-to-s2.toml", "s2", ReleasedFront),
    Pair("bridge-s2-to-segment.toml", "segment", JsonFront),
    Pair("bridge-s2-to-segment.toml", "segment", S2SFront),
    Pair("bridge-s2-to-s3p.toml", "s3p", JsonFront),
    Pair("bridge-s2-to-durable.toml", "durable", JsonFront),
    Pair("bridge-s2-to-kafka.toml", "kafka", JsonFront),
    Pair("bridge-kafka-to-s2.toml", "s2", KafkaFront),
    Pair("bridge-kafka-to-s3p.toml", "s3p", KafkaFront),
    Pair("bridge-segment-to-kafka.toml", "kafka", ReleasedFront),
]
RECORDS = [Record(b"one"), Record(b"two" * 1000), Record(b"\x00\xff")]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_records_go_through_and_come_back(pair: Pair) -> None:
    key = {"segment": "controller"}.get(pair.server, pair.server)
    with SecondPenstock(pair.server) as server:
        address = server.controller if key == "controller" else server.address
        with (
            running(pair.name, **{key: at(address)}) as gateway,
            contextlib.closing(pair.front(gateway, "orders")) as front,
        ):
            front.create()
            front.append(RECORDS[:1])
            front.append(RECORDS[1:])
            assert [seen.record for seen in front.read(front.start())] == RECORDS
        direct = S2Client((LOOPBACK, server.process.s2_port), pair.basin)
        answer = direct.request("GET", "/v1/streams/orders/records", headers={"s2-format": "base64"}, seq_num=0)
        assert len(answer.json()["records"]) == (2 if pair.server == "durable" else len(RECORDS))  # one for each append


def test_a_gateway_starts_without_its_server() -> None:
    """Its clients are told that nothing was sent, until the server is there."""
    (port,) = free_ports(1)
    with running("bridge-s2-to-s3p.toml", s3p=f"{LOOPBACK}:{port}") as gateway:
        client = S2Client((LOOPBACK, gateway.s2_port), BASIN)
        body = b'{"records":[{"body":"x"}]}'
        said = client.request("POST", "/v1/streams/orders/records", body, JSON).fails(502, "hot_server")
        assert f"back legacy at {LOOPBACK}:{port}: cannot connect" in said


def test_browsers_follow_and_cannot_write() -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(SecondPenstock("segment"))
        gateway = stack.enter_context(running("bridge-sse-from-segment.toml", controller=at(server.controller)))
        with contextlib.closing(ReleasedFront(server.process, "public-news")) as writer:
            writer.create()
            writer.append(RECORDS)
        assert [seen.record for seen in SseFront(gateway, "public-news").read(0)] == RECORDS
        client = S2Client((LOOPBACK, gateway.s2_port), BASIN)
        refused = client.request("POST", "/v1/streams/public-news/records", b'{"records":[{"body":"x"}]}', JSON)
        assert "read-only" in refused.fails(403, "permission_denied")
        secret = client.request("GET", "/v1/streams/secret/records", seq_num=0)
        assert "no route of listener s2 takes stream penstock/secret" in secret.fails(404, "stream_not_found")


def test_a_source_is_read_and_not_written() -> None:
    with SecondPenstock("s2") as server, running("bridge-s2-source.toml", s2=at(server.address)) as gateway:
        S2Client((LOOPBACK, server.process.s2_port), BASIN).ensure_stream("news")
        JsonFront(server.process, "news").append(RECORDS)
        assert [seen.record for seen in SseFront(gateway, "news").read(0)] == RECORDS
        client = S2Client((LOOPBACK, gateway.s2_port), BASIN)
        refused = client.request("POST", "/v1/streams/news/records", b'{"records":[{"body":"x"}]}', JSON)
        assert refused.status in (403, 501), refused


@needs_openssl
def test_a_sidecar_swaps_tokens_and_speaks_tls(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    secured = (
        f'[listeners.s2]\ntls_certificate = "{certificate}"\ntls_key = "{key}"\n'
        'auth_tokens = ["analytics-there", "others-there"]\n'
    )
    with running_gateway(CONFIG.replace("[listeners.s2]\n", secured)) as server:
        places = {"tls": f"{LOOPBACK}:{server.s2_port}", "authorities": certificate}
        with running("bridge-s2-sidecar.toml", **places) as gateway:
            client = S2Client((LOOPBACK, gateway.s2_port), BASIN)
            known = {**JSON, "authorization": "Bearer analytics-here"}
            made = client.request("PUT", f"/v1/basins/{BASIN}", b'{"config":{"create_stream_on_append":true}}', known)
            assert made.json(201)["name"] == BASIN
            body = b'{"records":[{"body":"from analytics"}]}'
            client.request("POST", "/v1/streams/events/records", body, known).json()
            listed = client.request("GET", "/v1/basins", headers={"authorization": "Bearer analytics-here"})
            assert [basin["name"] for basin in listed.json()["basins"]] == [BASIN]
            others = [basin["name"] for basin in client.request("GET", "/v1/basins").json()["basins"]]
            assert others == [f"analytics-{BASIN}", BASIN]
            absent = client.request("GET", "/v1/streams/events/records", seq_num=0)
            assert absent.status == 404, "a stream of the others by the same name, which was not created"


def test_a_mirror_and_a_cut_over() -> None:
    with SecondPenstock("s2") as server, running("bridge-mirror.toml", s2=at(server.address)) as gateway:
        front = JsonFront(gateway, "orders-eu")
        front.create()
        front.append(RECORDS)
        ports = {event["listener"]: event["port"] for event in gateway.events("listening")}
        management = S2Client((LOOPBACK, ports["management"]))
        done = management.request("POST", "/routes/orders/cut-over", b"{}", JSON)
        assert done.json()["swapped"], done
        (route, _rest) = management.request("GET", "/routes").json()["routes"]
        assert (route["name"], route["back"], route["configured_back"]) == ("orders", "lite", "embedded")
        assert [seen.record for seen in front.read(0)] == RECORDS
        front.append(RECORDS[:1])
        direct = JsonFront(server.process, "orders-eu")
        assert [seen.record for seen in direct.read(0)] == [*RECORDS, RECORDS[0]]


def test_several_listeners_and_several_servers() -> None:
    with SecondPenstock("s2") as lite, SecondPenstock("s3p") as legacy:
        teams = S2Client((LOOPBACK, lite.process.s2_port), "all-teams")
        teams.ensure_basin("all-teams")
        S2Client((LOOPBACK, legacy.process.s2_port)).ensure_basin("all-sensors")
        path = '[listeners.s3p]\nnames = "path"\n'
        legacy.process._template = CONFIG.replace("[listeners.s3p]\n", path)
        legacy.restart()
        with running("bridge-several.toml", s2=at(lite.address), s3p=at(legacy.address)) as gateway:
            inner = S2Client((LOOPBACK, gateway.s2_port))
            inner.of("team-one").ensure_stream("orders")
            post(inner.of("team-one"), "orders", "for a team")
            assert texts(teams, "one%2Forders") == ["for a team"]
            post(inner.of("all-sensors"), "7-temperature", "21.5")
            there = S2Client((LOOPBACK, legacy.process.s2_port), "all-sensors")
            assert texts(there, "temperature%2F7") == ["21.5"]
            assert inner.of("team-one").request("GET", "/v1/streams").json()["streams"][0]["name"] == "orders"
            ports = {event["listener"]: event["port"] for event in gateway.events("listening")}
            outer = S2Client((LOOPBACK, ports["listeners.s2.outer"]), "team-one")
            token = {"authorization": "Bearer outer-secret"}
            outer.request("GET", "/v1/streams/orders/records", seq_num=0).fails(401, "authn")
            outer.request("GET", "/v1/streams/orders/records", headers=token, seq_num=0).fails(404, "stream_not_found")


def post(client: S2Client, stream: str, text: str) -> None:
    body = json.dumps({"records": [{"body": text}]}).encode()
    client.request("POST", f"/v1/streams/{stream}/records", body, JSON).json()


def texts(client: S2Client, stream: str) -> list[Any]:
    return [one["body"] for one in client.request("GET", f"/v1/streams/{stream}/records", seq_num=0).json()["records"]]
