"""The guides for the three uses: every command of each is run, in order, and prints what the guide says."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.peers import need
from support.shipping import ROOT, install_packages
from support.walking import Walk, blocks_of

from penstock.app.config import parse_config


class Guide(NamedTuple):
    """A guide and its expected output.

    `prints`: the output of each block, by a piece of text that no other block has. `file`: the name of its
    configuration. `ends`: a block before which the gateway that was started last is stopped.
    """

    prints: dict[str, list[str]]
    file: str = ""
    ends: str = ""


GUIDES = {
    "sidecar.md": Guide(
        {
            "penstock doctor": ["sidecar.toml is valid", "listeners.s2: 127.0.0.1:", "backs.upstream: ", "accepts"],
            "penstock check": ["upstream: S2 at 127.0.0.1:", "all streams of any basin: to back upstream"],
            "penstock record start": ["recording 1: recording"],
            '"first"': ['"start":{"seq_num":0', "appended 1 record: sequence number 2"],
            "penstock read": ["first\nsecond\nthird\n"],
            "penstock record stop": ["recording 1: stopped", "AppendInput", "APPEND", "3 delivered in B: equal"],
            "/live": ['"live": true', '"ready": true', "penstock_connections_accepted_total{", "listeners.s2"],
            "penstock reload": ['"name": "all-of-it"'],
            "penstock drain": [],
        },
        file="sidecar.toml",
    ),
    "bridge.md": Guide(
        {
            "penstock check": ["S3P 0.2.0 on 127.0.0.1:", "lite: S2 at 127.0.0.1:", "guarantee: exactly once"],
            "penstock append": ["appended 2 records"],
            "read s2://": ["first\nsecond\n"],
            "--side back": ["CREATE", "AppendInput", "2 appended in A, 2 delivered in B: equal"],
            '"third"': ['"start":{"seq_num":2'],
            "read s3p://": ["first\nsecond\nthird\n"],
            "/positions": ['"seq_num": 2', '"record_id"'],
        }
    ),
    "recorder.md": Guide(
        {
            "penstock check": ["is valid", "connections used by route orders", "Redacted:"],
            '"card 4111': ['"start":{"seq_num":0', "appended 1 record: sequence number 2"],
            "penstock read": ["first\ncard 4111 1111 1111 1111\nthird\n"],
            "penstock recordings": ["recording 1: recording"],
            "penstock show": ["AppendInput", "APPEND", "PROTOCOL"],
            "penstock records": ['"body":"first"', '"body":"card ***'],
            "penstock replay": ["3 records appended", "0 answers different"],
            "penstock diff": ["3 appended in A, 3 delivered in B: equal"],
        },
        ends="--data data/candidate",
    ),
    "testing.md": Guide(
        {
            "pip install": [],
            "cat > test_orders.py": [],
            "--on-miss record": ["2 passed", "4 not recorded", "recorded into recordings/test_orders.py/test_first"],
            "mock recordings -- pytest -q test_orders.py\n": [
                "2 passed",
                "4 requests answered from the recording, 0 not recorded, 0 never asked",
            ],
            "mock recordings -- pytest -q test_orders.py::test_second": ["1 passed", "2 requests answered"],
            "--fork orders@1": ["1 passed", "2 by a fork"],
            "cat > test_fixtures.py": ["2 passed"],
            "from penstock.testing": ["200 [", "'PRAVEGA_CONTROLLER_URI'", "'S2_BASIN_ENDPOINT'"],
            "--report report.json": [
                '"request": "GET /v1/streams/orders/records?seq_num=7"',
                '"test": "test_orders.py/test_first"',
            ],
        },
        ends="mock recordings -- pytest -q test_orders.py\n",
    ),
}


MOST_SECONDS = 60.0
"""Processor time of all commands of a guide, so that a reader is through in two minutes on any machine."""


def processor_seconds() -> float:
    """Return the processor time of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The programs of an environment as `make setup` makes it, which has nothing of the tests' own."""
    environment = tmp_path_factory.mktemp("bare") / "env"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    install_packages(environment, "--constraint", ROOT / "requirements.lock", "--editable", ROOT)
    yield environment / "bin"
    shutil.rmtree(environment)


@pytest.mark.peer
@pytest.mark.parametrize("name", GUIDES)
def test_it_works(name: str, tmp_path: Path, programs: Path) -> None:
    guide = GUIDES[name]
    expected, before = dict(guide.prints), processor_seconds()
    with Walk(tmp_path, programs) as walk:
        for block in blocks_of(name):
            if block.language == "toml":
                walk.write(guide.file, block.text)
                continue
            if "nc -w" in block.text:
                need("nc")
            if guide.ends and guide.ends in block.text:
                walk.stop()
            if block.text.startswith("penstock serve"):
                walk.serve(block.text)
                continue
            key = next((key for key in expected if key in block.text), None)
            assert key is not None, f"say in GUIDES what this prints: {block.text}"
            printed = walk.run(block.text)
            for words in expected.pop(key):
                assert words in printed, f"{block.text}\nprinted: {printed}"
    assert not expected, "these blocks are not there any more"
    assert processor_seconds() - before < MOST_SECONDS


@pytest.mark.parametrize("name", GUIDES)
def test_its_configurations_are_valid_and_its_links_lead_somewhere(name: str) -> None:
    docs = Path(__file__).parents[2] / "docs"
    for block in blocks_of(name):
        if block.language == "toml":
            parse_config(block.text)
    targets = [part.partition(")")[0] for part in (docs / name).read_text().split("](")[1:]]
    assert targets
    for target in targets:
        assert (docs / target.partition("#")[0]).exists(), target


DOCS = Path(__file__).parents[2] / "docs"
COMMAND = re.compile(r"(^|\| )penstock ", re.MULTILINE)
TERMINAL = re.compile(r"\b(second|third|fourth|fifth) terminal\b")


def steps(page: Path) -> list[tuple[str, str]]:
    """Return the shell blocks of a page, each with the text between the previous one and it."""
    prose, found = "", []
    parts = re.split(r"^```(\w*)\n", page.read_text(), flags=re.MULTILINE)  # text, language, block, "", text, ...
    for text, language, block in zip(parts[::4], parts[1::4], parts[2::4], strict=False):
        prose += text
        if language == "sh":
            found.append((" ".join(prose.split()), block))
            prose = ""
    return found


WITH_COMMANDS = [page for page in sorted(DOCS.rglob("*.md")) if any(COMMAND.search(block) for _, block in steps(page))]
WALKS = [page for page in WITH_COMMANDS if any(block.startswith("penstock serve") for _, block in steps(page))]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_a_page_says_first_how_its_commands_are_found(page: Path) -> None:
    """A walk says it itself; other pages may refer to the page on installing."""
    first = next(at for at, (_, block) in enumerate(steps(page)) if COMMAND.search(block))
    before = " ".join(prose + block for prose, block in steps(page)[:first]) + steps(page)[first][0]
    said = re.search(r"\bsource \.venv/bin/activate\b", before + steps(page)[first][1])
    assert said or (page not in WALKS and "](install.md#in-a-checkout)" in before)


@pytest.mark.parametrize("page", WALKS, ids=lambda page: page.stem)
def test_a_walk_says_in_which_terminal_it_goes_on(page: Path) -> None:
    """At each gateway that it starts, or right after: that one keeps its terminal."""
    prose, blocks = zip(*steps(page), strict=True)
    for at, block in enumerate(blocks):
        if block.startswith("penstock serve"):
            assert TERMINAL.search(" ".join(prose[at : at + 2])), block
