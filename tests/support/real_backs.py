"""Servers that stand behind a gateway in tests: real ones where `make peers` installed them, or a second Penstock.

Each starts on free ports of loopback (`s2 lite` listens on every interface and cannot be told otherwise), is ready
when `start` returns, and can be killed as by a power cut and started again on the same ports. Only processes started
here are ever stopped.
"""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from support import real_peers
from support.kafka.plain import KafkaSocket
from support.peers import need
from support.ports import free_ports
from support.process import BASIN, CONFIG, GatewayProcess
from support.s2.client import S2Client

from penstock_kafka.codec.cluster_messages import MetadataRequest, MetadataResponse
from penstock_proto import pravega_controller_pb2 as controller

__all__ = [
    "REAL_SERVERS",
    "BackServer",
    "DurableReference",
    "KafkaBroker",
    "PravegaStandalone",
    "S2Lite",
    "S3PReference",
    "SecondPenstock",
]

Address = tuple[str, int]
LOOPBACK = "127.0.0.1"
READY_SECONDS = 180.0
_POLL_SECONDS = 0.02
SERVICE = controller.DESCRIPTOR.services_by_name["ControllerService"]
REAL = Path(__file__).parents[1] / "peers" / "real"
NODE = Path(__file__).parents[1] / "peers" / "node"
CLUSTER = "cGVuc3RvY2stdGVzdHMtMQ"
"""Identifier of every cluster of Kafka: 16 bytes in base64."""


class BackServer:
    """A server of one protocol; use it as a context manager.

    `kind`: the word that a back's table in the configuration has. `name`: for people. `keeps`: whether what was
    acknowledged is there after `kill` and `start`. `address` and, for segments, `controller`: where it listens.
    """

    kind: str
    name: str
    keeps: bool
    address: Address
    controller: Address | None = None

    def start(self) -> Self:
        """Start it and wait until it answers. Skips the test where it is not installed."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Make the basin that tests use, where the server does not have it."""

    def kill(self) -> None:
        """SIGKILL; does nothing where it has ended."""
        raise NotImplementedError

    def stop(self) -> None:
        """End it for good, and remove what it stored."""
        raise NotImplementedError

    def log_tail(self) -> str:
        """The end of its log."""
        raise NotImplementedError

    def restart(self) -> Self:
        """Kill it and start it again on the same ports."""
        self.kill()
        return self.start()

    def __enter__(self) -> Self:
        try:
            self.start()
            self.prepare()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            print(f"---- the log of {self.name} ----\n{self.log_tail()}")
        self.stop()


class RealServer(BackServer):
    """A third-party server: a subclass gives its command and says when it is ready."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-back-"))
        self._log = self.directory / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[object]:
        """Return the command to run. Skips the test if it is not installed."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """Beside this process's own."""
        return {}

    def ready(self) -> bool:
        """Return whether the server answers. May raise OSError."""
        raise NotImplementedError

    def start(self) -> Self:
        assert self._process is None or self._process.poll() is not None, "it is running"
        command = [str(part) for part in self.command()]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env={**os.environ, **self.environment()},
            )
        deadline = time.monotonic() + READY_SECONDS
        while not self._answers():
            ended = self._process.poll()
            assert ended is None, f"{self.name} ended with {ended}\n{self.log_tail()}"
            assert time.monotonic() < deadline, f"{self.name} is not ready\n{self.log_tail()}"
            time.sleep(_POLL_SECONDS)
        return self

    def _answers(self) -> bool:
        try:
            return self.ready()
        except (OSError, http.client.HTTPException, grpc.RpcError):
            return False

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        self.kill()  # at once: three brokers of Kafka take 20 s to end, as they wait for each other
        shutil.rmtree(self.directory, ignore_errors=True)

    def log_tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-40:]) if self._log.exists() else ""


def _installed(path: Path, what: str) -> Path:
    if not path.exists():
        pytest.skip(f"{what} is not installed: `make peers`")
    return path


