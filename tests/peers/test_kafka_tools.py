"""Further clients of Kafka, unmodified: kcat, kafkajs, Apache Kafka's command-line tools (Java), and franz-go (Go) with
the tests that its authors ship."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.go import folder_of, go_tests
from support.peers import need, run_client, unique
from support.pravega.java import QUICK_START, fetch_libraries
from support.process import BASIN, CONFIG, GatewayProcess, running_gateway
from support.segment.client import ReleasedSocket

HERE = Path(__file__).parent
NODE, GO, JAVA = HERE / "node", HERE / "go" / "kafka", HERE / "java" / "kafka"
FRANZ = "github.com/twmb/franz-go/pkg/kgo"
TOOLS = "org.apache.kafka.tools"

FAILED_FRANZ = {
    "TestIssueFetchLargerThanBrokerMaxReadBytes": "produces records of more than 1 MiB, where streams take 1 MiB",
    "TestConsumeMaxDecompressBatchBytes": "produces a record of 3 MiB, where streams take 1 MiB",
    "Test848RegexBrokerResolves": "expects Kafka's internal topic __consumer_offsets among those that it gets",
    "TestConsumeRegex": "expects Kafka's internal topic __consumer_offsets",
}
"""Tests of franz-go that need what the gateway does not have. All others pass, or skip themselves."""
SKIPPED_FRANZ = {
    "TestConsumeRegexShareSkipsInternal": "share groups",
    "TestShareGroup": "share groups",
    "TestShareGroupAckOnClose": "share groups",
    "TestShareGroupETL": "share groups",
    "TestShareGroupOffsetsAdmin": "share groups",
    "TestOAuthAuth": "OAUTHBEARER",
    "TestIssueProduceBrokerTooOldFailsRecords": "a broker of Kafka 0.10",
}
"""Tests of franz-go that skip themselves, and what they look for."""


@pytest.fixture(scope="module")
def tools_gateway() -> Iterator[GatewayProcess]:
    with running_gateway() as gateway:
        yield gateway


@pytest.fixture
def topic() -> str:
    return unique("topic")


def server(gateway: GatewayProcess) -> str:
    return f"127.0.0.1:{gateway.kafka_port}"


# ---- kcat ------------------------------------------------------------------------------------------------------------


def test_kcat_produces_and_consumes(tools_gateway: GatewayProcess, topic: str, tmp_path: Path) -> None:
    kcat, broker = need("kcat"), server(tools_gateway)
    (tmp_path / "records").write_text("a:1\nb:2\n")
    run_client([kcat, "-b", broker, "-t", topic, "-P", "-K:", "-l", "records"], cwd=tmp_path, seconds=30)
    said = run_client([kcat, "-b", broker, "-t", topic, "-C", "-e", "-q", "-f", "%k=%s@%o "], cwd=tmp_path, seconds=30)
    assert said == "a=1@0 b=2@1 "
    listed = json.loads(run_client([kcat, "-b", broker, "-t", topic, "-L", "-J"], cwd=tmp_path, seconds=30))
    assert [one["topic"] for one in listed["topics"]] == [topic]


# ---- kafkajs ---------------------------------------------------------------------------------------------------------


def test_kafkajs_produces_and_consumes_in_a_group(tools_gateway: GatewayProcess, topic: str) -> None:
    node = need("node")
    if not (NODE / "node_modules" / "kafkajs").is_dir():
        pytest.skip("the npm clients are not installed: `make node-peers`")
    said = run_client([node, "kafka.mjs", server(tools_gateway), topic], cwd=NODE, seconds=60)
    assert json.loads(said) == {"found": [["0", "a", "1", "x"], ["1", None, None, ""]], "partitions": 1}


# ---- Java ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("kafka-tools")
    fetch_libraries(JAVA, directory)
    return directory


def java_tool(libraries: Path, name: str, *arguments: str, given: str = "") -> str:
    """Run a tool of Apache Kafka, and return what it prints."""
    result = subprocess.run(
        [need("java"), *QUICK_START, "-Xmx256m", "-cp", f"{libraries}/*", f"{TOOLS}.{name}", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.timeout(500)
def test_java_performance_tools(tools_gateway: GatewayProcess, topic: str, libraries: Path) -> None:
    broker = f"bootstrap.servers={server(tools_gateway)}"
    # Level 22 asks for the largest window, and costs the producer seconds for each of its batches of 16 KiB.
    load = ("--num-records", "500", "--record-size", "100", "--throughput", "-1")
    producer = ("--producer-props", broker, "acks=all", "compression.type=zstd", "compression.zstd.level=22")
    assert "500 records sent" in java_tool(libraries, "ProducerPerformance", "--topic", topic, *load, *producer)
    wanted = ("--topic", topic, "--bootstrap-server", server(tools_gateway), "--messages", "500")
    report = java_tool(libraries, "ConsumerPerformance", *wanted).splitlines()[-1].split(", ")
    assert report[4] == "500", report


@pytest.mark.timeout(500)
def test_java_producer_with_transactions(tools_gateway: GatewayProcess, topic: str, libraries: Path) -> None:
    load = ("--num-records", "3000", "--record-size", "100", "--throughput", "-1")
    transactions = ("--transactional-id", topic, "--transaction-duration-ms", "100")
    producer = ("--producer-props", f"bootstrap.servers={server(tools_gateway)}")
    said = java_tool(libraries, "ProducerPerformance", "--topic", topic, *load, *transactions, *producer)
    assert "3000 records sent" in said
    wanted = ("--topic", topic, "--bootstrap-server", server(tools_gateway), "--messages", "3000")
    report = java_tool(libraries, "ConsumerPerformance", *wanted).splitlines()[-1].split(", ")
    assert report[4] == "3000", report


@pytest.mark.timeout(500)
def test_java_console_tools(tools_gateway: GatewayProcess, topic: str, libraries: Path) -> None:
    place = ("--topic", topic, "--bootstrap-server", server(tools_gateway))
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    java_tool(libraries, "ConsoleProducer", *place, *keyed, given="k1:v1\nk2:v2\n")
    shown = ("--from-beginning", "--max-messages", "2", "--property", "print.key=true")
    assert java_tool(libraries, "consumer.ConsoleConsumer", *place, *shown).split() == ["k1", "v1", "k2", "v2"]


@pytest.mark.timeout(500)
def test_java_describes_a_topic(tools_gateway: GatewayProcess, topic: str, libraries: Path) -> None:
    place = ("--topic", topic, "--bootstrap-server", server(tools_gateway))
    java_tool(libraries, "TopicCommand", "--create", "--partitions", "3", *place)
    said = java_tool(libraries, "TopicCommand", "--describe", *place)
    assert "PartitionCount: 3" in said, said
    assert re.findall(r"Partition: (\d+)\s+Leader: (\d+)", said) == [("0", "1"), ("1", "1"), ("2", "1")], said


@pytest.mark.timeout(500)
def test_java_consumers_of_the_consumer_protocol(tools_gateway: GatewayProcess, topic: str, libraries: Path) -> None:
    """Their partitions are assigned by the gateway; a second run goes on at the offsets of the first."""
    place = ("--topic", topic, "--bootstrap-server", server(tools_gateway))
    options = ("group.protocol=consumer", "auto.offset.reset=earliest")
    consumer = ("--group", topic, *(word for one in options for word in ("--consumer-property", one)))
    for values in (["a", "b"], ["c", "d"]):
        java_tool(libraries, "ConsoleProducer", *place, given="".join(f"{value}\n" for value in values))
        assert (
            java_tool(libraries, "consumer.ConsoleConsumer", *place, *consumer, "--max-messages", "2").split() == values
        )


# ---- franz-go --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("franz-go")


@pytest.mark.timeout(500)
def test_franz_go_produces_and_consumes(tools_gateway: GatewayProcess, topic: str, programs: Path) -> None:
    program = go_tests(GO, ".", programs)
    command = [str(program), "-test.run=^TestProduceAndConsume$", "-test.timeout=60s"]
    where = {"KGO_SEEDS": server(tools_gateway), "TOPIC": topic}
    run_client(command, cwd=programs, seconds=70, environment=where)


@pytest.mark.timeout(500)
def test_franz_go_subscribes_to_a_regular_expression(tools_gateway: GatewayProcess, topic: str, programs: Path) -> None:
    program = go_tests(GO, ".", programs)
    command = [str(program), "-test.run=^TestRegularExpression$", "-test.timeout=90s"]
    where = {"KGO_SEEDS": server(tools_gateway), "TOPIC": topic}
    run_client(command, cwd=programs, seconds=100, environment=where)


@pytest.mark.timeout(500)
def test_franz_go_aborts_a_transaction_whose_stream_was_sealed(
    tools_gateway: GatewayProcess, topic: str, programs: Path
) -> None:
    program, sealed = go_tests(GO, ".", programs), f"{topic}-sealed"
    with subprocess.Popen(
        [str(program), "-test.run=^TestRefusedCommit$", "-test.timeout=90s"],
        cwd=programs,
        env={**os.environ, "KGO_SEEDS": server(tools_gateway), "TOPIC": topic, "SEALED": sealed},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "produced\n"
        with ReleasedSocket(("127.0.0.1", tools_gateway.segment_port), timeout=30) as other:
            other.seal(f"{BASIN}/{sealed}/0.#epoch.0")
        said, _ = client.communicate("\n", timeout=100)
        assert client.returncode == 0, said


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_tests_of_franz_go_itself(programs: Path) -> None:
    """All of its tests but the named ones pass; some 60 of them need a server."""
    program, package = go_tests(GO, FRANZ, programs), folder_of(GO, FRANZ)
    with running_gateway(CONFIG + '[[identities]]\nname = "plant"\ntokens = ["a-token"]\n') as gateway:
        result = subprocess.run(
            [str(program), "-test.v", "-test.timeout=500s"],
            cwd=package,
            env={
                **os.environ,
                "KGO_SEEDS": server(gateway),
                "KGO_TEST_SCRAM": "plant:a-token:512",
                "KGO_TEST_SCRAM_SEEDS": server(gateway),
                "KGO_TEST_RF": "1",
                "KGO_TEST_RECORDS": "10000",
                "KGO_LOG_LEVEL": "none",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=520,
            check=False,
        )
    outcomes = {name: outcome for outcome, name in re.findall(r"^--- (\w+): (\w+)", result.stdout, re.MULTILINE)}
    failed = {name for name, outcome in outcomes.items() if outcome == "FAIL"}
    skipped = {name for name, outcome in outcomes.items() if outcome == "SKIP"}
    assert failed == set(FAILED_FRANZ), f"{failed ^ set(FAILED_FRANZ)}\n{result.stdout[-20000:]}"
    assert skipped == set(SKIPPED_FRANZ), skipped ^ set(SKIPPED_FRANZ)
    assert len(outcomes) > 140
