"""Traces of real gateways, at a collector that decodes what they send; and the same trace on log lines and further."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from support.far_and_lost import BRIDGE
from support.otlp import Collected, Collector, collecting
from support.process import BASIN, CONFIG, GatewayProcess
from support.s2.client import S2Client
from support.s2.frames import append_input
from support.s3p.client import S3PClient
from support.segment.client import ReleasedSocket

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CLIENT = "00f067aa0ba902b7"
TOLD = {"traceparent": f"00-{TRACE}-{CLIENT}-01", "tracestate": "vendor=opaque"}
SESSION = {"traceparent": f"00-{'ab' * 16}-{CLIENT}-01"}
LOST = {"traceparent": f"00-{'ef' * 16}-{CLIENT}-01"}
UNSAMPLED = {"traceparent": f"00-{'cd' * 16}-{CLIENT}-00"}
TRACING = """
[tracing]
endpoint = "{endpoint}"
service_name = "{name}"
"""


@dataclass
class Story:
    """Spans that a collector received from a gateway, and from a bridge before it, after some traffic."""

    collector: Collector
    bridge_log: list[dict[str, object]]

    def only(self, service: str, name: str, trace: str | None = None) -> Collected:
        found = [
            span
            for span in self.collector.called(name)
            if span.resource["service.name"] == service and trace in (None, span.trace)
        ]
        assert len(found) == 1, (name, [span.name for span in self.collector.spans])
        return found[0]


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    with collecting() as collector:
        far = CONFIG + TRACING.format(endpoint=collector.endpoint, name="far")
        with GatewayProcess(far) as gateway:
            near = BRIDGE.format(far=gateway.s2_port) + TRACING.format(endpoint=collector.endpoint, name="near")
            with GatewayProcess(near) as bridge:
                client = S2Client(("127.0.0.1", bridge.s2_port), BASIN)
                client.append_json("traced", {"records": [{"body": "x"}]}, TOLD).json()
                assert client.read("missing" * 100, TOLD | {"traceparent": UNSAMPLED["traceparent"]}).status >= 400
                lost = client.of("nowhere-at-all").append_json("x", {"records": [{"body": "x"}]}, LOST)
                assert lost.status == 502
                log = bridge.events()
                bridge.terminate()
            direct = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
            session = direct.append_session("sessions", headers=SESSION)
            for _ in range(3):
                session.send(append_input(b"x", b"y"))
                session.ack()
            session.stream.end()
            assert session.rest() == []
            session.close()
            with S3PClient(("127.0.0.1", gateway.s3p_port)) as s3p:
                s3p.create("s3p")
                s3p.append("s3p", b"a")
                s3p.append("missing", b"a")
            with ReleasedSocket(("127.0.0.1", gateway.segment_port)) as segments:
                segments.create(f"{BASIN}/segment/0.#epoch.0")
            gateway.terminate()
        yield Story(collector, log)


def test_spans_go_where_the_configuration_says(story: Story) -> None:
    assert story.collector.paths == {"/v1/traces"}
    assert {span.resource["service.name"] for span in story.collector.spans} == {"near", "far"}
    assert all(span.resource["service.version"] for span in story.collector.spans)


def test_a_request_is_part_of_its_clients_trace_and_so_is_what_is_asked_of_the_server(story: Story) -> None:
    request = story.only("near", "POST s2", TRACE)
    assert (request.trace, request.parent, request.kind) == (TRACE, CLIENT, "server")
    assert request.attributes["http.response.status_code"] == 200
    assert request.attributes["penstock.listener"] == "listeners.s2"
    assert not request.failed and request.seconds > 0
    (operation,) = story.collector.of(request)
    assert operation.name == "append" and operation.kind == "internal"
    assert operation.attributes == {
        "penstock.back": "far",
        "penstock.protocol": "s2",
        "penstock.route": "theirs",
    }
    served = [span for span in story.collector.spans if span.trace == TRACE and span.resource["service.name"] == "far"]
    ours = {span.span for span in story.collector.spans if span.resource["service.name"] == "near"}
    entered = [span for span in served if span.kind == "server"]
    assert entered and all(span.parent in ours for span in entered)


def test_a_trace_that_is_not_recorded_is_not(story: Story) -> None:
    assert all(span.trace != "cd" * 16 for span in story.collector.spans)


def test_a_session_has_spans_for_groups_of_appends(story: Story) -> None:
    request = story.only("far", "POST s2", "ab" * 16)
    (session,) = story.collector.of(request)
    assert session.name == "session in"
    groups = story.collector.of(session)
    assert [group.name for group in groups] == ["append"] * len(groups)
    assert sum(group.attributes["penstock.batches"] for group in groups) == 3
    assert sum(group.attributes["penstock.records"] for group in groups) == 6


@pytest.mark.parametrize("protocol", ["s3p", "segment"])
def test_a_connection_without_headers_begins_a_trace(story: Story, protocol: str) -> None:
    connection = story.only("far", f"connection {protocol}")
    assert connection.parent == "" and connection.kind == "server"
    parts = [span.name for span in story.collector.of(connection)]
    assert "create_stream" in parts
    assert connection.attributes["penstock.connection"] > 0


def test_failures_are_said(story: Story) -> None:
    connection = story.only("far", "connection s3p")
    outcomes = [span.failed for span in story.collector.of(connection) if span.name == "append"]
    assert outcomes == [False, True]


def test_log_lines_name_connection_route_and_trace(story: Story) -> None:
    lines = [line for line in story.bridge_log if line.get("trace") == "ef" * 16]
    assert "back_circuit" in [line["event"] for line in lines]
    assert all(line["listener"] == "listeners.s2" and line["connection"] for line in lines)
    assert all(line["route"] == "lost" for line in lines)
    assert all(len(str(line["span"])) == 16 for line in lines)
