"""A real gateway's metrics after traffic of all protocols, read by the parsers of Prometheus."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from support.far_and_lost import BRIDGE
from support.management import ask
from support.process import BASIN, GatewayProcess
from support.s2.client import S2Client
from support.s2.frames import append_input
from support.s3p.client import S3PClient
from support.scraping import OPEN_METRICS, Scrape
from support.segment.client import ReleasedSocket

from penstock.observe.metrics.families import FAMILIES
from penstock.observe.metrics.series import MetricKind
from penstock_proto import pravega_controller_pb2 as pb

PAGE = Path(__file__).parents[4] / "docs" / "metrics.md"


@pytest.fixture(scope="module")
def busy() -> Iterator[GatewayProcess]:
    """A gateway of its own, after traffic."""
    with GatewayProcess() as gateway:
        _s2(gateway)
        _s3p(gateway)
        _segment(gateway)
        _controller(gateway)
        yield gateway


def _s2(gateway: GatewayProcess) -> None:
    client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
    client.append("unary", "one", "two")
    assert len(client.read("unary", seq_num=0, count=2).json()["records"]) == 2
    assert client.read("unary", seq_num="x").status == 400
    session = client.append_session("sessions")
    for _ in range(3):
        session.send(append_input(*[b"x" * 92] * 10))
        session.ack()
    session.stream.end()
    assert session.rest() == []
    session.close()
    reading = client.read_session("sessions", seq_num=0, count=30)
    assert len(reading.records(30)) == 30
    reading.close()
    with client.events("sessions", seq_num=0, count=5) as events:
        events.rest()


def _s3p(gateway: GatewayProcess) -> None:
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as client:
        client.create("s3p")
        client.append("s3p", b"a", b"b", b"c")
        assert len(client.read("s3p")) == 3
        assert client.append("missing", b"a").code == "ERR_UNKNOWN_STREAM"


def _segment(gateway: GatewayProcess) -> None:
    with ReleasedSocket(("127.0.0.1", gateway.segment_port)) as client:
        segment = client.create(f"{BASIN}/segment/0.#epoch.0")
        client.append(client.writer(segment), [b"x" * 100] * 4, 4)
        assert client.read_bytes(segment, 0, 432)


def _controller(gateway: GatewayProcess) -> None:
    service = pb.DESCRIPTOR.services_by_name["ControllerService"].full_name
    with grpc.insecure_channel(f"127.0.0.1:{gateway.controller_port}") as channel:
        create = channel.unary_unary(
            f"/{service}/createScope",
            request_serializer=pb.ScopeInfo.SerializeToString,
            response_deserializer=pb.CreateScopeStatus.FromString,
        )
        assert create(pb.ScopeInfo(scope="measured"), timeout=20).status == pb.CreateScopeStatus.SUCCESS


@pytest.mark.parametrize("accept", ["", OPEN_METRICS])
def test_every_family_is_there_with_its_type(busy: GatewayProcess, accept: str) -> None:
    scrape = Scrape(busy.management_port, accept)
    assert ("openmetrics" in scrape.content_type) == bool(accept)
    found = {family.name: (family.type, family.documentation) for family in scrape.families}
    assert found == {family.name.removesuffix("_total"): (family.kind.value, family.meaning) for family in FAMILIES}


@pytest.mark.parametrize("accept", ["", OPEN_METRICS])
@pytest.mark.parametrize(
    ("protocol", "direction", "records", "batches", "size"),
    [
        ("s2", "in", 2, 1, 22),
        ("s2", "out", 2, 1, 22),
        ("s2s", "in", 30, 3, 3000),
        ("s2s", "out", 30, None, 3000),
        ("sse", "out", 5, 1, 500),
        ("s3p", "in", 3, 1, 27),
        ("s3p", "out", 3, 1, 27),
        ("segment", "in", 4, 1, 432),
        ("segment", "out", 0, 1, 432),
    ],
)
def test_records_batches_and_bytes(
    busy: GatewayProcess, protocol: str, direction: str, records: int, batches: int | None, size: int, accept: str
) -> None:
    scrape = Scrape(busy.management_port, accept)
    kind = {"s2s": "s2", "sse": "s2"}.get(protocol, protocol)
    labels = {"listener": f"listeners.{kind}", "route": "", "back": "embedded", "protocol": protocol}
    flow = {**labels, "direction": direction}
    assert scrape.sum("penstock_records_total", **flow) == records
    assert batches is None or scrape.sum("penstock_batches_total", **flow) == batches
    assert scrape.sum("penstock_record_bytes_total", **flow) == size
    assert scrape.sum("penstock_sessions", **flow) == 0


def test_latencies(busy: GatewayProcess) -> None:
    scrape = Scrape(busy.management_port)
    for protocol, appends, reads in (("s2", 1, 1), ("s2s", 3, 1), ("sse", 0, 1), ("s3p", 1, 1), ("segment", 1, 1)):
        assert scrape.sum("penstock_append_seconds_count", protocol=protocol) == appends, protocol
        assert scrape.sum("penstock_append_seconds_bucket", protocol=protocol, le="+Inf") == appends
        assert scrape.sum("penstock_read_first_seconds_count", protocol=protocol) >= reads, protocol
    assert scrape.sum("penstock_append_seconds_sum") > 0
    assert scrape.sum("penstock_operation_seconds_count", protocol="s3p", operation="create_stream") == 1
    assert scrape.sum("penstock_operation_seconds_count", protocol="controller") > 0


def test_connections_and_their_bytes(busy: GatewayProcess) -> None:
    scrape = Scrape(busy.management_port)
    assert scrape.sum("penstock_connections", listener="management", protocol="management") == 1  # this one
    for kind in ("s2", "s3p", "segment", "controller"):
        labels = {"listener": f"listeners.{kind}", "protocol": kind}
        assert scrape.sum("penstock_connections_accepted_total", **labels) > 0
        assert scrape.sum("penstock_network_bytes_total", direction="in", **labels) > 0
        assert scrape.sum("penstock_network_bytes_total", direction="out", **labels) > 0
        assert scrape.sum("penstock_outflow_bytes", **labels) == 0
    assert scrape.sum("penstock_http_responses_total", listener="listeners.s2", status="200") >= 5


def test_errors(busy: GatewayProcess) -> None:
    scrape = Scrape(busy.management_port)
    assert scrape.sum("penstock_errors_total", protocol="s3p", code="stream_not_found") == 1
    assert scrape.sum("penstock_client_errors_total", protocol="s3p", code="stream_not_found") == 1
    assert scrape.sum("penstock_client_errors_total", listener="listeners.s2") == 1
    assert scrape.sum("penstock_errors_total", listener="listeners.s2") == 0  # it never became an operation
    assert scrape.sum("penstock_http_responses_total", listener="listeners.s2", status="400") == 1


def test_the_store_and_the_process(busy: GatewayProcess) -> None:
    scrape = Scrape(busy.management_port)
    commits = scrape.sum("penstock_store_commits_total")
    assert commits >= 6
    for name in ("commit_changes", "commit_seconds", "sync_seconds"):
        assert scrape.sum(f"penstock_store_{name}_count") == commits
    assert scrape.sum("penstock_store_commit_changes_sum") >= commits
    assert scrape.sum("penstock_store_file_bytes") > 0
    assert scrape.sum("penstock_store_inflight_bytes") == scrape.sum("penstock_store_pending_changes") == 0
    assert scrape.sum("penstock_build_info") == scrape.sum("penstock_ready") == 1
    assert scrape.sum("penstock_log_lines_total", level="info") > 0
    assert scrape.sum("process_resident_memory_bytes") > 10_000_000
    assert scrape.sum("process_open_fds") > 5


def test_the_command_of_the_page(busy: GatewayProcess) -> None:
    command = next(line for line in PAGE.read_text().splitlines() if line.startswith("curl "))
    done = subprocess.run(
        shlex.split(command.replace(":9600", f":{busy.management_port}")), capture_output=True, text=True, timeout=30
    )
    assert "# TYPE penstock_records_total counter" in done.stdout


def test_servers_behind_the_gateway(busy: GatewayProcess) -> None:
    with GatewayProcess(BRIDGE.format(far=busy.s2_port)) as bridge:
        client = S2Client(("127.0.0.1", bridge.s2_port), BASIN)
        client.append("bridged", "one", "two", "three")
        with client.events("bridged", seq_num=0, count=3) as events:
            events.rest()
        session = client.append_session("bridged")  # it is passed through
        for _ in range(2):
            session.send(append_input(*[b"x" * 92] * 10))
            session.ack()
        session.stream.end()
        assert session.rest() == []
        session.close()
        for headers in ({}, {"accept-encoding": "zstd"}):
            reading = client.read_session("bridged", headers=headers, seq_num=3, count=20)
            reading.rest()
            reading.close()
        answer = client.of("nowhere-at-all").append_json("x", {"records": [{"body": "x"}]})
        assert answer.status == 502, answer
        scrape = Scrape(bridge.management_port)
    way = {"listener": "listeners.s2", "route": "theirs", "back": "far"}
    assert scrape.sum("penstock_records_total", protocol="s2", direction="in", **way) == 3
    assert scrape.sum("penstock_records_total", protocol="sse", direction="out", **way) == 3
    assert scrape.sum("penstock_record_bytes_total", protocol="s2s", direction="in", **way) > 920
    assert scrape.sum("penstock_records_total", protocol="s2s", direction="in", **way) == 20
    assert scrape.sum("penstock_batches_total", protocol="s2s", direction="in", **way) == 2
    assert scrape.sum("penstock_records_total", protocol="s2s", direction="out", **way) == 40
    assert scrape.sum("penstock_append_seconds_count", protocol="s2s", **way) == 2
    assert scrape.sum("penstock_back_connections_made_total", back="far", protocol="s2") > 0
    assert scrape.sum("penstock_back_network_bytes_total", back="far", direction="out") > 1000
    assert scrape.sum("penstock_back_circuit", back="far", state="closed") == 1
    assert scrape.sum("penstock_back_circuit", back="nobody", state="open") == 1
    assert scrape.sum("penstock_back_circuit_opened_total", back="nobody") >= 1
    assert scrape.sum("penstock_back_connections_failed_total", back="nobody", reason="unmade") >= 1
    lost = {"listener": "listeners.s2", "route": "lost", "back": "nobody"}
    assert scrape.sum("penstock_errors_total", code="hot_server", **lost) == 1


LIFE = """\
[listeners.s2]
bind = "127.0.0.1:{s2_port}"

