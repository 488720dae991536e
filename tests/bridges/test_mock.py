"""`penstock mock` with real clients: a project's tests are recorded once through it, and pass without a server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.pravega.clients import PravegaClient, need_pravega
from support.process import GatewayProcess

pytestmark = pytest.mark.peer

PENSTOCK = Path(sys.executable).parent / "penstock"
PLUGIN = "penstock.testing.pytest_plugin"
PROJECT = {
    "pytest.ini": "[pytest]\n",
    "conftest.py": '''
import os
import pytest
from redis.connection import Connection


@pytest.fixture(scope="session")
def resp():
    """One connection for all tests, as applications have, and a stream that is there for all."""
    host, port = os.environ["PENSTOCK_S3P"].split(":")
    connection = Connection(host=host, port=int(port), protocol=2, driver_info=None)
    connection.connect_check_health(check_health=False, retry_socket_connect=False)

    def packed(value):
        if isinstance(value, list):
            return b"*%d\\r\\n" % len(value) + b"".join(map(packed, value))
        return b"$%d\\r\\n%s\\r\\n" % (len(value), value)

    def ask(*command):
        connection.send_packed_command([packed(list(command))], check_health=False)
        return connection.read_response()

    assert ask(b"CREATE", b"shared", []) == b"OK"
    yield ask
    ask(b"DELETE", b"shared", [])
    connection.disconnect()
''',
    "test_resp.py": """
def test_first(resp):
    resp(b"APPEND", b"shared", [], [b"one"])
    assert [body for _, body in pairs(resp(b"READ", b"shared", []))][:1] == [b"one"]


def test_second(resp):
    resp(b"APPEND", b"shared", [], [b"two", b"three"])
    assert [body for _, body in pairs(resp(b"READ", b"shared", []))][-2:] == [b"two", b"three"]


def pairs(reply):
    return list(zip(reply[::2], reply[1::2]))
""",
    "test_sdk.py": """
import asyncio
import os
import pytest
import s2_sdk as s2


def run(work):
    async def main():
        async with s2.S2(os.environ["S2_ACCESS_TOKEN"], endpoints=s2.Endpoints.from_env()) as client:
            return await work(client.basin("penstock").stream("sdk"))

    return asyncio.run(main())


def test_session():
    async def work(stream):
        async with stream.append_session() as session:
            tickets = [await session.submit(s2.AppendInput([s2.Record(b"record %d" % n)])) for n in range(3)]
            return [(await ticket).start.seq_num for ticket in tickets]

    assert run(work) == [0, 1, 2]


@pytest.mark.parametrize("count", [1, 2])
def test_read(count):
    async def work(stream):
        batch = await stream.read(start=s2.SeqNum(0), limit=s2.ReadLimit(count=count))
        return [record.body for record in batch.records]

    assert run(work) == [b"record %d" % n for n in range(count)]


def test_follow():
    async def work(stream):
        found = []
        async for batch in stream.read_session(start=s2.SeqNum(0)):
            found += [record.body for record in batch.records]
            if len(found) >= 3:
                return found

    assert run(work) == [b"record 0", b"record 1", b"record 2"]
""",
    "test_durable.py": """
import os
import durable_streams


def test_json():
    url = os.environ["DURABLE_STREAMS_URL"] + "/events"
    with durable_streams.DurableStream.create(url, content_type="application/json") as stream:
        stream.append({"n": 1})
    with durable_streams.DurableStream.connect(url) as stream:
        with durable_streams.stream(url, live=False) as response:
            assert response.read_json() == [{"n": 1}]
