"""Output of the commands that look at captures."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.captures import NOW_NS, conversation, notes, read, s2_talk, s3p_talk, story, written
from support.captures.commands import lines, run

from penstock.capture.pcapng import Chunk, Opened, Sender

# ---- show ------------------------------------------------------------------------------------------------------------


def test_show(capture: Path) -> None:
    head, *rows = lines("show", capture)
    assert head.split() == [
        "TIME",
        "CONN",
        "LAYER",
        "KIND",
        "STREAM",
        "SIZE",
        "EXCH",
        "ANSWER",
        "STATE",
        *head.split()[9:],
    ]
    appended, identified = rows[0].split(), rows[1].split()
    assert appended[:5] == ["0.000000", "#1", "->", "s3p", "APPEND"] and "orders" in appended
    assert identified[:5] == ["0.002000", "#1", "<-", "s3p", "ID"] and "2.0 ms" in rows[1]
    (refused,) = [row for row in rows if "ERR_BAD_FORMAT" in row and "s3p" in row]
    assert "!! ERR_BAD_FORMAT: unknown command" in refused
    (problem,) = [row for row in rows if "#1 -> !!" in row]
    assert "(S3P 0.2.0" in problem and rows.index(problem) < rows.index(refused)
    assert any("penstock/in" in row and "POST" in row for row in rows)


def test_show_a_part(capture: Path) -> None:
    def shown(*options: str) -> set[str]:
        return {row.split()[1] + row.split()[4] for row in lines("show", capture, *options)[1:] if "!!" not in row}

    assert shown("--connection", "1") == {"#1APPEND", "#1ID"}
    assert shown("--protocol", "s3p") == {"#1APPEND", "#1ID"}
    assert shown("--protocol", "http", "--kind", "Append*") == {"#2AppendInput", "#2AppendAck"}
    assert shown("--stream", "order?") == {"#1APPEND", "#1ID"}
    assert shown("--stream", "penstock/in", "--stream", "orders", "--kind", "APPEND", "--kind", "POST") == {
        "#1APPEND",
        "#2POST",
    }
    assert [
        row for row in lines("show", capture, "--kind", "problem", "--connection", "1")[1:] if "!!" not in row
    ] == []


def test_show_bodies(capture: Path) -> None:
    rows = lines("show", "--bodies", capture)
    assert [row.split() for row in rows if "appended" in row] == [
        ["appended", "8", "B", "record", "0"],
        ["appended", "5", "B", "first"],
        ["appended", "6", "B", "second"],
    ]
    assert "-> s3p     APPEND" in rows[rows.index(next(row for row in rows if "record 0" in row)) - 1]


def test_show_as_json(capture: Path) -> None:
    told = [json.loads(line) for line in lines("show", "--json", "--bodies", capture)]
    appended = told[0]
    assert (appended["type"], appended["kind"], appended["connection"]) == ("message", "APPEND", 1)
    assert "answer_ns" not in appended and told[1]["answer_ns"] == 2_000_000
    assert [line["bodies"][0]["body"] for line in told if line.get("bodies")] == ["record 0", "first"]
    (problem,) = [line for line in told if line["type"] == "problem" and line["connection"] == 1]
    assert bytes.fromhex(problem["context_hex"]).endswith(b"NOPE\r\n") and problem["sender"] == "client"


def test_show_times_of_day(capture: Path) -> None:
    assert lines("show", "--utc", capture)[1].split()[0] == "22:13:20.123456Z"


def test_show_conversations(capture: Path) -> None:
    head, *rows = lines("show", "--conversations", capture)
    assert head.split()[:4] == ["TIME", "CONN", "PROTOCOL", "AT"]
    assert [row.split()[1:5] for row in rows] == [
        ["#1", "s3p", "listeners.s3p", "127.0.0.1:40001"],
        ["#2", "s2", "listeners.s2", "127.0.0.1:40002"],
    ]
    assert "server closed" in rows[0] and "route=orders" in rows[0]
    told = [json.loads(line) for line in lines("show", "--conversations", "--json", capture)]
    assert [line["connection"] for line in told] == [1, 2] and told[0]["run"] == "run-1"


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ([], ["#1", "#2"]),
        (["--protocol", "http"], ["#2"]),
        (["--protocol", "s3p"], ["#1"]),
        (["--protocol", "sse"], []),
        (["--kind", "AppendAck"], ["#2"]),
        (["--kind", "problem"], ["#1"]),
        (["--stream", "penstock/in"], ["#2"]),
        (["--stream", "orders"], ["#1"]),
        (["--stream", "orders", "--kind", "AppendAck"], []),
    ],
)
def test_show_conversations_with_such_messages(options: list[str], numbers: list[str], capture: Path) -> None:
    _, *rows = lines("show", "--conversations", *options, capture)
    assert sorted(row.split()[1] for row in rows) == numbers


def test_nothing_of_a_peer_reaches_the_terminal_raw(tmp_path: Path) -> None:
    path = tmp_path / "evil.pcapng"
    one = conversation(1)
    request = b"GET /\x1b[2J HTTP/1.1\r\nhost: \x1b]0;x\x07\r\n\r\n"
    path.write_bytes(written([Opened(one, 1), Chunk(one, 2, Sender.CLIENT, 0, request)]))
    for command in ("show", "explain", "stats"):
        assert "\x1b" not in run(command, path).output


def test_show_messages_with_a_text(capture: Path) -> None:
    """In a field, in an error, in a record, and in the rule of a problem."""

    def kinds(text: str) -> set[str]:
        return {
            f"{one['type']} {one.get('kind', '')}".strip()
            for one in map(json.loads, lines("show", capture, "--json", "--text", text))
        }

    everything = [json.loads(line) for line in lines("show", capture, "--json", "--bodies")]
    with_records = next(one for one in everything if one.get("bodies"))
    assert f"message {with_records['kind']}" in kinds(with_records["bodies"][0]["body"])
    problem = next(one for one in everything if one["type"] == "problem")
    assert "problem" in kinds(problem["rule"])
    assert kinds("unknown command") >= {"message ERR_BAD_FORMAT"}
    assert kinds("no such text anywhere") == set()


def test_show_with_a_filter_in_one_line(capture: Path) -> None:
    by_options = lines("show", capture, "--json", "--connection", "1", "--kind", "APPEND", "--kind", "ERR_*")
    by_filter = lines("show", capture, "--json", "--filter", "kind=ERR_* connection=1", "--kind", "APPEND")
    assert by_filter == by_options != []
    wrong = run("show", capture, "--filter", "colour=red")
    assert wrong.exit_code == 2 and "expected NAME=VALUE with one of connection" in wrong.output


def test_show_all_that_is_known_of_messages(capture: Path) -> None:
    """An answer comes with its request, both with their bytes; also as rows."""
    found = list(map(json.loads, lines("show", capture, "--json", "--details", "--filter", "connection=1")))
    asked = [one for one in found if one["sender"] == "client" and one["type"] == "message"]
    answers = [one for one in found if "asked" in one]
    assert answers and [one["asked"]["offset"] for one in answers] == [one["offset"] for one in asked][: len(answers)]
    assert all(one["dump"] for one in answers) and answers[0]["asked"]["dump"] == asked[0]["dump"]
    rows = lines("show", capture, "--details", "--filter", "connection=1")
    assert any(asked[0]["dump"][0] in row for row in rows)


# ---- explain ---------------------------------------------------------------------------------------------------------


def test_explain(capture: Path) -> None:
    told = lines("explain", capture, "--connection", "1")
    assert told[0] == "#1 listeners.s3p s3p 127.0.0.1:40001 -> 127.0.0.1:7500"
    assert any(line.startswith("  clause: S3P 0.2.0") for line in told)
    marked = next(number for number, line in enumerate(told) if "^^" in line)
    place = told[marked].index("^^")
    assert told[marked - 1][place : place + 2] in ("2a", "4e", "24", "31")
    says = told.index("  says:   ERR_BAD_FORMAT: unknown command")
    assert told[says + 1].startswith("  means:  The command is malformed")
    assert told[says + 2] == "  clause: S3P 0.2.0, section 9"
    assert any(line.endswith("|-ERR_BAD_FORMAT |") for line in told[says:])
    assert any(line.startswith("  before: <- ID orders") for line in told)


def test_explain_replies(capture: Path) -> None:
    told = lines("explain", capture, "--connection", "2")
    assert any("says:   404" in line for line in told) and any("asked:  -> GET penstock/none" in line for line in told)


def test_explain_as_json(capture: Path) -> None:
    found = [json.loads(line) for line in lines("explain", capture, "--json")]
    problem = next(one for one in found if one["type"] == "problem")
    assert problem["clause"].startswith("S3P 0.2.0") and problem["before"]["kind"] == "ID"
    assert any("^^" in line for line in problem["dump"])
    reply = next(one for one in found if one.get("kind") == "404")
    assert reply["asked"]["kind"] == "GET" and reply["client"] and reply["server"]


def test_explain_a_connection_that_is_not_there(capture: Path) -> None:
    result = run("explain", "--connection", "7", capture)
    assert (result.stdout, result.stderr) == ("", "Connection 7 is not in the capture.\n")


def test_explain_keeps_little_of_many_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that were silent for long nothing is kept but what is wrong with them."""
    monkeypatch.setattr("penstock.cli.captures.explain.MAX_HEARD", 1)
    one, other = conversation(1), conversation(2)
    path = tmp_path / "many.pcapng"
    request, answer = b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n", b"HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n"
    said = [Opened(one, 1), Chunk(one, 2, Sender.CLIENT, 0, request)]
    between = [Opened(other, 3), Chunk(other, 4, Sender.CLIENT, 0, request)]
    answered = [Chunk(one, 5, Sender.SERVER, 0, answer)]
    path.write_bytes(written([*said, *answered]))
    assert any("asked:  -> GET" in line for line in lines("explain", path))
    path.write_bytes(written([*said, *between, *answered]))
    told = lines("explain", path)
    assert any("says:   404" in line for line in told) and not any("asked:" in line for line in told)


