"""`penstock diff` as a command: its output, and the exit code if it cannot decide."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.captures import s2_talk, s3p_talk, written

from penstock.cli import diff as diff_module
from penstock.cli import main
from penstock.tools.comparing.record_table import RecordTable


def diff(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["diff", *map(str, arguments)])


@pytest.fixture
def s3p(tmp_path: Path) -> Path:
    path = tmp_path / "s3p.pcapng"
    path.write_bytes(written(s3p_talk(1)))
    return path


@pytest.fixture
def both(tmp_path: Path) -> Path:
    path = tmp_path / "both.pcapng"
    path.write_bytes(written([*s3p_talk(1), *s2_talk(2)]))
    return path


def test_what_only_one_has_of_other_names_is_no_difference(s3p: Path, both: Path) -> None:
    assert diff(s3p, both).exit_code == 1
    name = json.loads(diff(s3p, s3p, "--json").stdout)["streams"][0]["a"]["name"]
    result = diff(s3p, both, "--stream", name)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "equal: 1 stream")
    result = diff(s3p, both, "--stream", "nothing")
    assert (result.exit_code, result.stderr) == (2, "Error: neither source has records to compare with such a name\n")


@pytest.mark.parametrize(("mapped", "side"), [("nope={}", "A"), ("{}=nope", "B")])
def test_a_name_that_is_not_there_is_an_error(mapped: str, side: str, s3p: Path) -> None:
    name = json.loads(diff(s3p, s3p, "--json").stdout)["streams"][0]["a"]["name"]
    result = diff(s3p, s3p, "--map", mapped.format(name))
    assert result.exit_code == 2
    assert f"--map: {side} has no stream 'nope'; its streams are {name}" in result.stderr


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (
            sqlite3.OperationalError("database or disk is full"),
            2,
            "temporary file for the comparison: database or disk is full\n",
        ),
        (OSError(28, "No space left on device"), 2, "Error: the output: No space left on device\n"),
    ],
)
def test_what_cannot_be_told_is_no_difference(
    error: BaseException, code: int, said: str, s3p: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 would say that they differ."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(diff_module, "compare_streams", fail)
    result = diff(s3p, s3p)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.endswith(said) and bool(result.stderr) == bool(said)
    monkeypatch.setattr(RecordTable, "put", fail)
    assert diff(s3p, s3p).exit_code == code
