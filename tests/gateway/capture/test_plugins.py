"""A protocol of another distribution in captures: shown, redacted, recognized; and plug-ins in general."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.captures import NOW_NS, written
from support.captures.dialogues import CLIENT, SERVER, Said, conversation, events, hear, parts
from support.captures.redaction import redacted

from penstock.capture.dialogue.choosing import dialogue_for, spoken_by
from penstock.capture.dialogue.http.exchanges import http_protocols
from penstock.capture.pcapng import Chunk, Side
from penstock.capture.plugin import layers_over_http, plugins
from penstock.capture.redaction.choice import http_bodies
from penstock.capture.redaction.rules import RedactionRules
from penstock.capture.redaction.unknown import redaction_of
from penstock.wire import plugins as loader

OUTSIDE = Path(__file__).parents[2] / "outside"
SAID: Said = [
    (CLIENT, b"LOGIN hush-hush\nPUT orders first\n"),
    (SERVER, b"OK 7\n"),
    (CLIENT, b"PUT orders card 4111\n"),
]


@pytest.fixture
def distribution(tmp_path: Path) -> Path:
    """A folder that holds the metadata of an installed distribution with two plug-ins."""
    folder = tmp_path / "numbered_lines-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: numbered-lines\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[penstock.captures]\nlines = numbered_lines.capture:PLUGIN\nshouts = numbered_lines.shouts:PLUGIN\n"
    )
    return tmp_path


@pytest.fixture
def installed(distribution: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for folder in (distribution, OUTSIDE):
        monkeypatch.syspath_prepend(str(folder))
    caches = (loader._entries, plugins, layers_over_http, redaction_of, http_protocols, http_bodies)
    for cache in caches:
        cache.cache_clear()
    yield
    monkeypatch.undo()
    for cache in caches:
        cache.cache_clear()


@pytest.mark.usefixtures("installed")
def test_its_conversations_become_messages_and_records() -> None:
    of = conversation("lines")
    told, problems, records = parts(hear(dialogue_for(of), events(of, [*SAID, (SERVER, b"?\n")])))
    assert [(message.layer, message.kind, message.stream) for message in told] == [
        ("lines", "LOGIN", ""),
        ("lines", "PUT", "orders"),
        ("lines", "OK", "orders"),
        ("lines", "PUT", "orders"),
        ("lines", "end", ""),
    ]
    assert [(record.body, record.seq_num) for record in records] == [(b"first", 7), (b"card 4111", None)]
    assert [problem.clause for problem in problems] == ["Numbered Lines, section 1"]


@pytest.mark.usefixtures("installed")
def test_its_bytes_are_recognized_though_they_look_like_a_request_over_http() -> None:
    assert spoken_by(CLIENT, b"PUT orders first\n") == "lines"
    assert spoken_by(CLIENT, b"PUT /orders HTTP/1.1\r\n") == "http"
    of = conversation("", Side.FOREIGN)
    told, problems, _ = parts(hear(dialogue_for(of), events(of, SAID)))
    assert not problems and {message.layer for message in told} == {"lines"}


@pytest.mark.usefixtures("installed")
def test_its_secrets_are_blanked() -> None:
    client, server = redacted(SAID, RedactionRules(patterns=(b"4[0-9]{3}",)), "lines")
    assert client == b"LOGIN *********\nPUT orders first\nPUT orders card ****\n"
    assert server == b"OK 7\n"


@pytest.mark.usefixtures("installed")
def test_what_breaks_it_is_withheld_where_a_token_may_be() -> None:
    client, _ = redacted([(CLIENT, b"LOGGED-IN-AS hush-hush\nLOGIN hush\n")], None, "lines")
    assert b"hush" not in client


@pytest.mark.usefixtures("installed")
def test_one_over_http_has_messages_records_and_secrets() -> None:
    asked = b"POST /shout/hall HTTP/1.1\r\nhost: x\r\nshout-password: hush\r\ncontent-length: 3\r\n\r\nHEY"
    of = conversation("shouts")
    told, problems, (record,) = parts(hear(dialogue_for(of), events(of, [(CLIENT, asked)])))
    assert not problems and [(message.layer, message.kind) for message in told][:2] == [
        ("http", "POST"),
        ("shouts", "shout"),
    ]
    assert (record.stream, record.body) == ("hall", b"HEY")
    client, _ = redacted([(CLIENT, asked)], None, "shouts")
    assert client == asked.replace(b"hush", b"****")


@pytest.mark.usefixtures("installed")
def test_a_token_that_one_over_http_issues_is_blanked() -> None:
    asked = b"POST /shout-tokens HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
    body = b'{"access_token":"hush"}'
    answered = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    _, server = redacted([(CLIENT, asked), (SERVER, answered)], None, "shouts")
    assert server == answered.replace(b"hush", b"****")


def test_commands_show_it(distribution: Path, tmp_path: Path) -> None:
    """In a process of its own, since options of commands are made at the import."""
    of = conversation("lines")
    capture = tmp_path / "lines.pcapng"
    capture.write_bytes(
        written(
            Chunk(each.conversation, each.time_ns + NOW_NS, each.sender, each.offset, each.data)
            if isinstance(each, Chunk)
            else each
            for each in events(of, SAID)
        )
    )
    paths = [str(distribution), str(OUTSIDE), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "show", "--json", "--protocol", "lines", str(capture)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    assert [json.loads(line)["kind"] for line in done.stdout.splitlines()] == ["LOGIN", "PUT", "OK", "PUT", "end"]


def test_no_two_plug_ins_claim_one_layer_but_those_over_http() -> None:
    owners = [layer for plugin in plugins().values() if not plugin.over_http for layer in plugin.layers]
    assert len(owners) == len(set(owners))