def test_explain_where_nothing_went_wrong(tmp_path: Path) -> None:
    path = tmp_path / "good.pcapng"
    path.write_bytes(written(s3p_talk(ends=False)))
    result = run("explain", path)
    assert (result.exit_code, result.stdout) == (0, "") and "The capture has no errors." in result.stderr


def test_times_are_counted_from_the_capture_s_beginning(capture: Path) -> None:
    """Times do not depend on the part that is chosen, so that output of one command can be found with another."""
    assert lines("show", capture, "--connection", "2")[1].startswith("    1.000000")
    assert lines("show", capture, "--connection", "2", "--conversations")[1].startswith("    1.000000")
    assert "  1.013000 s: http 404" in "\n".join(lines("explain", capture, "--connection", "2"))


# ---- records, stats, export ------------------------------------------------------------------------------------------


def test_records(capture: Path) -> None:
    told = [json.loads(line) for line in lines("records", capture)]
    assert [(line["stream"], line["body"], line["action"]) for line in told] == [
        ("orders", "record 0", "appended"),
        ("penstock/in", "first", "appended"),
        ("penstock/in", "second", "appended"),
    ]
    assert (told[0]["record_id"], told[0]["connection"], told[1]["seq_num"]) == ("1700000000000-0", 1, 5)
    assert lines("records", capture, "--action", "delivered") == []
    assert len(lines("records", capture, "--stream", "penstock/*")) == 2
    assert len(lines("records", capture, "--protocol", "s3p")) == 1


