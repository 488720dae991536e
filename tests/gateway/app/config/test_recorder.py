"""The recorder's table: errors, and the settings made of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.shipping import ROOT

from penstock.app.bootstrap import check_files
from penstock.app.bootstrap.recorder import backs_of_routes, file_settings, redaction_rules, selection_of
from penstock.app.config import ConfigError, RecorderTable, RedactTable, default_config, parse_config
from penstock.app.config.advice import advice
from penstock.app.report import report
from penstock.capture.plugin import plugins
from penstock.capture.redaction.rules import RedactionRules
from penstock.cli.overrides import overridden
from penstock.core.errors import CannotStart
from penstock.recorder.selection import Selection
from penstock.recorder.settings import FileCompression, FileSettings, Sync

BRIDGE = """
[listeners.s2]
[backs.lite]
kind = "s2"
address = "127.0.0.1:1"
[backs.copy]
kind = "s3p"
address = "127.0.0.1:2"
[[routes]]
name = "orders"
stream = "orders"
back = "lite"
mirror = "copy"
[[routes]]
name = "rest"
"""


def problem(table: str) -> str:
    """Return the only problem reported for a `[recorder]` table in an otherwise valid file."""
    with pytest.raises(ConfigError) as refused:
        parse_config(BRIDGE + "[recorder]\n" + table)
    (said,) = refused.value.problems
    return said


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("", "at recorder: missing key `directory`"),
        ("directory = ''", "directory: a directory needs a name"),
        ("directory = 'x'\nlisteners = ['s3p']", "recorder.listeners: s3p is unknown; there is s2"),
        ("directory = 'x'\nlisteners = ['s2.inner']", "recorder.listeners: s2.inner is unknown"),
        ("directory = 'x'\nbacks = ['light']", "recorder.backs: light is unknown; did you mean lite?"),
        ("directory = 'x'\nbacks = ['embedded']", "recorder.backs: embedded is unknown"),
        ("directory = 'x'\nroutes = ['order']", "recorder.routes: order is unknown; did you mean orders?"),
        ("directory = 'x'\nroutes = ['o*', 'x*']", "recorder.routes: x* is unknown"),
        ("directory = 'x'\nprotocols = ['http']", "at recorder.protocols[0]: invalid enum value 'http'"),
        ("directory = 'x'\nqueue_bytes = 1", "at recorder.queue_bytes"),
        ("directory = 'x'\ncompress = 'gzip'", "at recorder.compress: expected one of 'none', 'zstd', got 'gzip'"),
        (
            "directory = 'x'\n[recorder.redact]\npatterns = ['fine', 'card=(\\d{16}']",
            "at recorder.redact: patterns[1]: 'card=(\\\\d{16}' is not a regular expression: missing ), unterminated "
            "subpattern at character 6",
        ),
        (
            "directory = 'x'\n[recorder.redact]\npatterns = ['key(?!s)=.*']",
            "patterns[0]: 'key(?!s)=.*' is a regular expression that this gateway does not accept: lookahead (?! at "
            "character 4 cannot be matched in linear time",
        ),
        ("directory = 'x'\n[recorder.redact]\nheader = []", "unknown key; did you mean headers?"),
    ],
)
def test_what_is_refused(table: str, said: str) -> None:
    assert said.lower() in problem(table).lower()


def test_defaults_are_those_of_the_parts() -> None:
    table = RecorderTable(directory="/recordings")
    assert file_settings(table) == FileSettings(directory=Path("/recordings"))
    assert redaction_rules(RedactTable()) == RedactionRules()
    assert selection_of(table) == Selection()
    assert table.start and not table.redact.weakened


def test_what_the_file_says_is_done() -> None:
    config = parse_config(
        BRIDGE
        + """
