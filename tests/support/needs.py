"""Programs, packages and servers that some tests need. Those tests skip themselves where something is missing.

`python -m support.needs` prints what is missing here, with which `make test` begins. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from support import real_peers

__all__ = ["PACKAGES", "PROGRAMS", "Need", "missing"]

_MINUTES = 5
"""Duration of `make test` on two cores with nothing missing."""
_NODE_CLIENTS = Path(__file__).parents[1] / "peers" / "node" / "node_modules" / "@s2-dev" / "streamstore"


class Need(NamedTuple):
    """The way to get a missing program, package or server, and the tests that are skipped without it."""

    how: str
    tests: str


def _debian(package: str, tests: str) -> Need:
    return Need(f"apt-get install {package}", tests)


def _peers(tests: str) -> Need:
    return Need("pip install --group peers", tests)


_TSHARK = _debian("tshark", "recordings as Wireshark reads them")
_NODE = Need("install Node.js 20 or newer, then `make node-peers`", "the TypeScript client and EventSource")
_MAKE_PEERS = "make peers"

PROGRAMS = {
    "bash": _debian("bash", "commands of the documentation"),
    "curl": _debian("curl", "curl, and commands of the documentation"),
    "nc": _debian("netcat-openbsd", "commands of the documentation"),
    "git": _debian("git", "what is committed and shipped"),
    "make": _debian("make", "the Makefile"),
    "openssl": _debian("openssl", "TLS with certificates made by openssl"),
    "tshark": _TSHARK,
    "editcap": _TSHARK,
    "dumpcap": _TSHARK,
    "mergecap": _TSHARK,
    "unshare": _debian("util-linux", "an interface of Wireshark, as root"),
    "zstd": _debian("zstd", "compressed recordings as zstd reads them"),
    "strace": _debian("strace", "that records are synced before they are acknowledged"),
    "promtool": _debian("prometheus", "the alert rules"),
    "systemd-analyze": _debian("systemd", "the systemd units"),
    "systemd-socket-activate": _debian("systemd", "sockets that systemd opens"),
    "kcat": _debian("kcat", "kcat, a client of Kafka"),
    "java": _debian("default-jdk", "Spark's jobs, Pravega, and Apache Kafka"),
    "javac": _debian("default-jdk", "Pravega's Java client"),
    "mvn": _debian("maven", "Java clients of Pravega and Kafka"),
    "go": Need("install Go 1.26 or newer", "Go clients of S2 and Kafka"),
    "buildah": _debian("buildah", "the image"),
    "debootstrap": _debian("debootstrap", "the image"),
    "node": _NODE,
    "npm": _NODE,
}
PACKAGES = {
    "pyspark": Need("pip install -e '.[spark]'", "the pipeline"),
    "pandas": Need("pip install -e '.[spark]'", "the pipeline"),
    "pyarrow": Need("pip install -e '.[spark]'", "the pipeline"),
    "matplotlib": Need("pip install -e '.[spark]'", "the pipeline's report"),
    "opentelemetry": Need("pip install -e '.[otel]'", "traces"),
    "grpc": _peers("real clients of gRPC"),
    "grpc_tools": _peers("the modules generated from .proto files"),
    "confluent_kafka": _peers("librdkafka, a client of Kafka"),
    "kafka": _peers("kafka-python, a client of Kafka"),
    "httpx2": _peers("the client of the Model Context Protocol"),
    "mcp": _peers("the client of the Model Context Protocol"),
    "redis": _peers("redis-py as a reader of S3P"),
    "s2_sdk": _peers("S2's Python client"),
    "pravega_client": Need("Python 3.11 on Linux, x86-64: pip install --group peers", "Pravega's Python client"),
}


def missing() -> Iterator[tuple[str, Need]]:
    """Find what is missing on this machine, by name."""
    for program, need in PROGRAMS.items():
        if shutil.which(program) is None:
            yield program, need
    for package, need in PACKAGES.items():
        if find_spec(package) is None:
            yield package, need
    if not _NODE_CLIENTS.is_dir():
        yield "clients from npm", Need("make node-peers", _NODE.tests)
    servers = {
        "s2 lite": real_peers.s2_program(),
        "Pravega": real_peers.pravega_library(),
        "Apache Kafka": real_peers.kafka_library(),
        "the S3P server": real_peers.s3p_program(),
    }
    for server, path in servers.items():
        if not path.exists():
            yield server, Need(_MAKE_PEERS, f"{server} behind the gateway")
    if not real_peers.h2spec_program().exists():
        yield "h2spec", Need(_MAKE_PEERS, "HTTP/2 against its specification")
    if not real_peers.helm_program().exists():
        yield "helm", Need(_MAKE_PEERS, "the Helm chart")
    if not real_peers.chromium_program().exists():
        yield "a browser", Need(_MAKE_PEERS, "the operator page in a browser")
    if os.geteuid() == 0:
        yield "an ordinary user", Need("do not run as root", "files that may not be read")
    else:
        yield "root", Need("run as root", "full disks")
    if not os.environ.get("CI"):
        yield "CI=true", Need("set it", "`make serve` on a fresh clone, which takes a minute")


def _say() -> None:
    """Print how long the tests take and what is missing, one line for what is missing for the same reason."""
    cores = min(os.cpu_count() or 1, 4)
    minutes = max(_MINUTES * 2 // cores, 3)
    print(f"The tests take about {minutes} minutes on {cores} cores. `make test-all` runs the rest.")
    found: dict[Need, list[str]] = {}
    for name, need in missing():
        found.setdefault(need, []).append(name)
    if found:
        print("What is skipped, here and there, because something is missing:")
    for need, names in found.items():
        print(f"  {need.tests}: {', '.join(names)} ({need.how})")
    sys.stdout.flush()


if __name__ == "__main__":
    _say()