def test_stats(capture: Path) -> None:
    told = lines("stats", capture)
    (orders,) = [line.split() for line in told if " orders " in line]
    assert orders[:7] == ["s3p", "listeners.s3p", "orders", "1", "2", "1", "0"]
    assert "2.0" in orders and any(line.startswith("all ") for line in told)
    (line,) = lines("stats", "--json", capture)
    assert json.loads(line)["total"]["records_appended"] == 3


def test_stats_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.pcapng"
    path.write_bytes(written([]))
    assert lines("stats", path) == ["Nothing was recorded."]
    assert json.loads(run("stats", "--json", path).stdout)["duration_ns"] == 0


def test_export_json_lines(capture: Path) -> None:
    told = [json.loads(line) for line in lines("export", "--to", "jsonl", capture)]
    assert {line["type"] for line in told} == {"message", "problem"}
    assert [record["body"] for line in told for record in line.get("bodies", ())] == ["record 0", "first", "second"]


def test_har_entries_are_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    """An exchange that goes on for long does not end up behind those that came after it."""
    events = s2_talk(1, NOW_NS)
    late = [replace(each, time_ns=NOW_NS + 10**10) for each in events[2:]]
    path = tmp_path / "long.pcapng"
    path.write_bytes(written([*events[:2], *s2_talk(2, NOW_NS + 10**9), *late]))
    entries = json.loads(run("export", "--to", "har", path).stdout)["log"]["entries"]
    assert [entry["connection"] for entry in entries] == ["1", "2", "2", "1"]
    starts = [entry["startedDateTime"] for entry in entries]
    assert starts == sorted(starts)


