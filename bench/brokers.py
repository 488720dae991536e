"""Apache Kafka's broker and the gateway's listener for Kafka, and the duties of both."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import pytest
from duties import DEPTH, Row, batch_count
from kafka_client import KAFKA, connected, create_topics, end_of
from servers import Gateway, Server, Unavailable, WideGateway, free_port, resident_bytes, spawn
from small import SmallBench
from support.pravega.java import fetch_libraries
from support.real_peers import KAFKA_VERSION, kafka_library

from penstock_kafka.codec.cluster_messages import MetadataRequest, MetadataResponse

__all__ = ["BROKER", "FETCH", "MEMBERS", "PARTITIONS", "PENSTOCK", "PERFORMANCE", "PRODUCE", "BrokerBench"]

PRODUCE, FETCH, MEMBERS = "kafka produce", "kafka fetch", "kafka members"
PERFORMANCE = "kafka-producer-perf-test"
PENSTOCK, BROKER, FLUSHED = "Penstock", "Apache Kafka", "Apache Kafka, flushed"
START_SECONDS = 60.0
WARM_UP = 10
"""Rounds that do not count, since the JVM compiles as it runs."""
GROUPS = 500
"""Consumer groups, of one member each."""
HEARTBEAT_SECONDS = 3.0
"""Between the heartbeats of a member: the default of Kafka's consumers."""
MEMBERS_SECONDS = 15.0
PARTITIONS = (1, 4, 16)
"""Partitions of the topics of Apache Kafka's own load generator."""
MOST_LOAD = 200_000
"""Records that it sends."""
_RATE = re.compile(r"^\d+ records sent, ([0-9.]+) records/sec .* 99th,", re.MULTILINE)


class KafkaGateway(WideGateway):
    """The gateway in the place of a broker."""

    @property
    def port(self) -> int:
        """The port of the listener for Kafka."""
        return self.kafka_port


