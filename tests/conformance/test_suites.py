"""The conformance suites of `penstock conform`, against this gateway, a second one before it, real servers, and servers
with planted faults."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner
from support.process import BASIN, CONFIG, GatewayProcess
from support.real_backs import REAL_SERVERS
from support.rewriting_relay import Fault, relayed

from penstock.cli import main
from penstock.core.address import Address
from penstock.tools.conforming import CaseOutcome, chosen_cases, reached_server, run_cases
from penstock.tools.target.configuring import TargetOptions
from penstock.tools.target.url import parse_target
from penstock_codecs.segment import encode
from penstock_codecs.segment.released import DataAppended, TableEntriesUpdated

PROTOCOLS = ("s2", "s3p", "segment", "segment+draft")
PATIENCE = 1.5
"""Seconds that cases wait for an answer which a planted fault keeps back."""


def run(url: str) -> dict[str, dict[str, str]]:
    """Run all cases; the results by the names of the cases."""
    result = CliRunner().invoke(main, ["conform", url, "--json"])
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == any(one["outcome"] == "fail" for one in found), result.output
    return {one["case"]: one for one in found}


def failures(results: dict[str, dict[str, str]]) -> dict[str, str]:
    return {name: one["reason"] for name, one in results.items() if one["outcome"] == "fail"}


def port_of(gateway: GatewayProcess, protocol: str) -> int:
    return int(getattr(gateway, f"{protocol.partition('+')[0]}_port"))


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_this_gateway(protocol: str, gateway: GatewayProcess) -> None:
    results = run(f"{protocol}://127.0.0.1:{port_of(gateway, protocol)}")
    assert len(results) > 20 and {one["outcome"] for one in results.values()} == {"pass"}
    assert failures(results) == {}


@pytest.mark.slow
def test_a_basin_that_creates_streams(gateway: GatewayProcess) -> None:
    """Unknown streams are not applicable there."""
    results = run(f"s2://127.0.0.1:{gateway.s2_port}/{BASIN}")
    others = {name for name, one in results.items() if one["outcome"] == "not applicable"}
    assert failures(results) == {}
    assert others == {"tail-of-an-unknown-stream", "session-on-an-unknown-stream", "delete-a-stream"}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_gateway_before_this_one(protocol: str, gateway: GatewayProcess) -> None:
    kind, _, dialect = protocol.partition("+")
    back = f'\n[backs.other]\nkind = "{kind}"\naddress = "127.0.0.1:{port_of(gateway, protocol)}"\n'
    back += f'dialect = "{dialect}"\n' if dialect else ""
    with GatewayProcess(f'{CONFIG}{back}[[routes]]\nname = "all"\nback = "other"\n') as front:
        assert failures(run(f"{protocol}://127.0.0.1:{port_of(front, protocol)}")) == {}


PAGE = (Path(__file__).parents[2] / "docs" / "conform.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("block", re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
def test_the_commands_of_the_page(block: str, gateway: GatewayProcess) -> None:
    ports = {"7500": gateway.s3p_port, "12345": gateway.segment_port, "8080": gateway.s2_port}
    _, *arguments = re.sub("|".join(ports), lambda found: str(ports[found[0]]), block).split()
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    if "--list" in arguments:
        assert re.search(r"^8\.2 +append-with-an-id: All records", result.output, re.MULTILINE)
    elif "--json" in arguments:
        assert {json.loads(line)["clause"] for line in result.output.splitlines()} == {"append-session"}
    else:
        assert re.search(r"^ +all +\d+ +0 +\d+$", result.output, re.MULTILINE), result.output


@pytest.mark.parametrize("arguments", [["lines://x"], ["pravega://127.0.0.1:1"], ["s3p://127.0.0.1:1"]])
def test_servers_that_cannot_be_tested(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["conform", *arguments])
    assert result.exit_code == 2 and result.stderr.count("Error: ") == 1


def test_an_unknown_case() -> None:
    result = CliRunner().invoke(main, ["conform", "s3p://127.0.0.1:1", "--only", "8.9"])
    assert result.exit_code == 2 and "'8.9': neither a clause nor a case" in result.stderr


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_suite_names_each_case_once_with_its_clause(protocol: str) -> None:
    server = parse_target(f"{protocol}://127.0.0.1:1")
    suite = server.kind.suite(server)
    assert suite is not None
    names = [case.name for case in suite.cases]
    assert len(names) == len(set(names))
    assert {case.clause for case in suite.cases} == suite.clauses.keys()
    assert all(case.demand.endswith(".") for case in suite.cases)


KNOWN = {"s3p": {"command-names-of-any-case", "trim-keeps-the-last-id"}}
"""Deviations of real servers that must be found (S3P fact sheet, 2)."""


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [one for one in REAL_SERVERS if one in PROTOCOLS])  # others have no suite
def test_real_servers(protocol: str) -> None:
    with REAL_SERVERS[protocol]() as server:
        results = run(f"{protocol}://{Address(*server.address)}")
        found = failures(results)
        print(json.dumps(found, indent=1))
        assert KNOWN.get(protocol, set()) <= found.keys()
        assert len(found) < len(results) / 2


# ---- planted faults --------------------------------------------------------------------------------------------------


def without_message(type_id: int) -> Fault:
    """Drop messages of the server of one type."""
    return Fault(reply=lambda frame: b"" if type_of(frame) == type_id else frame, framed=True)


def type_of(frame: bytes) -> int:
    return int(struct.unpack_from(">i", frame)[0])


def edited(type_id: int, offset: int, value: int) -> Fault:
    """Put a 64-bit number into messages of the server of one type, at an offset in their body, or from their end."""

    def edit(frame: bytes) -> bytes:
        at = 8 + offset if offset >= 0 else len(frame) + offset
        return frame if type_of(frame) != type_id else frame[:at] + struct.pack(">q", value) + frame[at + 8 :]

    return Fault(reply=edit, framed=True)


def instead(type_id: int, replacement: bytes) -> Fault:
    """Send another message instead of those of one type."""
    return Fault(reply=lambda frame: replacement if type_of(frame) == type_id else frame, framed=True)


def replaced(old: bytes, new: bytes) -> Fault:
    return Fault(request=partial(_replace, old, new))


def replied(old: bytes, new: bytes) -> Fault:
    return Fault(reply=partial(_replace, old, new))


def _replace(old: bytes, new: bytes, data: bytes) -> bytes:
    return data.replace(old, new)


S2 = {
    "a mismatch tells another position": (
        replied(b'"seq_num_mismatch":1', b'"seq_num_mismatch":9'),
        "append",
        {"append-at-a-position"},
    ),
    "a terminal frame tells another position": (
        replied(b'"seq_num_mismatch":1', b'"seq_num_mismatch":9'),
        "append-session",
        {"condition-in-a-session"},
    ),
    "a read at the tail is not found": (
        replied(b"HTTP/1.1 416", b"HTTP/1.1 404"),
        "read",
        {"read-at-the-tail", "read-from-a-time", "read-as-protobuf"},
    ),
    "events have no id": (
        replied(b"\nid: ", b"\nxx: "),
        "events",
        {"events-of-records", "events-at-the-tail"},
    ),
    "a session that begins beyond the tail is begun": (
        replied(b"HTTP/1.1 416", b"HTTP/1.1 200"),
        "read-session",
        {"session-beyond-the-tail"},
    ),
}
S3P = {
    "commands are case-sensitive": (replaced(b"CrEaTe", b"??????"), "10", {"command-names-of-any-case"}),
    "unrecoverable errors leave the connection open": (
        Fault(holds_open=True),
        "14",
        {"unknown-command", "command-of-redis"},
    ),
    "errors quote names as they are": (
        replied(b"-ERR_UNKNOWN_STREAM ", b"-ERR_UNKNOWN_STREAM \r\n"),
        "9",
        {"errors-of-one-line"},
    ),
    "MIN_ID is exclusive": (replaced(b"$5\r\n100-1\r\n", b"$5\r\n100-2\r\n"), "read-from-an-id", {"read-from-an-id"}),
    "COUNT counts elements": (replaced(b"COUNT\r\n$1\r\n3", b"COUNT\r\n$1\r\n1"), "read-at-most", {"read-at-most"}),
    "BLOCK does not wait": (
        replaced(b"BLOCK\r\n$3\r\n400", b"BLOCK\r\n$1\r\n0"),
        "8.3",
        {"read-that-waits-in-vain", "read-that-waits-for-an-id"},
    ),
    "identifiers fall after a trim": (
        replied(b"100-1", b"100-0"),
        "trim-keeps-the-last-id",
        {"trim-keeps-the-last-id"},
    ),
    "a known stream is said to be unknown": (
        replied(b"-ERR_STREAM_EXISTS", b"-ERR_UNKNOWN_STREAM"),
        "8.1",
        {"create-again"},
    ),
}
DRAFT = {
    "connection ids are forgotten": (edited(2, -8, 0), "setup", {"setup-after-a-reconnect"}),
    "violations leave the connection open": (
        Fault(holds_open=True, framed=True),
        "partial",
        {"begin-within-a-partial", "middle-without-a-begin", "unknown-part"},
    ),
}
SEGMENT = {
    "KeepAlive is not answered": (without_message(100), "1.2", {"keep-alive"}),
    "replies lose the request's id": (edited(12, 0, 7), "1.2", {"hello-with-a-request", "request-ids"}),
    "the event before the last is forgotten": (
        edited(7, 24, -1),
        "1.4",
        {"append", "appends-in-flight", "writer-that-reconnects"},
    ),
    "violations leave the connection open": (
        Fault(holds_open=True, framed=True),
        "1.1",
        {"unknown-type", "negative-length", "length-beyond-the-limit", "short-body"},
    ),
    "a condition that fails is ignored": (
        instead(8, b"".join(encode(DataAppended(UUID(int=1), 1, -1, 1, 1)))),
        "1.4",
        {"conditional-append", "conditional-block"},
    ),
    "versions of keys are not compared": (
        instead(82, b"".join(encode(TableEntriesUpdated(1, ())))),
        "1.3",
        {"conditional-updates-of-a-table", "remove-keys-of-a-table"},
    ),
    "the end of a sealed segment is not told": (
        Fault(reply=lambda frame: _open_ended(frame), framed=True),
        "1.5",
        {"seal-ends-a-waiting-read", "end-of-a-sealed-segment"},
    ),
}


def _open_ended(frame: bytes) -> bytes:
    """Clear `end_of_segment` of a SegmentRead, behind its segment, offset and `at_tail`."""
    if type_of(frame) != 10:
        return frame
    at = 8 + 2 + struct.unpack_from(">H", frame, 8)[0] + 8 + 1
    return frame[:at] + b"\0" + frame[at + 1 :]


def planted() -> Iterator[object]:
    for protocol, faults in (("s2", S2), ("s3p", S3P), ("segment", SEGMENT), ("segment+draft", DRAFT)):
        for name, (fault, only, cases) in faults.items():
            yield pytest.param(protocol, fault, only, cases, id=f"{protocol}: {name}")


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "fault", "only", "cases"), list(planted()))
async def test_a_planted_fault_is_found(
    protocol: str, fault: Fault, only: str, cases: set[str], gateway: GatewayProcess
) -> None:
    """Exactly the cases fail that are about it."""
    async with relayed(port_of(gateway, protocol), fault) as port:
        server = parse_target(f"{protocol}://127.0.0.1:{port}")
        suite = server.kind.suite(server)
        assert suite is not None
        tested = reached_server(server, TargetOptions(), PATIENCE)
        results = [one async for one in run_cases(suite, tested, chosen_cases(suite, [only]))]
    assert {one.case.name for one in results if one.outcome is CaseOutcome.FAIL} == cases