""",
}


class Project:
    """A project with tests, and recordings of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name, text in PROJECT.items():
            (directory / name).write_text(text)

    def mock(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`penstock mock recordings` with these arguments."""
        command = [str(PENSTOCK), "mock", "recordings", "--report", "report.json", *arguments]
        environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plug-ins take seconds to load
        return subprocess.run(
            command, cwd=self.directory, env=environment, capture_output=True, text=True, timeout=240, check=False
        )

    def pytest(self, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """Run its tests under `mock`."""
        command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", PLUGIN, *arguments)
        return self.mock(*options, "--", *command)

    @property
    def report(self) -> dict[str, Any]:
        return json.loads((self.directory / "report.json").read_text())


def recording(gateway: GatewayProcess) -> tuple[str, ...]:
    """Options to record what servers answer; durable's clients are translated to S2."""
    return ("--on-miss", "record", f"--to=s2://127.0.0.1:{gateway.s2_port}", f"--to=s3p://127.0.0.1:{gateway.s3p_port}")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """All tests of the project, recorded with a gateway that has gone since."""
    pytest.importorskip("durable_streams", reason="`pip install durable-streams`")
    project = Project(tmp_path_factory.mktemp("recorded"))
    with GatewayProcess() as gateway:
        done = project.pytest(options=recording(gateway))
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.report["answered"] == 0 and project.report["passed_count"] > 10
    return project


@pytest.fixture
def project(recorded: Project, tmp_path: Path) -> Project:
    """A copy of the project with its recordings."""
    copied = Project(tmp_path)
    subprocess.run(["cp", "-r", recorded.directory / "recordings", tmp_path], check=True)
    return copied


def test_recordings_are_named_after_their_tests(project: Project) -> None:
    found = {
        str(path.parent.relative_to(project.directory / "recordings")) for path in project.directory.rglob("*.pcapng")
    }
    assert found == {
        "any test",
        "test_resp.py/test_first",
        "test_resp.py/test_second",
        "test_sdk.py/test_session",
        "test_sdk.py/test_read[1]",
        "test_sdk.py/test_read[2]",
        "test_sdk.py/test_follow",
        "test_durable.py/test_json",
    }
    assert b"Bearer mock" not in b"".join(path.read_bytes() for path in project.directory.rglob("*.pcapng"))


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("-k", "test_second or follow"),
        (
            "test_sdk.py::test_read[2]",
            "test_sdk.py::test_read[1]",
            "test_resp.py::test_second",
            "test_resp.py::test_first",
        ),
    ],
    ids=["all", "some", "another order"],
)
def test_recorded_tests_pass_without_a_server(project: Project, arguments: tuple[str, ...]) -> None:
    done = project.pytest(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    report = project.report
    assert report["answered"] and not report["missed_count"] and not report["never_asked"], done.stderr
    assert re.search(r"penstock: \d+ requests answered from the recording, 0 not recorded, 0 never asked", done.stderr)


def test_a_changed_test_fails_and_is_told(project: Project) -> None:
    file = project.directory / "test_resp.py"
    file.write_text(file.read_text().replace('b"two"', 'b"deux"').replace("== [b", "!= [b"))
    done = project.pytest("test_resp.py")
    assert done.returncode == 1
    assert "penstock: not recorded: APPEND shared, by test_resp.py/test_second" in done.stderr
    assert "penstock: never asked: APPEND shared, by test_resp.py/test_second" in done.stderr
    assert "ERR_NOT_RECORDED" in done.stdout or "APPEND shared is not in the recording" in done.stdout


def test_a_session_that_goes_on_differently_is_told(project: Project) -> None:
    file = project.directory / "test_sdk.py"
    file.write_text(file.read_text().replace('b"record %d" % n)])) for', 'b"other %d" % n)])) for'))
    done = project.pytest("test_sdk.py::test_session")
    assert done.returncode == 1
    assert "not recorded: POST /v1/streams/sdk/records" in done.stderr  # whether its answer had begun is chance


def test_the_exit_code_is_1_where_only_the_recording_falls_short(project: Project) -> None:
    file = project.directory / "test_resp.py"
    file.write_text(
        "def test_lenient(resp):\n    try:\n        resp(b'CREATE', b'new', [])\n    except Exception:\n        pass\n"
    )
    done = project.pytest("test_resp.py")
    assert " passed" in done.stdout and done.returncode == 1, done.stdout + done.stderr
    assert project.report["missed"] == [{"test": "test_resp.py/test_lenient", "request": "CREATE new"}]


def test_new_requests_are_recorded_beside_the_old_ones(project: Project) -> None:
    file = project.directory / "test_resp.py"
    file.write_text(
        file.read_text().replace(
            "def test_second(resp):\n", "def test_second(resp):\n    resp(b'CREATE', b'new', [])\n"
        )
    )
    before = {path: path.read_bytes() for path in project.directory.rglob("*.pcapng")}
    with GatewayProcess() as gateway:
        done = project.pytest("test_resp.py", options=recording(gateway))
        assert done.returncode == 0, done.stdout + done.stderr
    assert project.report["passed"] == [{"test": "test_resp.py/test_second", "request": "CREATE new"}]
    assert project.report["recorded_into"] == ["recordings/test_resp.py/test_second"]
    assert {path: path.read_bytes() for path in before} == before
    done = project.pytest("test_resp.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_misses_are_passed_through_and_not_recorded(project: Project) -> None:
    file = project.directory / "test_sdk.py"
    file.write_text(file.read_text().replace('"sdk"', '"other"'))
    before = len(list(project.directory.rglob("*.pcapng")))
    with GatewayProcess() as gateway:
        options = ("--on-miss", "passthrough", f"--to=s2://127.0.0.1:{gateway.s2_port}")
        done = project.pytest("test_sdk.py", options=options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.report["passed_count"] == 4 and project.report["answered"] == 0
    assert len(list(project.directory.rglob("*.pcapng"))) == before


FORKED = """
import asyncio
import os
import s2_sdk as s2


def test_append_on(resp=None):
    async def main():
        async with s2.S2("any", endpoints=s2.Endpoints.from_env()) as client:
            stream = client.basin("penstock").stream("sdk")
            acknowledged = await stream.append(s2.AppendInput([s2.Record(b"mine")]))
            batch = await stream.read(start=s2.SeqNum(0))
            return acknowledged.start.seq_num, [record.body for record in batch.records]

    assert asyncio.run(main()) == (2, [b"record 0", b"record 1", b"mine"])
"""


def test_a_fork_is_appended_to_and_other_streams_are_as_recorded(project: Project) -> None:
    (project.directory / "test_fork.py").write_text(FORKED)
    done = project.pytest("test_fork.py", "test_resp.py", options=("--fork", "sdk@2"))
    assert done.returncode == 0, done.stdout + done.stderr
    report = project.report
    assert report["forked"] == 2 and report["answered"] >= 6 and not report["never_asked"]


def test_a_fork_serves_pravegas_clients(project: Project) -> None:
    need_pravega()
    words = [
        "mock",
        "recordings",
        "--fork",
        "sdk",
        "--",
        sys.executable,
        "-c",
        "import os; print(dict(os.environ)); input()",
    ]
    with subprocess.Popen(
        [PENSTOCK, *words], cwd=project.directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        environment = process.stdout.readline()
        found = re.search(r"'PRAVEGA_CONTROLLER_URI': 'tcp://127.0.0.1:(\d+)'", environment)
        assert found is not None, environment
        with PravegaClient(int(found[1])) as client:
            client.call("group", "readers", "penstock", "sdk")
            client.call("reader", "one", "readers")
            events = client.call("read", ["one"], 3, 20)
        process.stdin.write("\n")
        process.stdin.close()
        assert process.wait(20) == 0
    assert "record 0" in str(events) and "record 2" in str(events)


def test_exit_codes(project: Project) -> None:
    assert project.mock("--", "bash", "-c", "exit 7").returncode == 7
    assert project.mock("--", "bash", "-c", "kill -9 $$").returncode == 128 + signal.SIGKILL
    assert project.mock("--", "no-such-command").returncode == 127
    assert project.mock("--", "/etc/hostname").returncode == 126
    assert project.mock("--test", "any::other", "--", "true").returncode == 0


def test_sigterm_reaches_the_command(project: Project) -> None:
    command = [
        PENSTOCK,
        "mock",
        "recordings",
        "--",
        "bash",
        "-c",
        "trap 'exit 5' TERM; echo ready; while :; do sleep 0.1; done",
    ]
    with subprocess.Popen(command, cwd=project.directory, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 5


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nothing", "--", "true"), "nothing: there is no such file or directory"),
        (("recordings", "--on-miss", "record", "--", "true"), "--on-miss record needs --to URL"),
        (("recordings", "--to", "s2://127.0.0.1:1", "--", "true"), "--on-miss fail takes no --to URL"),
        (("recordings", "--fork", "sdk@99", "--", "true"), "--fork: penstock/sdk was recorded up to 3, not to 99"),
        (("recordings", "--fork", "nothing", "--", "true"), "--fork: the recording has no records of penstock/nothing"),
        (("recordings", "--fork", "x/y", "--", "true"), "'x/y' is no stream, as in orders@100"),
        (
            ("recordings", "--on-miss", "passthrough", "--to", "gopher://x:1", "--", "true"),
            "is no server: give a URL such as",
        ),
        (("report.json", "--on-miss", "record", "--to", "s2://127.0.0.1:1", "--", "true"), "report.json is a file"),
        (("report.json", "--", "true"), "report.json"),
    ],
)
def test_mistakes_are_told_in_one_line(recorded: Project, arguments: tuple[str, ...], says: str) -> None:
    done = subprocess.run(
        [PENSTOCK, "mock", *arguments], cwd=recorded.directory, capture_output=True, text=True, check=False
    )
    assert done.returncode in (1, 2) and says in " ".join(done.stderr.split()), done.stderr
    assert "Traceback" not in done.stderr
