"""Recordings of both sides of a gateway hold the same traffic twice: commands read one side, and say so."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.captures import NOW_NS, s2_talk, s3p_talk, written
from support.captures.commands import lines, run

from penstock.capture.pcapng import CaptureEvent, Conversation, Side
from penstock.recorder.captures.opening import recorded_side

LEFT_OUT = "Left out: connections between the gateway and its servers"
TAKEN = "only connections to servers were recorded"


def behind(events: Iterable[CaptureEvent]) -> list[CaptureEvent]:
    """The same on the other side of the gateway."""
    moved: dict[Conversation, Conversation] = {}
    return [replace(each, conversation=_behind(each.conversation, moved)) for each in events]


def _behind(one: Conversation, moved: dict[Conversation, Conversation]) -> Conversation:
    return moved.setdefault(one, replace(one, side=Side.BACK, name="backs.lite"))


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """One client on connection 1, and what the gateway said for it on connection 2, which opened first."""
    path = tmp_path / "both.pcapng"
    path.write_bytes(written([*behind(s2_talk(2, NOW_NS - 10**9)), *s3p_talk(1)]))
    return path


@pytest.fixture
def back(tmp_path: Path) -> Path:
    path = tmp_path / "back.pcapng"
    path.write_bytes(written(behind(s2_talk(2))))
    return path


def connections(*arguments: str | Path) -> set[int]:
    """Of which connections `export --to jsonl` says anything."""
    return {json.loads(line)["connection"] for line in lines("export", "--to", "jsonl", *arguments)}


def test_without_a_word_it_is_the_side_of_clients(both: Path) -> None:
    for side, wanted in ((None, {1}), ("front", {1}), ("back", {2}), ("both", {1, 2})):
        options = () if side is None else ("--side", side)
        assert connections(both, *options) == wanted
        bodies = [json.loads(line)["body"] for line in lines("records", both, *options)]
        assert bodies == [*["first", "second"] * (2 in wanted), *["record 0"] * (1 in wanted)]
        total = json.loads(lines("stats", "--json", both, *options)[0])["total"]
        assert (total["connections"], total["records_appended"]) == (len(wanted), len(bodies))
        shown = {row.split()[1] for row in lines("show", both, *options)[1:]}
        assert shown == {f"#{number}" for number in wanted}
        explained = {row.split()[0] for row in lines("explain", both, *options) if row.startswith("#")}
        assert explained == shown


@pytest.mark.parametrize("command", [["show"], ["records"], ["stats"], ["explain"], ["export", "--to", "har"]])
def test_what_is_left_out_is_said(command: list[str], both: Path, back: Path) -> None:
    assert LEFT_OUT in run(*command, both).stderr
    for side in ("front", "back", "both"):
        assert LEFT_OUT not in run(*command, both, "--side", side).stderr
    result = run(*command, back)
    assert TAKEN in result.stderr and LEFT_OUT not in result.stderr
    assert result.stdout == run(*command, back, "--side", "back").stdout
    assert TAKEN not in run(*command, back, "--side", "front").stderr


def test_a_connection_that_is_asked_for_may_be_on_either_side(both: Path) -> None:
    assert connections(both, "--connection", "2") == {2}
    assert connections(both, "--connection", "2", "--side", "front") == set()


def test_what_is_read_once_is_that_of_clients_as_soon_as_there_is_any(both: Path, back: Path) -> None:
    """Standard input cannot be looked through first."""
    result = run("export", "--to", "pcapng", "-", data=back.read_bytes())
    assert result.exit_code == 0 and TAKEN not in result.stderr
    assert len(run("records", "-", data=back.read_bytes()).stdout.splitlines()) == 2
    front_first = written([*s3p_talk(1), *behind(s2_talk(2, NOW_NS + 10**9))])
    result = run("records", "-", data=front_first)
    assert [json.loads(line)["body"] for line in result.stdout.splitlines()] == ["record 0"]
    assert LEFT_OUT in result.stderr


def test_an_exported_capture_holds_one_side(both: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pcapng"
    assert run("export", "--to", "pcapng", both, "-o", out).exit_code == 0
    assert recorded_side([out]) is Side.FRONT
    assert connections(out, "--side", "both") == {1}


def test_each_recording_is_compared_by_the_side_that_it_has(both: Path, back: Path, tmp_path: Path) -> None:
    front = tmp_path / "front.pcapng"
    front.write_bytes(written(s2_talk(2)))
    result = run("diff", back, front)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "equal: 1 stream")
    assert f"{back}: {TAKEN}" in result.stderr
    assert run("diff", both, front).exit_code == 1
    assert run("diff", both, front, "--side", "back").exit_code == 1, "the second has no such side"