def test_export_har(capture: Path, tmp_path: Path) -> None:
    log = json.loads(run("export", "--to", "har", capture).stdout)["log"]
    assert (log["version"], log["creator"]["name"], len(log["entries"])) == ("1.2", "Penstock", 2)
    assert [entry["response"]["status"] for entry in log["entries"]] == [200, 404]
    only = json.loads(run("export", "--to", "har", "--stream", "penstock/none", capture).stdout)["log"]["entries"]
    assert [entry["response"]["status"] for entry in only] == [404]
    assert json.loads(run("export", "--to", "har", "--protocol", "s3p", capture).stdout)["log"]["entries"] == []


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ([], {1, 2}),
        (["--connection", "2"], {2}),
        (["--protocol", "s3p"], {1}),
        (["--protocol", "http"], {2}),
        (["--stream", "penstock/none"], {2}),
        (["--stream", "nothing"], set()),
    ],
)
def test_export_a_capture(capture: Path, tmp_path: Path, options: list[str], numbers: set[int]) -> None:
    """Whole conversations, with their notes, in a file that only its owner reads."""
    output = tmp_path / "part.pcapng"
    lines("export", "--to", "pcapng", "-o", output, capture, *options)
    events = read(output.read_bytes())
    assert {event.conversation.number for event in events} == numbers
    expected = {name: told for name, told in story(read(capture.read_bytes())).items() if name[0] in numbers}
    assert story(events) == expected
    assert (1 in numbers) == bool(notes(events))
    assert stat.S_IMODE(output.stat().st_mode) == 0o600


def test_export_does_not_destroy_what_it_reads(capture: Path, tmp_path: Path) -> None:
    before = capture.read_bytes()
    for source in (capture, tmp_path):
        result = run("export", "--to", "pcapng", "-o", capture, source)
        assert result.exit_code == 2 and "cannot be the output" in result.stderr
    assert capture.read_bytes() == before
    result = run("export", "--to", "pcapng", "--stream", "a", "-", data=before)
    assert result.exit_code == 2 and "read twice" in result.stderr
    result = run("export", "--to", "jsonl", "-o", tmp_path / "none" / "a", capture)
    assert result.exit_code == 1 and "No such file" in result.stderr


# ---- conform ---------------------------------------------------------------------------------------------------------


def test_a_capture_is_judged(capture: Path) -> None:
    """Each side of a protocol, by the clauses that it broke."""
    found = run("conform", capture)
    assert found.exit_code == 1
    place = r"^fail: s3p, client: 1 APPEND\n  (S3P 0\.2\.0, .*)\n    once, on connection 1 at byte (\d+): a command is"
    failed = re.search(place, found.stdout, re.MULTILINE)
    assert failed is not None, found.stdout
    assert "pass: s3p, server: 1 ID, 1 ERR_BAD_FORMAT" in found.stdout
    by_sender = run("conform", capture, "--sender", "client", "--json").stdout.splitlines()
    s2, s3p = map(json.loads, by_sender)
    assert (s2["sender"], s2["outcome"], s2["messages"]) == ("client", "pass", {"AppendInput": 1, "GET": 1, "POST": 1})
    (violation,) = s3p["violations"]
    assert (s3p["outcome"], violation["clause"], violation["offset"]) == ("fail", failed[1], int(failed[2]))


def test_a_capture_that_keeps_to_the_specifications(tmp_path: Path) -> None:
    capture = tmp_path / "good.pcapng"
    capture.write_bytes(written(s2_talk()))
    found = run("conform", capture)
    assert found.exit_code == 0 and "fail" not in found.stdout
    assert run("conform", "s3p://127.0.0.1:1", "--sender", "client").exit_code == 2
