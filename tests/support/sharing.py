"""The files of `make test-all`, and scheduling of tests on several processes.

Each file runs on one process, and all files that need Spark on the same one, because its session takes long to start.
Slow tests have one process more than cores. It takes only files whose tests wait most of the time, so that no core is
idle while they do: without it, two cores were idle for two fifths of the time in the second half of `make test-all`.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

__all__ = ["ROOT", "SLOW", "ByFile", "check_marks", "file_of", "left_out", "place", "processes"]

ROOT = Path(__file__).parents[2]
SLOW = {
    f"tests/{folder}/test_{name}.py"
    for folder, names in {
        "bridges": "back_pressure chaos clients examples matrix mirror mock positions real_backs "
        "recording_documents recording_faults replay replay_document restart server_faults",
        "conformance": "durability loss many_followers segment_bytes segment_kill segment_loss",
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
        "penstock_pravega/controller": "interruptions",
        "penstock_pravega/segment/front": "memory route_bypass",
        "gateway/recorder": "example joining kill recorded_traffic switched_recordings traffic_commands",
        "gateway/routing/access": "document",
        "gateway/routing/faults": "document",
        "gateway/store": "crash payload_faults payload_model syncs",
        "gateway/testing": "gateway pytest_plugin",
        "guides": "guides",
        "hostile": "attacks closed_windows half_messages idle words",
        "peers": "delegation_tokens durable_streams_back encryption faults_others faults_s2_sdk "
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
        "pipeline/clients": "s2_lite",
        "pipeline/jobs": "alignment audit audit_live backfill ingest latency quality usage",
        "pipeline/report": "gather page",
        "pipeline/running": "cluster",
        "pipeline/sink": "exactly_once mirrored real_gateway sink_spark",
        "pipeline/source": "servers_spark spark",
        "shipping": "bench helm light_environment under_systemd wheel",
    }.items()
    for name in names.split()
}
"""Whole files that take long, or need a real server: `make test` leaves them to `make test-all`. It keeps one short
file of Spark's, one or more of each protocol's real clients, and bridges that are quick."""


def file_of(item: pytest.Item) -> str:
    """Return the file of a test, relative to the repository."""
    return item.nodeid.partition("::")[0]


SHORT = (
    *(f"tests/gateway/{room}/" for room in ("model", "wire", "capture")),
    *(f"tests/penstock_{protocol}/codec/" for protocol in ("durable", "kafka", "pravega", "s2", "s3p")),
)
"""Rooms whose files take a second or two."""

WAITING = "tests/peers/"
"""The room whose slow tests wait most of the time, for clients and timers."""

LAST = 3
"""The place of slow tests that wait."""

TOLD_BY_TEXT = ("hypothesis", "slow")
"""Marks whose names stand in each file that has them, or in conftest.py beside it, but for `slow` in those of SLOW."""


@lru_cache
def text_of(path: Path) -> str:
    """Return the text of a file, or "" if there is none."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def may_have(file: str, mark: str) -> bool:
    """Return whether a file may have tests with one of the marks of TOLD_BY_TEXT."""
    path = ROOT / file
    told = mark in text_of(path) or mark in text_of(path.with_name("conftest.py"))
    return told or (mark == "slow" and file in SLOW)


def left_out(path: Path, expression: str) -> bool:
    """Return whether no test of a file can be among those of an expression of marks, one of the Makefile's.

    Such a file is not imported: to import all of them takes twice as long as to import those that `make test` runs.
    """
    if not path.match("test_*.py") or not path.is_relative_to(ROOT):
        return False
    file, terms = path.relative_to(ROOT).as_posix(), expression.split(" and ")
    if "not slow" in terms and file in SLOW:
        return True
    return any(mark in terms and not may_have(file, mark) for mark in TOLD_BY_TEXT)


def check_marks(items: list[pytest.Item]) -> None:
    """Check that `left_out` leaves out none of these tests. Raises UsageError."""
    for item in items:
        for mark in TOLD_BY_TEXT:
            if item.get_closest_marker(mark) and not may_have(file_of(item), mark):
                raise pytest.UsageError(f"{item.nodeid}: its mark {mark} is named neither there nor in conftest.py")


@lru_cache
def needs_spark(file: str) -> bool:
    """Return whether a file has tests marked `spark`."""
    return "mark.spark" in text_of(ROOT / file)


def place(file: str) -> int:
    """Return a file's place in the order: Spark's first, as one session runs them all; then others, with short ones
    last, so that processes end at about the same time; then slow ones that wait, which one process takes from the end.
    """
    if needs_spark(file):
        return 0
    return LAST if file in SLOW and file.startswith(WAITING) else 2 if file.startswith(SHORT) else 1


def cores() -> int:
    """Return the number of cores that tests may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processes(expression: str) -> int:
    """Return the number of processes for the tests of an expression of marks: one for each core, and one for slow tests
    that wait.
    """
    return cores() + (expression.split(" and ")[0] in ("slow", "long"))


class ByFile(LoadScopeScheduling):
    """Hands out one file after the other, in the order in which they were collected. If there are more processes than
    cores, the last one takes only those that wait, from the end of the order, and ends when there are no more.
    """

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self._numbers: dict[str, int] = {}
        self._last = f"gw{self.numnodes - 1}" if self.numnodes > cores() else ""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "spark" if needs_spark(file) else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        last = node.gateway.id == self._last
        if last and place(next(reversed(self.workqueue))) != LAST:
            node.shutdown()
            return
        scope, unit = self.workqueue.popitem(last=last)
        self.assigned_work[node][scope] = unit
        if not self._numbers:
            self._numbers = {nodeid: number for number, nodeid in enumerate(self.registered_collections[node])}
        node.send_runtest_some([self._numbers[nodeid] for nodeid, completed in unit.items() if not completed])
