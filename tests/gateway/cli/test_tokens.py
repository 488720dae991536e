"""`penstock token`: its output, its file, and its errors."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli import main
from penstock.routing.access.passwords import check_hash
from penstock.routing.access.token_file import parse_token


def run(directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["token", "--file", str(directory / "tokens"), *arguments])


def test_a_token_alone_is_on_standard_output(tmp_path: Path) -> None:
    done = run(tmp_path, "issue", "a", "--read")
    assert done.exit_code == 0
    assert parse_token(done.stdout.strip()) is not None
    assert "access token a is valid until it is revoked; it is not shown again" in done.stderr


def test_what_flags_mean(tmp_path: Path) -> None:
    flags = ("--basin", "the-basin", "--stream-prefix", "a/", "--auto-prefix", "--read", "--append", "--op", "fence")
    flags += ("--group-prefix", "g-", "--transactional-id", "t")
    said = json.loads(run(tmp_path, "issue", "a", *flags, "--expires", "2d", "--json").stdout)
    token = said.pop("access_token")
    assert parse_token(token) is not None
    ends = datetime.fromisoformat(said.pop("expires_at"))
    assert abs(ends - datetime.now(UTC) - timedelta(days=2)) < timedelta(minutes=5)
    assert said == {
        "id": "a",
        "auto_prefix_streams": True,
        "scope": {
            "basins": {"exact": "the-basin"},
            "streams": {"prefix": "a/"},
            "op_groups": {"stream": {"read": True, "write": False}},
            "ops": ["append", "fence"],
            "groups": {"prefix": "g-"},
            "transactional_ids": {"exact": "t"},
        },
    }


def test_who_manages_some_streams_changes_no_basin(tmp_path: Path) -> None:
    run(tmp_path, "issue", "some", "--manage", "--stream-prefix", "t/")
    run(tmp_path, "issue", "whole", "--manage")
    some, whole = (set(line.split()[-1].split(",")) for line in run(tmp_path, "list").stdout.splitlines())
    assert whole - some == {"delete-basin", "reconfigure-basin"}
    assert {"create-basin", "create-stream", "delete-stream", "reconfigure-stream"} <= some


def test_list_and_revoke(tmp_path: Path) -> None:
    for name in ("a/1", "a/2", "b"):
        assert run(tmp_path, "issue", name, "--admin", "--expires", "2999-01-01T00:00Z").exit_code == 0
    listed = run(tmp_path, "list", "--prefix", "a/").stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["a/1", "a/2"]
    assert listed[0].endswith("  everything  until 2999-01-01T00:00:00Z")
    assert run(tmp_path, "revoke", "a/1").exit_code == 0
    assert [json.loads(line)["id"] for line in run(tmp_path, "list", "--json").stdout.splitlines()] == ["a/2", "b"]


def test_names_that_others_have_given_are_told_as_text(tmp_path: Path) -> None:
    """The names that clients give to tokens cannot add lines or send control sequences to the terminal."""
    run(tmp_path, "issue", "a\nb  everything\x1b[2J", "--stream", "\x07", "--read")
    done = run(tmp_path, "list")
    (line,) = done.stdout.splitlines()
    assert line.startswith("a\\nb  everything\\x1b[2J  ") and "streams \\x07" in line


def test_that_there_are_none_is_said(tmp_path: Path) -> None:
    run(tmp_path, "issue", "one", "--read")
    run(tmp_path, "revoke", "one")
    listed = run(tmp_path, "list")
    assert (listed.exit_code, listed.stdout, listed.stderr) == (0, "", "there are no access tokens\n")
    assert "no access tokens whose ids begin with a/" in run(tmp_path, "list", "--prefix", "a/").stderr
    assert run(tmp_path, "list", "--json").stdout == ""


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("issue", "a"), "give at least one of"),
        (("issue", "a", "--read", "--basin", "b", "--basin-prefix", "b"), "cannot be combined"),
        (("issue", "a", "--read", "--auto-prefix"), "--auto-prefix needs --stream-prefix"),
        (("issue", "a", "--read", "--expires", "soon"), "neither a lifetime such as 30d"),
        (("issue", "a", "--read", "--expires", "2030-01-01T00:00"), "has no time zone"),
        (("issue", "a", "--read", "--expires", "999999w"), "outside the years 1 to 9999"),
        (("issue", "a", "--read", "--expires", "9999-12-31T23:59:59-01:00"), "outside the years 1 to 9999"),
        (("issue", "a", "--op", "fly"), "'fly' is not one of"),
        (("issue", "a", "--op", "delete-basin", "--stream-prefix", "t/"), "applies to all streams of a basin"),
        (("issue", "x" * 97, "--read"), "1 to 96 bytes"),
        (("revoke", "a"), "there is no access token a"),
    ],
)
def test_what_is_refused(tmp_path: Path, arguments: tuple[str, ...], why: str) -> None:
    run(tmp_path, "issue", "another", "--read")
    before = run(tmp_path, "list").stdout
    done = run(tmp_path, *arguments)
    assert done.exit_code != 0
    assert why in " ".join(done.stderr.split())
    assert run(tmp_path, "list").stdout == before


def test_a_configuration_says_where_they_are(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(f"[listeners.s2]\n[store]\ndirectory = '{tmp_path}/data'\n")
    arguments = ["token", "--config", str(config), "issue", "a", "--read"]
    refused = CliRunner().invoke(main, arguments)
    assert "has no [access]" in refused.stderr
    config.write_text(config.read_text() + "[access]\n")
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert (tmp_path / "data" / "access.sqlite3").exists()


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("no database" * 100)
    assert "cannot be used" in run(tmp_path, "list").stderr


def test_a_password_is_asked_for(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["token", "password"], input="secret\nsecret\n")
    assert done.exit_code == 0
    check_hash(done.stdout.splitlines()[-1])
    assert "secret" not in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("arguments", [("list",), ("list", "--json"), ("revoke", "a")], ids=" ".join)
def test_only_issuing_makes_a_file(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    place = tmp_path / "not" / "there"
    done = run(place, *arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"Error: there are no access tokens: {place / 'tokens'} does not exist\n"
    assert not place.parent.exists()
    assert f"created {place / 'tokens'}, a new file of access tokens" in run(place, "issue", "a", "--read").stderr
    assert run(place, "list").exit_code == 0
    assert "created" not in run(place, "issue", "b", "--read").stderr


def test_the_file_is_where_the_configuration_says_wherever_the_command_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    elsewhere.mkdir()
    here.mkdir()
    (elsewhere / "g.toml").write_text('[listeners.s2]\n[access]\n[store]\ndirectory = "./data"\n')
    monkeypatch.chdir(here)
    tokens = ["token", "--config", "../elsewhere/g.toml"]
    assert CliRunner().invoke(main, [*tokens, "issue", "a", "--read"]).exit_code == 0
    assert (elsewhere / "data" / "access.sqlite3").exists() and not list(here.iterdir())
    monkeypatch.chdir(elsewhere)
    assert "a" in CliRunner().invoke(main, ["token", "--config", "g.toml", "list"]).stdout


def test_tokens_in_the_state_are_issued_by_a_running_gateway(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(
        "[listeners.s2]\n[access]\n[backs.far]\nkind = 'kafka'\naddress = 'a:1'\nbasin = 'basin-one'\n"
        "state_topic = 'state'\n[[routes]]\nname = 'x'\nback = 'far'\n"
    )
    done = CliRunner().invoke(main, ["token", "--config", str(config), "issue", "a", "--read"])
    assert done.exit_code == 1
    assert "are in the gateway's state, which back far keeps" in done.stderr
    assert "/v1/access-tokens" in done.stderr
