"""Every command in the README and the guide is run, in order, against a real gateway."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from support.peers import need
from support.process import LISTENERS, GatewayProcess

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 60.0

# What each block prints, by a piece of the block that no other block has. A block that is not listed fails.
EXPECTED = {
    "README.md": {
        '{"body":"first"}': ['"start":{"seq_num":0', '"end":{"seq_num":2'],
        "curl -N": ["first", "second"],
        "penstock read": ["first\nsecond\n"],
        "pravega_client": [],
        "penstock append": ['"seq_num":2', '"body":"third"', '"body":"fourth"'],
        "curl -i": ["stream-next-offset: 0000000000000004_0000000000000000", "firstsecondthirdfourth"],
        "penstock check": ["is valid", "S3P 0.2.0 on 127.0.0.1:", "S2 at 127.0.0.1:", "an acknowledgement"],
    },
    "docs/guide.md": {
        "from s2_sdk": ["on disk up to 2", "[b'hello', b'world']"],
        "import pravega_client": ["on disk", "[b'hello', b'world']"],
        "from-pravega/records": ['"body":"hello"', '"body":"world"'],
        "curl -N": ["from the guide"],
        "my-first-basin": ['"name":"my-first-basin"', '"name":"orders"', '"has_more":false'],
        "AAEC/w==": ['"body":"AAEC/w=="'],
        "penstock decode": ["'CREATE' (6 bytes)", "segment: name = 'a\\x00é😀'"],
    },
    "CONTRIBUTING.md": {"-m pytest": ["passed"]},
    "docs/protocols/durable.md": {
        "curl -X PUT": ["[]", '[{"id": 1},{"id": 2}]', "event: data", '"upToDate":true'],
        "durable_streams": ["[{'id': 1}, {'id': 2}, {'id': 3}]"],
    },
    "docs/protocols/kafka.md": {
        "confluent_kafka": ["orders 0 0 b'eu' b'first'", "orders 0 1 b'eu' b'second'"],
        "from kafka": ["0 b'eu' b'first'", "1 b'eu' b'second'"],
        "curl": ['"body":"first"', '"kafka-key","eu"'],
        "consumer.subscribe": ["0 b'first'", "1 b'second'"],
        "group.protocol": ["0 b'first'", "1 b'second'"],
        "transactional.id": ["copied b'first'", "copied b'second'"],
    },
    "docs/streams.md": {
        "printf": ["first\nsecond\n"],
        "penstock streams": ["penstock/orders\n", "third\n"],
        "--from -1\n": ["second\n0 66 69 72 73 74\nfirst\nsecond\n"],
        "penstock trim": [],
        '"fourth"': ['"seq_num":2,', '"body":"fourth","headers":[{"name":"type","value":"text/plain"}]'],
        "--match-seq-num": ['"start":{"seq_num":4'],
    },
    "docs/protocols/segment.md": {"create_byte_stream": ["read b'456' of 10"]},
}
LONG = ("docs/streams.md", "docs/protocols/kafka.md", "docs/protocols/durable.md")
"""They start many programs, so `make test` leaves them to `make test-all`."""
SET_UP = {"docs/guide.md": "hello"}
"""A stream that a document takes to be there."""
NOT_HERE = re.compile(r"make (serve|test|pipeline)\b.*\n")
"""`make serve` has a test of its own, and so has what `make pipeline` runs; `make test` is what runs this."""


class Block(NamedTuple):
    language: str
    text: str


def blocks(document: str) -> list[Block]:
    """The document's commands, in order."""
    text = (ROOT / document).read_text()
    found = [Block(*match) for match in re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL)]
    return [block for block in found if not NOT_HERE.fullmatch(block.text)]


def with_ports(text: str, gateway: GatewayProcess) -> str:
    """The text as it would stand there if the gateway listened on the usual ports."""
    text = text.replace(":8080", f":{gateway.s2_port}").replace(":9090", f":{gateway.controller_port}")
    text = text.replace(":4437", f":{gateway.durable_port}").replace(":9092", f":{gateway.kafka_port}")
    return text.replace(":7500", f":{gateway.s3p_port}")


def banner_commands(banner: str) -> list[str]:
    """The commands in a banner, each on one line."""
    return re.findall(r"^  ((?:curl|penstock|python3).*)", re.sub(r"\\\n *", "", banner), re.MULTILINE)


