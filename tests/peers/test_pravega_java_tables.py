"""Key-value tables by Pravega's Java client 0.13.0, unmodified: the gateway answers as Pravega itself does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from support.peers import unique
from support.pravega.java import MAVEN_SECONDS, JavaProgram, running_java
from support.process import CONFIG, running_gateway
from support.real_backs import PravegaStandalone

pytestmark = pytest.mark.timeout(MAVEN_SECONDS + 120)

PROJECT = Path(__file__).parent / "java" / "client"
VERSION = re.compile(r"(?<=@)-?[0-9]+:-?[0-9]+|(?<!\S)[0-9]+:[0-9]+")
BAD_VERSION = "failed io.pravega.client.tables.BadKeyVersionException:"
LARGEST = (1 << 20) - 8192
STORY = [
    ("create SCOPE t 1 2 2", "ok true"),
    ("create SCOPE t 1 2 2", "ok false"),
    ("create SCOPE plain 3 4 0", "ok true"),
    ("create SCOPE _t 1 2 2", "failed java.lang.IllegalArgumentException:"),
    # ---- one key at a time
    ("SCOPE t insert aa/01 one", "ok v1"),
    ("SCOPE t insert aa/01 two", BAD_VERSION),
    ("SCOPE t put aa/01 three v1", "ok v2"),
    ("SCOPE t put aa/01 four v1", BAD_VERSION),
    ("SCOPE t put aa/02 five v1", BAD_VERSION),
    ("SCOPE t put aa/02 six", "ok v3"),
    ("SCOPE t put aa/02 seven", "ok v4"),
    ("SCOPE t get aa/01", "ok aa/01=three@v2"),
    ("SCOPE t get aa/02 bb/01 aa/01 aa/02", "ok aa/02=seven@v4 none aa/01=three@v2 aa/02=seven@v4"),
    ("SCOPE t exists aa/01", "ok true"),
    ("SCOPE t exists bb/01", "ok false"),
    ("SCOPE t remove bb/01", "ok"),
    ("SCOPE t remove bb/01 v1", BAD_VERSION),
    ("SCOPE t remove aa/01 v1", BAD_VERSION),
    ("SCOPE t remove aa/01 v2", "ok"),
    ("SCOPE t get aa/01", "ok none"),
    ("SCOPE t insert aa/01 again", "ok v5"),
    ("SCOPE t put aa/1 short", "failed java.lang.IllegalArgumentException:"),
    # ---- several keys, all or none
    ("SCOPE t insertAll bb/01=1 bb/02=2 bb/03=3", "ok v6 v7 v8"),
    ("SCOPE t insertAll bb/04=4 bb/02=2", BAD_VERSION),
    ("SCOPE t get bb/04", "ok none"),
    ("SCOPE t insertAll bb/04=4 cc/01=1", "failed java.lang.IllegalArgumentException:"),
    ("SCOPE t removeAll bb/03 bb/09", "ok"),
    # ---- iterators, whose pages are smaller than what they find
    ("SCOPE t insertAll ab/01=1 ab/02=2", "ok v9 v10"),
    ("SCOPE t keys 2 all", "ok aa/01 aa/02 ab/01 ab/02 bb/01 bb/02"),
    ("SCOPE t entries 1 prefix a", "ok aa/01=again@v5 aa/02=seven@v4 ab/01=1@v9 ab/02=2@v10"),
    ("SCOPE t keys 9 prefix b", "ok bb/01 bb/02"),
    ("SCOPE t keys 3 range ab bb", "ok ab/01 ab/02 bb/01 bb/02"),
    ("SCOPE t keys 3 range - ab", "ok aa/01 aa/02 ab/01 ab/02"),
    ("SCOPE t keys 3 range ac -", "ok bb/01 bb/02"),
    ("SCOPE t keys 3 range ba bb", "ok bb/01 bb/02"),
    ("SCOPE t keys 3 range zz -", "ok"),
    ("SCOPE t keys 9 primary aa", "ok aa/01 aa/02"),
    ("SCOPE t keys 9 primary zz", "ok"),
    ("SCOPE t keys 9 primaryRange aa 02 -", "ok aa/02"),
    ("SCOPE t keys 9 primaryRange aa - 01", "ok aa/01"),
    ("SCOPE t entries 9 primaryPrefix bb 0", "ok bb/01=1@v6 bb/02=2@v7"),
    ("SCOPE t keys 9 primaryPrefix bb 1", "ok"),
    # ---- several partitions, and no secondary key
    *((f"SCOPE plain insert k{n:03} {n}", f"ok v{n}") for n in range(11, 31)),
    ("SCOPE plain get k030 k011 k999", "ok k030=30@v30 k011=11@v11 none"),
    ("SCOPE plain keys 3 all", "ok " + " ".join(f"k{n:03}" for n in range(11, 31))),
    ("SCOPE plain entries 7 range k015 k017", "ok k015=15@v15 k016=16@v16 k017=17@v17"),
    ("SCOPE plain keys 7 prefix k02", "ok " + " ".join(f"k{n:03}" for n in range(20, 30))),
    (f"SCOPE plain large k000 {LARGEST}", "ok"),
    ("SCOPE plain size k000", f"ok {LARGEST}"),
    (f"SCOPE plain large k000 {LARGEST + 1}", "failed java.lang.IllegalArgumentException:"),
    # ---- the end
    ("list SCOPE", "ok plain t"),
    ("delete SCOPE t", "ok true"),
    ("list SCOPE", "ok plain"),
    ("create SCOPE t 2 2 0", "ok true"),
    ("SCOPE t keys 9 all", "ok"),
    ("delete SCOPE t", "ok true"),
    ("delete SCOPE t", "ok false"),
    ("delete SCOPE plain", "ok true"),
    ("list SCOPE", "ok"),
]


@pytest.fixture(scope="module", params=["gateway", pytest.param("pravega", marks=pytest.mark.peer)])
def java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProgram]:
    """The Java client before the gateway, and before Pravega itself."""
    if request.param == "gateway":
        with running_gateway(CONFIG) as gateway, running(tmp_path_factory, gateway.controller_port) as program:
            yield program
        return
    with PravegaStandalone() as pravega:
        assert pravega.controller is not None
        with running(tmp_path_factory, pravega.controller[1]) as program:
            yield program


def running(tmp_path_factory: pytest.TempPathFactory, port: int) -> AbstractContextManager[JavaProgram]:
    return running_java(PROJECT, "Peer", tmp_path_factory.mktemp("java"), f"tcp://127.0.0.1:{port}")


def test_the_story_of_two_tables(java: JavaProgram) -> None:
    scope = unique("Tables")
    assert java.ask("scope", scope) == ["ok", "true"]
    labels: dict[tuple[str, str], str] = {}
    versions: dict[str, str] = {}
    differences = []
    for question, expected in STORY:
        words = [versions.get(word, word) for word in question.replace("SCOPE", scope).split()]
        table = words[1]

        def label(version: re.Match[str], table: str = table) -> str:
            name = labels.setdefault((table, version[0]), f"v{len(labels) + 1}")
            versions[name] = version[0]
            return name

        answer = java.ask("kvt", *words, seconds=120)
        if answer[0] == "failed":
            answer = answer[:2]
        elif {"list", "keys", "entries"} & {*words[:3]}:
            answer = [answer[0], *sorted(answer[1:])]  # segments are read at the same time
        found = VERSION.sub(label, " ".join(answer))
        if found != expected:
            differences.append((question, expected, found))
    assert differences == []