[listeners.s3p]
bind = "127.0.0.1:{s3p_port}"

[listeners.s3p.limits]
max_connections = 1

[store]
directory = "{data}"

[drain]
accept_seconds = 60

[log]
format = "json"
"""


def test_what_happens_to_the_process() -> None:
    with GatewayProcess(LIFE) as gateway:
        address = ("127.0.0.1", gateway.s3p_port)
        with S3PClient(address) as first, S3PClient(address) as second:
            assert first.append("missing", b"x").code == "ERR_UNKNOWN_STREAM"
            assert second.reply().code == "ERR_LIMITS"
        began = Scrape(gateway.management_port).sum("penstock_reloaded_timestamp_seconds")
        assert ask(gateway.management_port, "/reload", {})[0] == 200
        config = gateway.directory / "gateway.toml"
        config.write_text(config.read_text() + "[nonsense]\n")
        assert ask(gateway.management_port, "/reload", {})[0] == 409
        scrape = Scrape(gateway.management_port)
        assert (scrape.sum("penstock_ready"), scrape.sum("penstock_draining")) == (1, 0)
        assert ask(gateway.management_port, "/drain", {})[0] == 202
        drained = Scrape(gateway.management_port)
    refused = {"listener": "listeners.s3p", "protocol": "s3p"}
    assert scrape.sum("penstock_connections_refused_total", reason="limit", **refused) == 1
    assert scrape.sum("penstock_limited_total", listener="listeners.s3p", limit="listener.max_connections") >= 1
    assert scrape.sum("penstock_reloads_total", outcome="applied") == 1
    assert scrape.sum("penstock_reloads_total", outcome="refused") == 1
    assert scrape.sum("penstock_reloaded_timestamp_seconds") > began
    assert (drained.sum("penstock_ready"), drained.sum("penstock_draining")) == (0, 1)


def test_nothing_is_about_single_streams_or_clients(busy: GatewayProcess) -> None:
    client = S2Client(("127.0.0.1", busy.s2_port), BASIN)
    client.append("first-of-many", "x")
    before = len(Scrape(busy.management_port).text.splitlines())
    for number in range(30):
        client.append(f"many-{number}", "x")
    assert len(Scrape(busy.management_port).text.splitlines()) == before


def test_histograms_are_cumulative(busy: GatewayProcess) -> None:
    names = {family.name for family in FAMILIES if family.kind is MetricKind.HISTOGRAM}
    checked = 0
    for family in Scrape(busy.management_port).families:
        if family.name in names:
            below = 0.0
            for sample in family.samples:
                if sample.name.endswith("_bucket"):
                    below = sample.value if sample.labels["le"] == "0.0005" else below
                    assert sample.value >= below
                    below, checked = sample.value, checked + 1
                else:
                    below = 0.0
    assert checked > 50