@pytest.fixture(autouse=True)
def usual_server(fresh_gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that a command names without a server are at this gateway, too."""
    monkeypatch.setenv("PENSTOCK_SERVER", f"s2://127.0.0.1:{fresh_gateway.s2_port}")


def command(block: Block) -> list[str]:
    """Return the command that runs the block; skips the test if a program or module that it uses is not installed."""
    for module in ("s2_sdk", "pravega_client", "durable_streams", "confluent_kafka", "kafka"):
        if re.search(rf"\b(import|from) {module}\b", block.text):
            pytest.importorskip(module)
    if block.language == "python":
        return [sys.executable, "-c", block.text]
    for program in ("bash", "curl", "nc"):
        if re.search(rf"\b{program} ", block.text + " bash "):
            need(program)
    return ["bash", "-e", "-o", "pipefail", "-c", block.text]


def output(arguments: list[str], wanted: list[str]) -> str:
    """Run a command and return its output, until it ends or has printed all that is wanted: some follow a stream for
    ever.
    """
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment = {name: value for name, value in environment.items() if not name.lower().endswith("_proxy")}
    process = subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    printed = b""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with process, selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline and selector.select(deadline - time.monotonic()):
            piece = os.read(process.stdout.fileno(), 65_536)
            printed += piece
            if not piece or all(one.encode() in printed for one in wanted):
                break
        if not wanted:
            assert process.wait(PATIENCE_SECONDS) == 0, arguments[-1]
        process.terminate()
        complaints = process.stderr.read().decode()
    text = printed.decode()
    for one in wanted:
        assert one in text, f"{arguments[-1]}\nprinted: {text}\ncomplained: {complaints}"
    return text


@pytest.mark.parametrize(
    "document",
    [pytest.param(document, marks=pytest.mark.slow) if document in LONG else document for document in EXPECTED],
)
@pytest.mark.peer
def test_the_commands_work(document: str, fresh_gateway: GatewayProcess) -> None:
    expected = dict(EXPECTED[document])
    if stream := SET_UP.get(document):
        url = f"{fresh_gateway.s2_url}/v1/streams/{stream}/records"
        record = '{"records":[{"body":"from the guide"}]}'
        arguments = ["curl", url, "-H", "s2-basin: penstock", "-H", "content-type: application/json", "-d", record]
        need("curl")
        output(arguments, ["seq_num"])
    for block in blocks(document):
        key = next((key for key in expected if key in block.text), None)
        assert key is not None, f"say in EXPECTED what this prints, or that it was printed already: {block.text}"
        try:
            output(command(Block(block.language, with_ports(block.text, fresh_gateway))), expected.pop(key))
        except AssertionError as error:
            raise AssertionError(f"{error}\nthe gateway's log:\n{fresh_gateway.log_tail()}") from None
    assert not expected, "these blocks are not there any more"


@pytest.mark.peer
def test_the_banner_works(fresh_gateway: GatewayProcess) -> None:
    """The banner has the ports that are really bound; its commands are the README's."""
    commands = banner_commands(fresh_gateway.banner())
    assert len(commands) == 5
    wanted = [*list(EXPECTED["README.md"].values())[:4], ["firstsecondthird"]]
    for text, words in zip(commands, wanted, strict=True):
        output(command(Block("sh", text)), words)


def test_the_readme_and_the_banner_show_the_same(fresh_gateway: GatewayProcess) -> None:
    def words(text: str) -> list[str]:
        return re.sub(r"\\\n", " ", text).split()

    commands = banner_commands(fresh_gateway.banner())
    shown = [words(with_ports(block.text, fresh_gateway)) for block in blocks("README.md")]
    assert [words(text) for text in commands[:4]] == shown[:4]


@pytest.mark.skipif(not os.environ.get("CI"), reason="takes a minute: set CI=true to set the gateway up from nothing")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_make_serve_on_a_fresh_clone(tmp_path: Path) -> None:
    """A copy of what is committed, and nothing else: `make serve` sets it up, and it answers."""
    for program in ("git", "make"):
        need(program)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", tmp_path], input=archive, check=True)
    flags = " ".join(f"--{listener} 127.0.0.1:0" for listener in (*LISTENERS, "management"))
    arguments = f"ARGS=--config config/gateway.toml {flags} --data {tmp_path / 'data'}"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            ["make", "serve", f"PYTHON={sys.executable}", arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdout is not None
    with process:
        try:
            banner = ""
            for line in process.stdout:
                banner += line.decode()
                if "flush()" in banner:
                    break
            assert "flush()" in banner, (tmp_path / "log").read_text()
            append, _follow, _read, _pravega = banner_commands(banner)
            output(command(Block("sh", append)), ['"end":{"seq_num":2'])
        finally:
            os.killpg(process.pid, 15)