class ApacheKafka(Server):
    """One broker of Apache Kafka, its own controller, with the defaults. `flushed`: it syncs each batch."""

    def __init__(self, directory: Path, *, flushed: bool) -> None:
        java, library = shutil.which("java"), kafka_library()
        if java is None or not library.exists():
            raise Unavailable("Java or Apache Kafka is not installed (make peers): its rows are left out")
        directory.mkdir()
        self.port, controller = free_port(), free_port()
        properties = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": directory / "data",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1,
            **({"log.flush.interval.messages": 1} if flushed else {}),
        }
        file = directory / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        program = [java, "-Xmx1g", "-Xms1g", "-cp", f"{library}/*"]
        identity = ["format", "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAQ", "--config", file]
        subprocess.run([*program, "kafka.tools.StorageTool", *identity], check=True, capture_output=True)
        with (directory / "log").open("wb") as log:
            self.process = spawn([*program, "kafka.Kafka", file], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise RuntimeError(f"Apache Kafka {KAFKA_VERSION} did not start, see {directory / 'log'}")
            time.sleep(0.1)

    def _ready(self) -> bool:
        try:
            with connected(self.port) as asking:
                return bool(asking.call(MetadataRequest(topics=[]), MetadataResponse).brokers)
        except OSError:
            return False


# ---- duties --------------------------------------------------------------------------------------------------


class BrokerBench(SmallBench):
    """See `Bench`."""

    def kafka(self, size: int) -> Iterator[Row]:
        """Produce and fetch, one size, with every number of connections."""
        with ExitStack() as stack:
            servers = self._brokers(stack)
            for connections in self._scale.connections:
                yield from self._produces(servers, size, connections)
            for connections in self._scale.connections:
                yield from self._fetches(servers, size, connections)
            if FLUSHED in servers:
                yield from self._performance(servers, size)
            if size == min(self._scale.sizes):
                yield from self._members(servers)

    def _brokers(self, stack: ExitStack) -> dict[str, KafkaGateway | ApacheKafka]:
        gateway = stack.enter_context(KafkaGateway(self._directory / "kafka-gateway", self._command))
        found: dict[str, KafkaGateway | ApacheKafka] = {PENSTOCK: gateway}
        try:
            for name, flushed in ((BROKER, False), (FLUSHED, True)):
                server = ApacheKafka(self._directory / f"kafka-{flushed}", flushed=flushed)
                found[name] = stack.enter_context(server)
        except Unavailable as missing:
            self._say(str(missing))
        return found

    def _produces(
        self, servers: Mapping[str, KafkaGateway | ApacheKafka], size: int, connections: int
    ) -> Iterator[Row]:
        def measure(candidate: str) -> dict[str, float]:
            server = servers[candidate]
            streams = self._streams(connections)
            create_topics(server.port, streams)
            before = server.cpu()
            answer = self._produce(server.port, streams, size, seconds=self._scale.seconds)
            cpu = server.cpu() - before
            for stream, records in answer["acked"].items():
                if (found := end_of(server.port, stream)) != records:
                    raise RuntimeError(f"{candidate}: {records} records were acknowledged, {found} were found")
            return self._rates(answer, size, cpu)

        candidates = {name: lambda n=name: measure(n) for name in servers}
        for _ in range(WARM_UP):
            for run in candidates.values():
                run()
        yield from self._rows(PRODUCE, size, connections, candidates)

    def _produce(self, port: int, streams: list[str], size: int, **bounds: float) -> dict[str, object]:
        work = {"size": size, "count": batch_count(size), "depth": DEPTH}
        return self._client.do("append", protocol=KAFKA, port=port, streams=streams, **work, **bounds)

    def _performance(self, servers: Mapping[str, KafkaGateway | ApacheKafka], size: int) -> Iterator[Row]:
        """Apache Kafka's load generator with its defaults, to topics of several numbers of partitions."""
        libraries = self._directory / "kafka-tools"
        libraries.mkdir()
        try:
            fetch_libraries(Path(__file__).parents[1] / "tests/peers/java/kafka", libraries)
        except pytest.skip.Exception as missing:
            self._say(f"rows of {PERFORMANCE} are left out: {missing}")
            return
        load = min(MOST_LOAD, self._scale.read_bytes // size)
        generator = [shutil.which("java"), "-cp", f"{libraries}/*", "org.apache.kafka.tools.ProducerPerformance"]
        generator += ["--num-records", str(load), "--record-size", str(size), "--throughput", "-1"]

        def measure(candidate: str, partitions: int) -> dict[str, float]:
            server = servers[candidate]
            (topic,) = self._streams(1)
            create_topics(server.port, [topic], partitions)
            before = server.cpu()
            properties = ["--topic", topic, "--producer-props", f"bootstrap.servers=127.0.0.1:{server.port}"]
            run = subprocess.run([*generator, *properties], capture_output=True, text=True, check=False)
            cpu = server.cpu() - before
            report = _RATE.findall(run.stdout)
            if run.returncode or not report or end_of(server.port, topic, partitions) != load:
                raise RuntimeError(f"{candidate}: {PERFORMANCE} failed\n{run.stdout}{run.stderr}")
            records_s = float(report[-1])
            return {"records_s": records_s, "mb_s": records_s * size / 1e6, "cpu_us": cpu / load * 1e6}

        for partitions in PARTITIONS:
            candidates = {name: lambda n=name, p=partitions: measure(n, p) for name in servers if name != FLUSHED}
            yield from self._rows(PERFORMANCE, size, partitions, candidates)

    def _fetches(self, servers: Mapping[str, KafkaGateway | ApacheKafka], size: int, connections: int) -> Iterator[Row]:
        batches = max(1, min(self._scale.read_bytes // size, 100_000) // batch_count(size))
        records = batches * batch_count(size)
        streams = self._streams(connections)
        plans = {}
        for name, server in servers.items():
            create_topics(server.port, streams)
            self._produce(server.port, streams, size, seconds=60, batches=batches)
            if isinstance(server, Gateway):
                server.restart()
            keys = plans[name] = [f"{name} {stream}" for stream in streams]
            for key, stream in zip(keys, streams, strict=True):
                job = {"key": key, "port": server.port, "stream": stream, "records": records}
                self._client.do("prepare", protocol=KAFKA, **job)

        def measure(name: str) -> dict[str, float]:
            return self._read_round(servers[name], servers[name].port, plans[name], size)

        candidates = {name: lambda n=name: measure(n) for name in servers}
        for _ in range(WARM_UP):
            for run in candidates.values():
                run()
        yield from self._rows(FETCH, size, connections, candidates)

    def _members(self, servers: Mapping[str, KafkaGateway | ApacheKafka]) -> Iterator[Row]:
        """Memory and processor time of members that have nothing to read; a JVM's memory grows in steps."""

        def measure(candidate: str) -> dict[str, float]:
            server = servers[candidate]
            job = {"port": server.port, "pid": server.process.pid, "interval": HEARTBEAT_SECONDS}
            before = resident_bytes(server.process.pid)
            answer = self._client.do("members", count=GROUPS, seconds=MEMBERS_SECONDS, **job)
            kib = (resident_bytes(server.process.pid) - before) / GROUPS / 1024
            self._client.do("drop")
            return {"kib": kib, "core_percent": answer["cpu"] / answer["seconds"] * 100}

        candidates = {name: lambda n=name: measure(n) for name in servers if name != FLUSHED}
        yield from self._rows(MEMBERS, 0, GROUPS, candidates, rounds=1)
