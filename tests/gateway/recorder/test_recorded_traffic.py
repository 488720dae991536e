"""A real gateway that records: what is in its files is what a relay between it and its peers saw, byte for byte."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import s2_sdk as s2
from support.certificates import needs_openssl, self_signed
from support.management import ask, management_port
from support.peers import finish, need
from support.pravega import PravegaClient, advertising, need_pravega
from support.process import BASIN, CONFIG, GatewayProcess
from support.real_backs import SecondPenstock
from support.recording import capture_files, read_file, tshark_warnings
from support.relay import Relay, recorded
from support.s2_http import S2Client
from support.s2_sdk_client import connector
from support.s3p import S3PClient

from penstock_codecs.capture import CaptureEvent, Conversation, Noted, Sender, Side

RECORDER = """
[recorder]
directory = "{data}/recordings"
start = {start}
[recorder.redact]
headers = []
parameters = []
tokens = false
"""
"""Nothing is blanked, so that all can be compared."""
MANAGEMENT = '[management]\nbind = "127.0.0.1:0"\n'


RECORDED = RECORDER.replace("{start}", "true")


def configuration(start: bool, more: str = "") -> str:
    return CONFIG + MANAGEMENT + (RECORDED if start else RECORDER.replace("{start}", "false")) + more


def captured(gateway: GatewayProcess, prefix: str = "penstock-2") -> list[CaptureEvent]:
    """All that is in the files of a recording; those that began from the start have the date behind their prefix."""
    files = [path for path in capture_files(gateway.data / "recordings") if path.name.startswith(prefix)]
    assert files, "nothing was recorded"
    for path in files:
        assert path.stat().st_mode & 0o777 == 0o600
        assert tshark_warnings(path) == []
    return [event for path in files for event in read_file(path)]


async def sdk_session(port: int) -> None:
    """The official client: a session of appends, and one that reads what they became."""
    async with connector(port)() as client:
        stream = client.basin(BASIN).stream("by-sdk")
        async with stream.append_session() as session:
            tickets = [
                await session.submit(s2.AppendInput([s2.Record(body=b"%d-" % number * 3000) for number in range(20)]))
                for _ in range(5)
            ]
            for ticket in tickets:
                await ticket
        batch = await stream.read(start=s2.SeqNum(0), limit=s2.ReadLimit(count=100))
        assert len(batch.records) == 100


def use_all(s2_port: int, s3p_port: int) -> None:
    """A client of each kind."""
    finish(sdk_session(s2_port))
    curl = need("curl", "apt-get install curl")
    body = json.dumps({"records": [{"body": "by curl"}] * 100})
    url = f"http://127.0.0.1:{s2_port}/v1/streams/by-curl/records"
    headers = ("-H", f"s2-basin: {BASIN}", "-H", "content-type: application/json", "-H", "authorization: Bearer t")
    subprocess.run([curl, "-sf", url, *headers, "-d", body], check=True, capture_output=True, timeout=30)
    client = S3PClient(("127.0.0.1", s3p_port))
    client.create("by-s3p")
    for number in range(50):
        client.append("by-s3p", b"x" * (1000 * number + 1))
    assert len(client.call("READ", "by-s3p", [])) > 1
    client.close()


def check(relays: list[Relay], events: list[CaptureEvent], side: Side) -> list[Conversation]:
    """Every relayed connection was recorded whole; gives the conversations, in order."""
    seen = {conversation: said for conversation, said in recorded(events).items() if conversation.side is side}
    found = []
    for relay in relays:
        relay.settle()
        for one in relay.connections:
            end = one.near if side is Side.BACK else one.far
            (conversation,) = [each for each in seen if each.client == end]
            for sender in Sender:
                offset, said = seen[conversation][sender]
                assert offset == 0
                assert said == bytes(one.said[sender]), (conversation, sender)
            found.append(conversation)
    assert len(found) == len(seen), "and nothing else"
    return found


def test_what_clients_say_and_hear() -> None:
    with GatewayProcess(configuration(start=True)) as gateway, contextlib.ExitStack() as stack:
        relays = [stack.enter_context(Relay(port)) for port in (gateway.s2_port, gateway.s3p_port)]
        use_all(relays[0].port, relays[1].port)
        assert gateway.terminate() == 0
        events = captured(gateway)
        conversations = check(relays, events, Side.FRONT)
        assert {(one.name, one.protocol) for one in conversations} == {("listeners.s2", "s2"), ("listeners.s3p", "s3p")}
        noted = {(event.key, event.value) for event in events if isinstance(event, Noted)}
        assert noted == {("stream", f"{BASIN}/{name}") for name in ("by-sdk", "by-curl", "by-s3p")}
        assert "[WARNING]" not in gateway.log_tail()


def test_what_a_client_of_pravega_says_and_hears() -> None:
    """By the controller (gRPC over HTTP/2) and the segment protocol."""
    need_pravega()
    with Relay(0) as segments, GatewayProcess(advertising(segments.port) + MANAGEMENT + RECORDED) as gateway:
        segments.target = gateway.segment_port
        with Relay(gateway.controller_port) as controller:
            with PravegaClient(controller.port) as client:
                client.call("manage", "create_scope", "Scope")
                client.call("manage", "create_stream", "Scope", "stream", 1)
                client.call("write", "Scope", "stream", [(f"event {number}" * 100, None) for number in range(100)])
            assert gateway.terminate() == 0
            events = captured(gateway)
            conversations = check([segments, controller], events, Side.FRONT)
            assert {one.protocol for one in conversations} == {"segment", "controller"}
            streams = {event.value for event in events if isinstance(event, Noted)}
            assert f"{BASIN}/Scope/stream" in streams


BACKS = """
[backs.lite]
kind = "s2"
address = "127.0.0.1:{s2}"
http = "h2"
[backs.legacy]
kind = "s3p"
address = "127.0.0.1:{s3p}"
create_streams = true
[backs.legacy.loss]
headers = "envelope"
[backs.pravega]
kind = "segment"
address = "127.0.0.1:{segment}"
create_streams = true
[[routes]]
name = "legacy"
stream = "by-s3p"
back = "legacy"
[[routes]]
name = "pravega"
stream = "by-curl"
back = "pravega"
[[routes]]
name = "lite"
back = "lite"
"""


@contextmanager
def before_servers(start: bool) -> Iterator[tuple[GatewayProcess, list[Relay]]]:
    """A gateway before a second one, which it reaches by relays as S2, as S3P and as a segment store."""
    with SecondPenstock("s2") as server, contextlib.ExitStack() as stack:
        backs, relays = BACKS, []
        for kind in ("s2", "s3p", "segment"):
            relays.append(stack.enter_context(Relay(getattr(server.process, f"{kind}_port"))))
            backs = backs.replace(f"{{{kind}}}", str(relays[-1].port))
        yield stack.enter_context(GatewayProcess(configuration(start, backs))), relays


def test_what_is_said_with_servers() -> None:
    with before_servers(start=True) as (gateway, relays):
        use_all(gateway.s2_port, gateway.s3p_port)
        assert gateway.terminate() == 0
        events = captured(gateway)
        conversations = check(relays, events, Side.BACK)
        spoken = {("backs.lite", "s2"), ("backs.legacy", "s3p"), ("backs.pravega", "segment")}
        assert {(one.name, one.protocol) for one in conversations} == spoken
        noted = {(event.key, event.value) for event in events if isinstance(event, Noted)}
        assert {("route", "lite"), ("route", "legacy"), ("stream", f"{BASIN}/by-s3p")} <= noted
        numbers = [conversation.number for conversation in recorded(events)]
        assert len(numbers) == len(set(numbers)), "those of clients and those of servers share one count"


TLS_BACK = """
[backs.lite]
kind = "s2"
address = "127.0.0.1:%d"
tls = true
tls_ca = "%s"
tls_server_name = "127.0.0.1"
[[routes]]
name = "all"
back = "lite"
"""


@needs_openssl
def test_both_ends_of_a_connection_over_tls_record_the_same(tmp_path: Path) -> None:
    """But for what is said last, which TLS may have been given and never sent."""
    certificate, key = self_signed(tmp_path)
    secured = f"""bind = "127.0.0.1:{{s2_port}}"\ntls_certificate = "{certificate}"\ntls_key = "{key}"\n"""
    server_side = configuration(start=True).replace('bind = "127.0.0.1:{s2_port}"\n', secured)
    with GatewayProcess(server_side) as server:
        client_side = configuration(True, TLS_BACK % (server.s2_port, certificate))
        with GatewayProcess(client_side) as gateway:
            S2Client(("127.0.0.1", gateway.s2_port), BASIN).append("orders", "x" * 100_000)
            assert gateway.terminate() == 0
            backs = {one: said for one, said in recorded(captured(gateway)).items() if one.side is Side.BACK}
        assert server.terminate() == 0
        fronts = recorded(captured(server))
        assert backs and len(fronts) == len(backs)
        for front, said in fronts.items():
            (back,) = [one for one in backs if one.client == front.client]
            assert front.tls and back.tls and back.server == front.server
            sent, got = backs[back], said
            assert sent[Sender.CLIENT][1].startswith(got[Sender.CLIENT][1])
            assert got[Sender.SERVER][1].startswith(sent[Sender.SERVER][1])
        sizes = [len(said[Sender.CLIENT][1]) for said in fronts.values()]
        assert max(sizes) > 100_000


class Talking:
    """A client that appends to a stream without a pause, by a relay."""

    def __init__(self, port: int, stream: str) -> None:
        self.relay = Relay(port)
        self.stream = stream
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._talk, daemon=True)
        self._thread.start()

    def _talk(self) -> None:
        client = S3PClient(("127.0.0.1", self.relay.port))
        client.create(self.stream)
        while not self._stop.wait(0.002):
            client.append(self.stream, b"body of " + self.stream.encode())
        client.close()

    def __enter__(self) -> Talking:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)
        self.relay.settle()

    def check(self, events: list[CaptureEvent]) -> Conversation:
        """What was recorded of it is what it said then."""
        (relayed,) = self.relay.connections
        (conversation,) = [one for one in recorded(events) if one.client == relayed.far]
        for sender, (offset, said) in recorded(events)[conversation].items():
            assert len(said) > 100
            assert said == bytes(relayed.said[sender][offset : offset + len(said)])
        return conversation


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not come to pass")


def record_for_a_while(port: int, words: dict[str, Any]) -> str:
    """Start a recording while traffic flows, and stop it when it has some; gives the prefix of its files."""
    status, started = ask(port, "/recordings", words)
    assert status == 200, started
    # the first event comes when a connection is taken
    until(lambda: [one for one in ask(port, "/recordings")[1]["recordings"] if one["bytes"] > 20_000])
    status, stopped = ask(port, f"/recordings/{started['id']}/stop", {})
    assert status == 200 and stopped["dropped"] == 0
    return f"penstock-{started['id']}-"


def test_switched_at_run_time_for_a_connection_and_for_a_stream() -> None:
    with GatewayProcess(configuration(start=False)) as gateway:
        port = management_port(gateway)
        with Talking(gateway.s3p_port, "orders") as orders, Talking(gateway.s3p_port, "invoices") as invoices:

            def number_of(stream: str) -> int:
                return until(
                    lambda: next(
                        (
                            one["connection"]
                            for one in ask(port, "/connections")[1]["connections"]
                            if one["streams"] == [f"{BASIN}/{stream}"]
                        ),
                        None,
                    )
                )

            by_number = record_for_a_while(port, {"connections": [number_of("orders")]})
            by_stream = record_for_a_while(port, {"streams": [f"{BASIN}/inv*"]})
            first = captured(gateway, by_number)
            second = captured(gateway, by_stream)
            assert list(recorded(first)) != [] and len(recorded(first)) == len(recorded(second)) == 1
        orders.check(first)
        invoices.check(second)


def test_a_stream_is_recorded_from_the_first_byte_of_its_connections() -> None:
    with GatewayProcess(configuration(start=False)) as gateway:
        port = management_port(gateway)
        _, started = ask(port, "/recordings", {"streams": ["wanted"]})
        relay = Relay(gateway.s2_port)
        client = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=20)
        for stream in ("unwanted", "wanted", "unwanted"):
            head = {"s2-basin": BASIN, "content-type": "application/json"}
            client.request("POST", f"/v1/streams/{stream}/records", '{"records": [{"body": "x"}]}', head)
            assert client.getresponse().read()
        client.close()
        relay.settle()
        ask(port, f"/recordings/{started['id']}/stop", {})
        events = captured(gateway, "penstock-1-")
        check([relay], events, Side.FRONT)


def test_switched_at_run_time_for_a_route_with_its_back() -> None:
    with before_servers(start=False) as (gateway, relays):
        port = management_port(gateway)
        with Talking(gateway.s3p_port, "by-s3p") as talking, Talking(gateway.s3p_port, "elsewhere"):
            events = captured(gateway, record_for_a_while(port, {"routes": ["legacy"]}))
        talking.check(events)
        gateway.terminate()
        relays[1].settle()
        said = recorded(events)
        backs = [one for one in said if one.side is Side.BACK]
        assert backs and {one.name for one in said} == {"listeners.s3p", "backs.legacy"}
        for one in backs:
            (relayed,) = [each for each in relays[1].connections if each.near == one.client]
            for sender, (offset, data) in said[one].items():
                assert data == bytes(relayed.said[sender][offset : offset + len(data)])


PENSTOCK = [sys.executable, "-m", "penstock"]


@contextmanager
def following(port: int, *arguments: str, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """`penstock tail`, once it hears."""
    command = [*PENSTOCK, "tail", "--management", f"127.0.0.1:{port}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    try:
        until(lambda: [one for one in ask(port, "/recordings")[1]["recordings"] if one["kind"] == "live"])
        yield process
    finally:
        process.kill()
        process.communicate()


def test_tail_into_tshark() -> None:
    """The pipe is a capture that tshark decodes while it grows."""
    tshark = need("tshark", "apt-get install tshark")
    with GatewayProcess(CONFIG + MANAGEMENT) as gateway:
        port = management_port(gateway)
        with following(port, "--pcapng", "-", "--stream", f"{BASIN}/wanted") as tail:
            wanted = ("-Y", "http", "-T", "fields", "-e", "http.request.uri", "-e", "http.response.code")
            decode = ("-d", f"tcp.port=={gateway.s2_port},http")
            reading = subprocess.Popen(
                [tshark, "-l", "-i", "-", "-c", "6", *decode, *wanted],
                stdin=tail.stdout,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            S2Client(("127.0.0.1", gateway.s2_port), BASIN).append("unwanted", "not this")
            S2Client(("127.0.0.1", gateway.s2_port), BASIN).append("wanted", "this")
            output, errors = reading.communicate(timeout=60)
            assert reading.returncode == 0, errors
            assert output.decode().split() == ["/v1/streams/wanted/records", "200"]


def test_tail_tells_messages_as_they_come() -> None:
    with GatewayProcess(CONFIG + MANAGEMENT) as gateway:
        port = management_port(gateway)
        arguments = (
            "--json",
            "--bodies",
            "--protocol",
            "s3p",
            "--stream",
            "wanted",
            "--kind",
            "APPEND",
            "--kind",
            "ID",
        )
        with following(port, *arguments) as tail:
            S2Client(("127.0.0.1", gateway.s2_port), BASIN).append("wanted", "by another protocol")
            client = S3PClient(("127.0.0.1", gateway.s3p_port))
            for name in ("wanted", "unwanted", "wanted"):
                client.create(name)
                client.append(name, b"to " + name.encode())
            assert tail.stdout is not None
            lines = [json.loads(tail.stdout.readline()) for _ in range(4)]
            client.close()
            assert [(line["kind"], line["stream"]) for line in lines] == [("APPEND", "wanted"), ("ID", "wanted")] * 2
            gateway.terminate()
            assert tail.wait(20) == 0, "it ends with the gateway"


def command(port: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*PENSTOCK, *arguments, "--management", f"127.0.0.1:{port}"], capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in done.stderr
    return done


def test_the_commands() -> None:
    with GatewayProcess(configuration(start=False)) as gateway, Talking(gateway.s3p_port, "orders"):
        port = management_port(gateway)
        until(lambda: any(one["streams"] for one in ask(port, "/connections")[1]["connections"]))
        table = command(port, "connections").stdout.splitlines()
        assert table[0].split()[:3] == ["#", "where", "speaks"]
        assert any(f"stream {BASIN}/orders" in line and "listeners.s3p" in line for line in table)
        lines = command(port, "connections", "--json").stdout.splitlines()
        assert {"listeners.s3p", "management"} == {json.loads(line)["name"] for line in lines}
        assert command(port, "record", "list").stdout == "nothing is recorded\n"
        started = command(port, "record", "start", "--stream", "ord*", "--listener", "s3p").stdout
        assert started.startswith("recording 1: recording (1 file), listener s3p, stream ord*\n")
        assert "stream ord*" in command(port, "record", "list").stdout
        assert json.loads(command(port, "record", "list", "--json").stdout)["id"] == 1
        assert command(port, "record", "stop", "1").stdout.startswith("recording 1: stopped")
        assert command(port, "record", "stop", "1").stderr == "Error: no recording '1' is running\n"
        refused = command(port, "record", "start", "--back", "lite")
        assert (refused.returncode, refused.stderr) == (1, "Error: backs: 'lite' is unknown; there are none\n")
        refused = command(port, "tail", "--pcapng", "-", "--json")
        assert refused.returncode == 2 and "--pcapng writes what goes by as it is" in refused.stderr


def test_it_does_not_start_where_it_cannot_record(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [
            *PENSTOCK,
            "serve",
            "--s2",
            "127.0.0.1:0",
            "--data",
            str(tmp_path / "data"),
            "--record",
            str(tmp_path / "file"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr == f"Error: recorder.directory: {tmp_path / 'file'} is not a directory\n"


@pytest.mark.parametrize("arguments", [("connections",), ("record", "list"), ("tail",)])
def test_commands_where_nobody_answers(arguments: tuple[str, ...]) -> None:
    done = command(1, *arguments)
    assert done.returncode == 1 and "no answer from 127.0.0.1:1" in done.stderr
