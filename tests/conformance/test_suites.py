"""The conformance suites of `penstock conform`, against this gateway, a second one before it, and real servers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.captures.commands import two_conversations
from support.process import CONFIG, GatewayProcess
from support.real_backs import REAL_SERVERS

from penstock.cli import main
from penstock.core.address import Address
from penstock.tools.target.url import parse_target

PROTOCOLS = ("durable", "kafka", "pravega", "s2", "s3p", "segment", "segment+draft")


def run(url: str) -> dict[str, dict[str, str]]:
    """Run all cases; the results by the names of the cases."""
    result = CliRunner().invoke(main, ["conform", url, "--json"])
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == any(one["outcome"] == "fail" for one in found), result.output
    return {one["case"]: one for one in found}


def failures(results: dict[str, dict[str, str]]) -> dict[str, str]:
    return {name: one["reason"] for name, one in results.items() if one["outcome"] == "fail"}


def port_of(gateway: GatewayProcess, protocol: str) -> int:
    kind = "controller" if protocol == "pravega" else protocol.partition("+")[0]
    return int(getattr(gateway, f"{kind}_port"))


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [one for one in PROTOCOLS if one != "s2"])  # test_s2_over_http
def test_this_gateway(protocol: str, gateway: GatewayProcess) -> None:
    results = run(f"{protocol}://127.0.0.1:{port_of(gateway, protocol)}")
    assert len(results) > 20 and {one["outcome"] for one in results.values()} == {"pass"}
    assert failures(results) == {}


BEHIND = {"kafka": {"metadata-of-a-topic", "partitions-apart", "offset-of-a-time", "parts-of-records"}}
"""Deviations of a gateway before another server (docs/protocols/kafka.md): it creates no topics of several partitions
there, and those of one with the time of arrival."""


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [one for one in PROTOCOLS if one != "pravega"])  # it has no back of its own
def test_a_gateway_before_this_one(protocol: str, gateway: GatewayProcess) -> None:
    kind, _, dialect = protocol.partition("+")
    back = f'\n[backs.other]\nkind = "{kind}"\naddress = "127.0.0.1:{port_of(gateway, protocol)}"\n'
    back += f'dialect = "{dialect}"\n' if dialect else ""
    with GatewayProcess(f'{CONFIG}{back}[[routes]]\nname = "all"\nback = "other"\n') as front:
        assert failures(run(f"{protocol}://127.0.0.1:{port_of(front, protocol)}")).keys() == BEHIND.get(protocol, set())


PAGE = (Path(__file__).parents[2] / "docs" / "conform.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "block", re.findall(r"```sh\n(.*?)```", PAGE.partition("## Hold a client to it before")[0], re.DOTALL)
)
def test_the_commands_of_the_page(block: str, gateway: GatewayProcess, tmp_path: Path) -> None:
    ports = {"7500": gateway.s3p_port, "12345": gateway.segment_port, "8080": gateway.s2_port}
    if "recordings/" in block:
        capture = two_conversations(tmp_path / "two.pcapng")
        result = CliRunner().invoke(main, block.replace("recordings/", str(capture)).split()[1:])
        assert result.exit_code == 1 and "fail: s3p, client: 1 APPEND" in result.output
        return
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


KNOWN = {
    "durable": {"events-of-what-is-there"},
    "s3p": {"command-names-of-any-case", "trim-keeps-the-last-id"},
    "segment": {"message-within-a-block", "seal-ends-a-waiting-read", "reads-out-of-range"},
    "pravega": {"unknown-transaction"},
}
"""The deviations of real servers (docs/conform.md says what they do instead)."""


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [*REAL_SERVERS, "pravega"])
def test_real_servers(protocol: str) -> None:
    with REAL_SERVERS["segment" if protocol == "pravega" else protocol]() as server:
        address = server.controller if protocol == "pravega" else server.address
        assert address is not None
        results = run(f"{protocol}://{Address(*address)}")
        found = failures(results)
        print(json.dumps(found, indent=1))
        assert found.keys() == KNOWN.get(protocol, set())
        assert len(results) > 20