class S2Lite(RealServer):
    """`s2 lite`, in memory, or with `durable` on files that outlive its process."""

    kind = "s2"

    def __init__(self, *, durable: bool = False) -> None:
        super().__init__()
        self.keeps = durable
        self.name = "s2 lite --local-root" if durable else "s2 lite"
        self.address = (LOOPBACK, free_ports(1)[0])

    def command(self) -> Sequence[object]:
        root = self.directory / "root"
        root.mkdir(exist_ok=True)
        program = _installed(real_peers.s2_program(), "s2 lite")
        return [program, "lite", "--port", self.address[1], *(["--local-root", root] if self.keeps else [])]

    def environment(self) -> Mapping[str, str]:
        return {"RUST_LOG": "warn", "NO_COLOR": "1"}

    def ready(self) -> bool:
        connection = http.client.HTTPConnection(*self.address, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        finally:
            connection.close()

    def prepare(self) -> None:
        S2Client(self.address).ensure_basin(BASIN)


class PravegaStandalone(RealServer):
    """Pravega's emulator: a ZooKeeper, a controller and a segment store in one process, in memory."""

    kind = "segment"
    keeps = False

    def __init__(self) -> None:
        super().__init__()
        self.name = f"Pravega {real_peers.PRAVEGA_VERSION}"
        self._zookeeper, segments, rpc, self.rest_port, self._segments_rest = free_ports(5)
        self.address = (LOOPBACK, segments)
        self.controller = (LOOPBACK, rpc)

    def command(self) -> Sequence[object]:
        library = _installed(real_peers.pravega_library(), "Pravega standalone")
        java = need("java")
        properties = self.directory / "standalone.properties"
        properties.touch()
        assert self.controller is not None
        settings = {
            "logback.configurationFile": REAL / "logback.xml",
            "zookeeper.admin.enableServer": "false",
            "pravegaservice.service.published.host.nameOrIp": LOOPBACK,
            "pravegaservice.service.listener.host.nameOrIp": LOOPBACK,
            "pravegaservice.rest.listener.port": self._segments_rest,
            "pravegaservice.cache.size.max": 256 << 20,
            "singlenode.zk.port": self._zookeeper,
            "singlenode.segmentStore.port": self.address[1],
            "singlenode.controller.rpc.port": self.controller[1],
            "singlenode.controller.rest.enable": "true",
            "singlenode.controller.rest.port": self.rest_port,
            "singlenode.admin.gateway.enable": "false",
            "singlenode.configurationFile": properties,
        }
        opened = [f"java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "nio")]
        return [
            *(java, "-Xmx1500m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *(part for package in opened for part in ("--add-opens", package)),
            *(f"-D{name}={value}" for name, value in settings.items()),
            # Jersey 1, which is in the folder too, has older classes of the names that Jersey 2 needs for REST.
            *("-cp", f"{library / 'jersey-server-2.35.jar'}:{library}/*", "io.pravega.local.LocalPravegaEmulator"),
        ]

    def ready(self) -> bool:
        """Once it has made a stream, its segment containers are there too."""
        stream = controller.StreamInfo(scope="ready", stream="ready")
        scaling = controller.ScalingPolicy(minNumSegments=1)
        self._call("createScope", controller.ScopeInfo(scope="ready"))
        made = self._call("createStream", controller.StreamConfig(streamInfo=stream, scalingPolicy=scaling))
        status = controller.CreateStreamStatus
        socket.create_connection((LOOPBACK, self.rest_port), timeout=5).close()  # REST starts last
        return made.status in (status.SUCCESS, status.STREAM_EXISTS)

    def prepare(self) -> None:
        made = self._call("createScope", controller.ScopeInfo(scope=BASIN))
        assert made.status == controller.CreateScopeStatus.SUCCESS, made

    def _call(self, name: str, request: Message) -> Any:
        """Call the controller through grpcio. Raises grpc.RpcError."""
        assert self.controller is not None
        method = SERVICE.methods_by_name[name]
        path, answer = f"/{SERVICE.full_name}/{name}", GetMessageClass(method.output_type)
        with grpc.insecure_channel(f"{LOOPBACK}:{self.controller[1]}") as channel:
            call = channel.unary_unary(path, type(request).SerializeToString, answer.FromString)
            return call(request, timeout=10)


class S3PReference(RealServer):
    """The reference server of S3P, in memory."""

    kind = "s3p"
    name = "S3P reference server"
    keeps = False

    def __init__(self) -> None:
        super().__init__()
        self.address = (LOOPBACK, free_ports(1)[0])

    def command(self) -> Sequence[object]:
        return [_installed(real_peers.s3p_program(), "the S3P reference server")]

    def environment(self) -> Mapping[str, str]:
        return {real_peers.S3P_ADDRESS_VARIABLE: f"{LOOPBACK}:{self.address[1]}"}

    def ready(self) -> bool:
        with socket.create_connection(self.address, timeout=5):
            return True


class DurableReference(RealServer):
    """The reference server of Durable Streams, in memory, or with `durable` on files that outlive its process."""

    kind = "durable"

    def __init__(self, *, durable: bool = False) -> None:
        super().__init__()
        self.keeps = durable
        self.name = "Durable Streams reference server" + (" on files" if durable else "")
        self.address = (LOOPBACK, free_ports(1)[0])

    def command(self) -> Sequence[object]:
        if not (NODE / "node_modules" / "@durable-streams" / "server").is_dir():
            pytest.skip("the reference server of Durable Streams is not installed: `make node-peers`")
        root = self.directory / "root"
        root.mkdir(exist_ok=True)
        return [need("node"), NODE / "durable-server.mjs", self.address[1], *([root] if self.keeps else [])]

    def ready(self) -> bool:
        connection = http.client.HTTPConnection(*self.address, timeout=5)
        try:
            connection.request("HEAD", "/v1/stream/ready")
            return connection.getresponse().status == 404
        finally:
            connection.close()


class KafkaBroker(RealServer):
    """A broker of Apache Kafka, which is its own controller (KRaft). `voters`: the port of each controller by its
    node, for a broker that is one of several."""

    kind = "kafka"
    keeps = True

    def __init__(self, node: int = 1, voters: Mapping[int, int] | None = None) -> None:
        super().__init__()
        self.name = f"Apache Kafka {real_peers.KAFKA_VERSION}, broker {node}"
        self.node = node
        self.address = (LOOPBACK, free_ports(1)[0])
        self._voters = voters or {node: free_ports(1)[0]}

    def command(self) -> Sequence[object]:
        library = _installed(real_peers.kafka_library(), "Apache Kafka")
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self.settings().items()))
        program = [need("java"), "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{library}/*"]
        if not (self.directory / "data").exists():
            storage = ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER, "--config", properties]
            subprocess.run([*program, *storage, *self.format_options()], check=True, capture_output=True)
        return [*program, "kafka.Kafka", properties]

    def format_options(self) -> Sequence[str]:
        """Return further options of the tool that formats its directory."""
        return ()

    def settings(self) -> dict[str, object]:
        """Return its properties."""
        several = len(self._voters) > 1
        replicas, least = (3, 2) if several else (1, 1)
        here, controllers = f"BROKER://{LOOPBACK}:{self.address[1]}", self._voters.items()
        return {
            "process.roles": "broker,controller",
            "node.id": self.node,
            "controller.quorum.voters": ",".join(f"{node}@{LOOPBACK}:{port}" for node, port in controllers),
            "listeners": f"{here},CONTROLLER://{LOOPBACK}:{self._voters[self.node]}",
            "advertised.listeners": here,
            "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "BROKER",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.directory / "data",
            "auto.create.topics.enable": "false",
            "default.replication.factor": replicas,
            "min.insync.replicas": least,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": least,
            "group.initial.rebalance.delay.ms": 0,
            "broker.session.timeout.ms": 3000,
            "num.network.threads": 1,
            "num.io.threads": 2,
        }

    def ready(self) -> bool:
        """Once its controller has unfenced it, it lists itself."""
        with KafkaSocket(self.address) as client:
            found = client.call(MetadataRequest(topics=[]), MetadataResponse)
        return self.node in [broker.node_id for broker in found.brokers]


class SecondPenstock(BackServer):
    """Another gateway on its embedded store, asked through the listener of `kind`."""

    keeps = True

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name = "Penstock"
        self.process = GatewayProcess(CONFIG)

    def start(self) -> Self:
        self.process.start()
        self.address = (LOOPBACK, getattr(self.process, f"{self.kind}_port"))
        if self.kind == "segment":
            self.controller = (LOOPBACK, self.process.controller_port)
        return self

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> None:
        self.process.__exit__(None, None, None)

    def log_tail(self) -> str:
        return self.process.log_tail()


REAL_SERVERS: dict[str, type[RealServer]] = {
    "durable": DurableReference,
    "kafka": KafkaBroker,
    "s2": S2Lite,
    "s3p": S3PReference,
    "segment": PravegaStandalone,
}
"""The real server of each kind of back."""