[recorder]
directory = "relative"
start = false
listeners = ["s2"]
backs = ["lite"]
protocols = ["s2"]
routes = ["ord*"]
streams = ["penstock/**"]
rotate_bytes = 0
rotate_seconds = 60
keep_files = 5
keep_bytes = 0
compress = "zstd"
fsync = "interval"
fsync_seconds = 1
queue_bytes = 1048576
[recorder.redact]
headers = ["X-Key"]
parameters = ["sig"]
tokens = false
record_headers = ["geheim\u00e4"]
patterns = ["\\\\d{16}"]
"""
    )
    table = config.recorder
    assert table is not None and not table.start
    assert selection_of(table) == Selection(
        listeners=("s2",), backs=("lite",), protocols=("s2",), routes=("ord*",), streams=("penstock/**",)
    )
    assert file_settings(table) == FileSettings(
        directory=Path("relative").absolute(),
        rotate_bytes=None,
        rotate_seconds=60,
        keep_files=5,
        keep_bytes=None,
        compress=FileCompression.ZSTD,
        fsync=Sync.INTERVAL,
        fsync_seconds=1,
        queue_bytes=1048576,
    )
    assert redaction_rules(table.redact) == RedactionRules(
        headers=("X-Key",),
        parameters=("sig",),
        tokens=False,
        record_headers=("geheim\u00e4".encode(),),
        patterns=(rb"\d{16}",),
    )
    assert backs_of_routes(config) == {"orders": ("lite", "copy"), "rest": ()}


def test_nothing_blanked_needs_no_looking() -> None:
    assert redaction_rules(RedactTable(headers=(), parameters=(), tokens=False)) is None


def test_the_flag_records_from_the_start_what_the_file_selects() -> None:
    assert overridden(default_config(), record="/r").recorder == RecorderTable(directory="/r")
    config = parse_config(BRIDGE + "[recorder]\ndirectory = 'x'\nstart = false\nbacks = ['lite']")
    assert overridden(config, record="/r").recorder == RecorderTable(directory="/r", backs=("lite",))
    with pytest.raises(ValueError, match="--record: directory: a directory needs a name"):
        overridden(config, record="")


def test_a_directory_that_cannot_be_is_found_out_before_anything_runs() -> None:
    config = overridden(default_config(), record="/dev/null/recordings")
    with pytest.raises(CannotStart, match=r"recorder\.directory: /dev/null is not a directory"):
        check_files(config)


def said_by_check(table: str) -> str:
    return " ".join(report(parse_config(BRIDGE + table), "x.toml").split())


def test_check_says_what_is_recorded_and_what_is_blanked() -> None:
    assert "Recorder" not in said_by_check("")
    said = said_by_check("[recorder]\ndirectory = '/r'")
    assert "From the start, all connections, of clients and with servers: plaintext, as pcapng files in /r" in said
    assert "A file ends at 256 MiB; the newest are kept, up to 16384 MiB" in said
    assert "Redacted: the values of headers authorization, proxy-authorization" in said
    assert "tokens inside messages" in said
    said = said_by_check(
        "[recorder]\ndirectory = '/r'\nlisteners = ['s2']\nbacks = ['lite']\nroutes = ['o*']\nrotate_seconds = 60\n"
        "keep_files = 3\ncompress = 'zstd'\n[recorder.redact]\nheaders = []\nparameters = []\ntokens = false"
    )
    assert "connections of listener s2 or back lite, used by route o* (or with its backs): plaintext" in said
    assert "at 256 MiB or after 60 s; the newest are kept, up to 3 files and 16384 MiB" in said
    assert "closed files are compressed (zstd)" in said
    assert "Redacted: NOTHING" in said
    said = said_by_check("[recorder]\ndirectory = '/r'\n[recorder.redact]\npatterns = ['card']\ntokens = false")
    assert "Redacted in s2: headers: values in heads and trailers; parameters: values in URLs; patterns: heads" in said
    assert "withheld: bodies in other content codings" in said
    assert "in the response that issues it" not in said
    said = said_by_check("[recorder]\ndirectory = '/r'\nstart = false")
    assert "Only after `penstock record start`" in said


@pytest.mark.parametrize("weaker", ["tokens = false", "headers = ['cookie']", "parameters = []"])
@pytest.mark.parametrize(("mode", "insecure"), [(0o700, False), (0o755, True)])
def test_secrets_in_a_directory_of_others(tmp_path: Path, weaker: str, mode: int, insecure: bool) -> None:
    tmp_path.chmod(mode)
    config = parse_config(BRIDGE + f"[recorder]\ndirectory = '{tmp_path}'\n[recorder.redact]\n{weaker}")
    (remark,) = [one for one in advice(config) if one.text.startswith("recorder: ")]
    assert remark.insecure is insecure
    assert f"secrets are written to {tmp_path}" in remark.text


def test_more_redaction_is_no_matter(tmp_path: Path) -> None:
    headers = [*RedactTable().headers, "x-key"]
    text = f"[recorder]\ndirectory = '{tmp_path}'\n[recorder.redact]\nheaders = {headers}"
    assert not [one for one in advice(parse_config(BRIDGE + text)) if one.text.startswith("recorder: ")]


def test_the_page_on_redaction_says_the_same_of_every_protocol() -> None:
    page = (ROOT / "docs/redaction.md").read_text()
    for protocol in ("s2", "durable", "kafka", "s3p", "segment", "controller"):
        [row] = [line for line in page.splitlines() if line.startswith(f"| {protocol} |")]
        effects = plugins()[protocol].redacts
        assert {text for text in row.strip("| ").split(" | ")[1:] if text != "nothing"} == set(effects.values())
