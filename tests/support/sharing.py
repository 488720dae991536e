"""The files of `make test-all`, and scheduling of tests on several processes.

Each file runs on one process, and all files that need Spark on the same one, because its session takes long to start.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

__all__ = ["SLOW", "ByFile", "file_of", "place"]

ROOT = Path(__file__).parents[2]
SLOW = {
    f"tests/{folder}/test_{name}.py"
    for folder, names in {
        "bridges": "back_pressure chaos clients examples matrix mirror mock_run positions real_backs "
        "recording_documents recording_faults replay replay_document restart server_faults",
        "conformance": "durability loss many_followers s2_timers segment_h_bytes segment_k_loss segment_l_kill",
        "gateway/app": "drain failed_syncs process",
        "gateway/app/management": "captures closing readiness",
        "gateway/app/reload": "backs document process tls",
        "gateway/app/systemd": "activation",
        "gateway/cli": "banner conform_command doctor extcap_command gateway_commands looking_document output",
        "gateway/net/circuits": "circuits",
        "gateway/net/http": "memory pressure",
        "gateway/net/http/client": "hostile",
        "gateway/net/tls": "document",
        "gateway/observe/metrics": "scraping",
        "gateway/protocols/controller": "interruptions",
        "gateway/protocols/segment/front": "memory route_bypass",
        "gateway/recorder": "example joining kill recorded_traffic switched_recordings traffic_commands",
        "gateway/routing/access": "document",
        "gateway/routing/faults": "document",
        "gateway/store": "crash payload_faults payload_model syncs",
        "gateway/testing": "gateway pytest_plugin",
        "guides": "guides",
        "hostile": "attacks half_messages idle words",
        "peers": "delegation_tokens durable_streams_back encryption faults_others faults_s2_sdk faults_unknown "
        "foreign_pages_in_browser go judged_clients kafka kafka_back kafka_gateways kafka_positions kafka_sasl "
        "kafka_state kafka_tools kafka_topic_ids "
        "kafka_transactions "
        "mcp_document mcp_sdk node page_in_browser pravega_java pravega_java_admin pravega_java_again "
        "pravega_java_autoscaling "
        "pravega_java_bytes pravega_java_cuts pravega_java_delegation pravega_java_document pravega_java_groups "
        "pravega_java_large pravega_java_retention pravega_java_states pravega_java_tables pravega_java_times "
        "pravega_java_transactions pravega_python_bytes pravega_python_cross pravega_python_restart "
        "pravega_python_scaling pravega_rest recorded_clients recorded_records recorded_s2 redacted_recordings "
        "s2_lite_back s2_lite_bytes s2_lite_control s2_metrics s2_sdk_python_restart s3p_server_back segment_java "
        "segment_store_back tls tls_refused tls_rotation tshark_capture wireshark_document wireshark_live "
        "wireshark_s2 wireshark_s3p wireshark_segment",
        "pipeline": "kills page",
        "pipeline/capture": "spark streaming tables",
        "pipeline/cli": "follow run views",
        "pipeline/clients": "real_servers s2_lite",
        "pipeline/jobs": "alignment audit audit_live backfill ingest latency quality usage",
        "pipeline/report": "gather page",
        "pipeline/running": "cluster",
        "pipeline/sink": "exactly_once real_gateway sink_spark",
        "pipeline/source": "durable_spark spark",
        "shipping": "bench helm light_environment under_systemd wheel",
    }.items()
    for name in names.split()
}
"""Whole files that take long, or need a real server: `make test` leaves them to `make test-all`. It keeps one short
file of Spark's, one or more of each protocol's real clients, and bridges that are quick."""


def file_of(item: pytest.Item) -> str:
    """Return the file of a test, relative to the repository."""
    return item.nodeid.partition("::")[0]


SHORT = ("tests/analysis/", "tests/codecs/")
"""Rooms whose files take a second or two."""


@lru_cache
def needs_spark(file: str) -> bool:
    """Return whether a file has tests marked `spark`."""
    return "mark.spark" in (ROOT / file).read_text(encoding="utf-8")


def place(file: str) -> int:
    """Return a file's place in the order: Spark's first, as one session runs them all, and short ones last, so that all
    processes end at about the same time.
    """
    return 0 if needs_spark(file) else 2 if file.startswith(SHORT) else 1


class ByFile(LoadScopeScheduling):
    """Hands out one file after the other, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "spark" if needs_spark(file) else file
