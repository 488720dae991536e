"""The command line: its output, and that user mistakes are one clear line."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.app.config import Config, default_config
from penstock.cli import main
from penstock.cli.cut_over import _in_words as in_words
from penstock.cli.overrides import overridden
from penstock.store.schema import connect_writer, prepare_file

ROOT = Path(__file__).parents[3]


SEGMENT = "[listeners.segment]\n"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def config_file(directory: Path, text: str) -> Path:
    path = directory / "gateway.toml"
    path.write_text(text)
    return path


def test_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.output.startswith("penstock 0.")


def test_check_explains_what_is_shipped() -> None:
    result = run("check", "--config", ROOT / "config" / "gateway.toml")
    assert result.exit_code == 0
    addresses = ("127.0.0.1:8080", "127.0.0.1:7500", "127.0.0.1:12345", "127.0.0.1:9090")
    for words in (*addresses, "Basin penstock", "kept for 7 days", "its own origin only"):
        assert words in result.stdout
    assert "INSECURE" not in result.stdout


CONFIGURATIONS = sorted({*(ROOT / "config").glob("*.toml")} - {ROOT / "config" / "pipeline.toml"})


@pytest.mark.parametrize("file", CONFIGURATIONS, ids=lambda file: file.stem)
def test_each_shipped_configuration_runs_as_it_is(file: Path) -> None:
    result = run("check", "--config", file)
    assert (result.exit_code, result.output.startswith(f"{file} is valid.")) == (0, True), result.output


ANONYMOUS = "anonymous = true"
DELEGATING = "[listeners.segment]\ndelegation_tokens = true\n"


@pytest.mark.parametrize(
    ("listeners", "said", "insecure"),
    [
        (f"[listeners.s2]\nbind = '0.0.0.0:1'\n{ANONYMOUS}", "0.0.0.0:1 can read, write and delete everything", True),
        (f"[listeners.s2]\nbind = '[::]:1'\n{ANONYMOUS}", "every client that reaches [::]:1 can", True),
        ("[listeners.s2]\nbind = 'example.org:1'\nauth_tokens = ['t']", "cross the network", True),
        (f"[listeners.s3p]\nbind = '0.0.0.0:1'\n{ANONYMOUS}", "delete every stream of basin penstock", True),
        ("[listeners.s2]\ncors_origins = ['*']", "every web page in a browser that reaches", True),
        ("[listeners.s2]\ncors_origins = ['*']\nauth_tokens = ['t']", "any web page may use it, with a token", False),
        ("[listeners.s2]\nhosts = ['*']", "pages can reach it by DNS rebinding", True),
        ("[listeners.s2]\ndefault_basin = 'not-there'", "listeners.s2.default_basin: basin not-there is not in", False),
        ("[listeners.s3p]\nbasin = 'not-there'", "listeners.s3p.basin: basin not-there is not in", False),
        (f"[listeners.segment]\nbind = '0.0.0.0:1'\n{ANONYMOUS}", "delete everything, as anonymous = true says", True),
        (DELEGATING + "bind = '0.0.0.0:1'", "passwords and tokens cross the network to 0.0.0.0:1 in clear text", True),
        (
            SEGMENT + f"[listeners.controller]\nbind = '[::]:1'\n{ANONYMOUS}",
            "listeners.controller: every client that reaches [::]:1",
            True,
        ),
        ("[listeners.segment]\nbasin = 'not-there'", "listeners.segment.basin: basin not-there is not in", False),
    ],
)
def test_check_says_what_to_mind(tmp_path: Path, listeners: str, said: str, insecure: bool) -> None:
    result = run("check", "--config", config_file(tmp_path, listeners))
    assert result.exit_code == 0
    attention = " ".join(result.stdout.partition("Attention")[2].split())
    assert said in attention
    assert ("INSECURE" in attention) is insecure


KAFKA = "[listeners.kafka]\nbasin = 'not-there'\n[store]\ndirectory = 'data'\n"
OF_KAFKA = "[[routes]]\nname = 'kafka'\nlisteners = ['kafka']\n"
ELSEWHERE = "back = 'far'\n[backs.far]\nkind = 's2'\naddress = '127.0.0.1:1'\n"


def test_check_refuses_a_kafka_listener_whose_basin_does_not_exist(tmp_path: Path) -> None:
    """Its clients cannot create one: they would get an error for each request."""
    for routes in ("", OF_KAFKA, OF_KAFKA + "basin = 'another-one'\n" + ELSEWHERE):
        result = run("check", "--config", config_file(tmp_path, KAFKA + routes))
        assert result.exit_code == 2
        assert "listeners.kafka.basin: basin not-there does not exist" in result.stderr
    for more in (OF_KAFKA + ELSEWHERE, "[[store.basins]]\nname = 'not-there'\n"):
        assert run("check", "--config", config_file(tmp_path, KAFKA + more)).exit_code == 0
    (tmp_path / "data").mkdir()
    prepare_file(tmp_path / "data")
    with closing(connect_writer(tmp_path / "data")) as db:
        db.execute(
            "INSERT INTO basins (name, config, created_at, requested_config) VALUES ('not-there', '{}', 0, '{}')"
        )
    assert run("check", "--config", config_file(tmp_path, KAFKA)).exit_code == 0, "the store has it"


@pytest.mark.parametrize("command", ["check", "serve"])
@pytest.mark.parametrize(
    ("text", "where", "ways"),
    [
        ("[listeners.s2]\nbind = '0.0.0.0:1'", "listeners.s2", "[access] or auth_tokens"),
        ("[[listeners.s2]]\nname = 'a'\nbind = 'example.org:1'", "listeners.s2.a", "tls_client_ca"),
        ("[listeners.s3p]\nbind = '[::]:1'", "listeners.s3p", "routes that are all for identities"),
        ("[listeners.segment]\nbind = '0.0.0.0:1'", "listeners.segment", "delegation_tokens"),
        (SEGMENT + "[listeners.controller]\nbind = '0.0.0.0:1'", "listeners.controller", "delegation_tokens"),
        ("[listeners.s2]\n[management]\nbind = '0.0.0.0:1'", "management", "auth_tokens"),
        ("[listeners.s3p]\nbind = '[::]:1'\n[[routes]]\nname = 'all'", "listeners.s3p", "anonymous = true"),
    ],
)
def test_what_is_open_by_mistake_does_not_start(tmp_path: Path, command: str, text: str, where: str, ways: str) -> None:
    result = run(command, "--config", config_file(tmp_path, text))
    assert result.exit_code == 2
    assert f"Error: {where}: other machines reach" in result.stderr
    assert ways in result.stderr
    assert "anonymous = true" in result.stderr


def test_a_flag_that_opens_needs_another() -> None:
    result = run("serve", "--s2", "0.0.0.0:1")
    assert result.exit_code == 2
    assert "listeners.s2: other machines reach 0.0.0.0:1" in result.stderr
    assert "--anonymous" in result.stderr


GUARDED_S3P = """
[listeners.s3p]
bind = "0.0.0.0:1"
[[identities]]
name = "here"
addresses = ["10.0.0.0/8"]
[[routes]]
name = "all"
identity = ["here"]
"""


@pytest.mark.parametrize(
    "text",
    [
        "[listeners.s2]\nbind = '0.0.0.0:1'\n[access]",
        "[listeners.s2]\nbind = '0.0.0.0:1'\nauth_tokens = ['t']",
        DELEGATING + "bind = '0.0.0.0:1'\n[listeners.controller]\nbind = '0.0.0.0:2'",
        GUARDED_S3P,
    ],
)
def test_what_proves_its_clients_may_be_reached(tmp_path: Path, text: str) -> None:
    assert run("check", "--config", config_file(tmp_path, text)).exit_code == 0


def test_check_is_content_with_a_guarded_listener(tmp_path: Path) -> None:
    text = "[listeners.s2]\nbind = '127.0.0.1:1'\nauth_tokens = ['t']"
    assert "Attention" not in run("check", "--config", config_file(tmp_path, text)).stdout


@pytest.mark.parametrize("command", ["check", "serve"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[listeners.s2]\nbnid = 'x'", "at listeners.s2.bnid: unknown key; did you mean bind?"),
        ("[listeners.s2]\ntls_certificate = '/nowhere.pem'\ntls_key = '/nowhere.key'", "No such file"),
        ("[listeners.s2]\n[store]\ndirectory = '/dev/null/data'", "/dev/null is not a directory"),
    ],
)
def test_a_bad_configuration_is_one_line_on_stderr(tmp_path: Path, command: str, text: str, said: str) -> None:
    result = run(command, "--config", config_file(tmp_path, text))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--s2", "8080"), "--s2: expected HOST:PORT"),
        (
            tuple(f"--{kind}=off" for kind in ("durable", "kafka", "s2", "s3p", "segment", "controller")),
            "there is nothing to run",
        ),
        (("--segment", "off"), "[listeners.controller] needs [listeners.segment]"),
        (("--segment", "12345"), "--segment: expected HOST:PORT"),
        (("--controller", "12345"), "--controller: expected HOST:PORT"),
        (("--management", "9600"), "--management: expected HOST:PORT"),
        (("--config", "absent.toml"), "absent.toml: cannot be read"),
    ],
)
def test_a_bad_flag_is_one_line_on_stderr(flags: tuple[str, ...], said: str) -> None:
    result = run("serve", *flags)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_flags_win_over_the_file() -> None:
    listeners = {"s2": "[::1]:0", "s3p": "off", "segment": "[::1]:1", "controller": "off"}
    config = overridden(default_config(), **listeners, data="/elsewhere", log_level="debug")
    assert [one.bind for one in config.listeners.s2] == ["[::1]:0"]
    assert config.listeners.s3p == ()
    assert [one.bind for one in config.listeners.segment] == ["[::1]:1"]
    assert config.listeners.controller == ()
    assert config.store.directory == "/elsewhere"
    assert config.log.level == "debug"
    assert overridden(default_config()) == default_config()
    assert not overridden(default_config(), management="off").management.enabled
    assert overridden(default_config(), management="[::1]:0").management.bind == "[::1]:0"


def test_a_flag_switches_a_listener_on() -> None:
    without = overridden(default_config(), s3p="off")
    config: Config = overridden(without, s3p="127.0.0.1:0")
    assert [one.bind for one in config.listeners.s3p] == ["127.0.0.1:0"]


def test_a_flag_switches_all_other_listeners_off() -> None:
    config = overridden(default_config(), s2="127.0.0.1:0", no_others=True)
    assert [label for label, _ in config.listeners.labelled()] == ["s2"]
    assert not config.management.enabled
    config = overridden(default_config(), s2="127.0.0.1:0", management="127.0.0.1:0", no_others=True)
    assert config.management.enabled


def test_the_environment_says_whom_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_MANAGEMENT", "127.0.0.1:2")
    told = run("connections")
    assert told.exit_code == 1 and "no answer from 127.0.0.1:2" in told.output
    assert "PENSTOCK_MANAGEMENT_TOKEN" in run("connections", "--help").output


@pytest.mark.parametrize("address", ["http://127.0.0.1:2", "http://127.0.0.1:2/"])
def test_the_management_address_of_the_banner_is_taken(address: str) -> None:
    told = run("connections", "--management", address)
    assert told.exit_code == 1 and f"no answer from {address}: Connection refused" in told.output


def test_a_misspelled_command_or_option_is_suggested() -> None:
    for arguments, name in ((["servee"], "serve"), (["pipeline", "rn"], "run"), (["token", "isue"], "issue")):
        told = run(*arguments)
        assert told.exit_code == 2 and f"No such command '{arguments[-1]}'. Did you mean '{name}'?" in told.output
    told = run("serve", "--confg", "x")
    assert told.exit_code == 2 and "No such option '--confg'. Did you mean '--config'?" in told.output


def test_why_a_cut_over_was_not_done_is_told_as_text() -> None:
    """Names of streams are its clients': no lines of their own, and no words to the terminal."""
    sides = {"swapped": False, "primary": "old", "secondary": "new", "held_ms": 0}
    told = in_words("all", {**sides, "reasons": ["stream penstock/a\n  - forged\x1b[2J: it differs"]})
    assert told[1:] == ["  - stream penstock/a\\n  - forged\\x1b[2J: it differs"]
