"""`penstock conform`: hold a server, or the programs in a recording, to the specifications of their protocols."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.captures.opened import opened_captures, side_option
from penstock.cli.output import json_lines_option, print_json, print_lines

if TYPE_CHECKING:
    from penstock.protocols.conformance import ConformanceCase, Suite, TestedServer
    from penstock.protocols.servers import Server
    from penstock.recorder.captures.judging import Judgement
    from penstock.tools.conforming import CaseResult

__all__ = ["conform_command"]

_FAILED: Final = 1


class _CannotTest(click.ClickException):
    exit_code = 2


@click.command("conform")
@click.argument("target", metavar="URL|CAPTURE")
@click.option("--only", multiple=True, metavar="CLAUSE", help="Only this clause, with its subclauses, or this case.")
@click.option("--list", "listing", is_flag=True, help="List the cases, without a server.")
@click.option(
    "--sender", type=click.Choice(["client", "server"]), help="Of a capture, judge only this side of each connection."
)
@side_option("Of a capture, connections of clients (front), connections to servers (back), or both.")
@json_lines_option("case, when it is done, or for each side of a protocol in a capture")
@click.option(
    "--token",
    metavar="TOKEN",
    envvar="PENSTOCK_TOKEN",
    show_envvar=True,
    help="Bearer token for the server, if it takes one.",
)
@click.option("--tls-ca", type=click.Path(dir_okay=False, exists=True), help="PEM file of authorities to trust.")
@click.option(
    "--patience",
    type=click.FloatRange(0.1),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Time within which the server must answer.",
)
def conform_command(
    target: str,
    only: Sequence[str],
    listing: bool,
    sender: str | None,
    side: str | None,
    as_lines: bool,
    token: str | None,
    tls_ca: str | None,
    patience: float,
) -> None:
    """Run the conformance cases of a protocol against the server at URL, and print a table by clause of its
    specification. Or print the clauses that clients and servers broke in CAPTURE, a recording or another capture.

    The cases make streams with names of their own, beside which the server may hold others, and delete them. Exits with
    0 if nothing failed, with 1 if anything did, with 2 if the server cannot be tested.
    """
    if "://" not in target:
        _judge(Path(target), sender, side, as_lines)
        return
    if sender is not None or side is not None:
        raise click.UsageError("--sender and --side are for captures: a URL names a server")
    from penstock.core.errors import CannotStart
    from penstock.observe import configure_logging
    from penstock.tools.conforming import chosen_cases, reached_server
    from penstock.tools.target.configuring import TargetOptions
    from penstock.tools.target.url import BadTarget, parse_target

    configure_logging("error", "auto")
    try:
        server = parse_target(target)
        suite = server.kind.suite(server)
        if suite is None:
            raise _CannotTest(f"{server}: there are no conformance cases for this protocol")
        cases = chosen_cases(suite, only)
    except (BadTarget, ValueError) as error:
        raise click.UsageError(str(error)) from None
    if listing:
        wide = max(len(case.clause) for case in cases)
        print_lines(*(f"{case.clause:<{wide}}  {case.name}: {case.demand}" for case in cases))
        return
    try:
        reached = reached_server(server, TargetOptions(token=token, tls_ca=tls_ca), patience)
        results = _run(suite, reached, cases, as_lines)
    except CannotStart as error:
        raise _CannotTest(str(error)) from None
    if not as_lines:
        print_lines(*_table(suite, server, results))
    if any(result.outcome.value == "fail" for result in results):
        sys.exit(_FAILED)


def _run(suite: Suite, server: TestedServer, cases: Sequence[ConformanceCase[Any]], as_lines: bool) -> list[CaseResult]:
    """Run the cases; print each result as JSON, or how far it is on a terminal."""
    import trio

    from penstock.tools.conforming import run_cases

    found: list[CaseResult] = []

    async def session() -> None:
        async with aclosing(run_cases(suite, server, cases)) as results:
            async for result in results:
                found.append(result)
                if as_lines:
                    print_json(_line(result))
                elif sys.stderr.isatty():
                    click.echo(f"\r{len(found)} of {len(cases)}", nl=False, err=True)
        if sys.stderr.isatty() and not as_lines:
            click.echo("\r\x1b[K", nl=False, err=True)

    trio.run(session)
    return found


def _line(result: CaseResult) -> dict[str, Any]:
    case = result.case
    fields = {"clause": case.clause, "case": case.name, "demand": case.demand, "outcome": result.outcome.value}
    return {**fields, **({"reason": result.reason} if result.reason else {})}


def _table(suite: Suite, server: Server, results: Sequence[CaseResult]) -> Iterator[str]:
    from penstock.tools.conforming import CaseOutcome

    yield f"{suite.title} at {server}, by {suite.source}"
    yield ""
    first = 2 + max(map(len, ("clause", *suite.clauses)))
    wide = max(map(len, suite.clauses.values()))
    yield f"{'clause':<{first}}{'':<{wide}}  {'pass':>5}{'fail':>6}{'not applicable':>16}"
    for clause, title in suite.clauses.items():
        counts = _counts([result for result in results if result.case.clause == clause])
        if sum(counts):
            yield f"{clause:<{first}}{title:<{wide}}  {counts[0]:>5}{counts[1]:>6}{counts[2]:>16}"
    passed, failed, other = _counts(results)
    yield f"{'':<{first}}{'all':<{wide}}  {passed:>5}{failed:>6}{other:>16}"
    for outcome in (CaseOutcome.NOT_APPLICABLE, CaseOutcome.FAIL):
        for result in results:
            if result.outcome is outcome:
                yield ""
                yield f"{outcome.value}: {result.case.clause} {result.case.name}: {result.case.demand}"
                yield f"  {result.reason}"


def _counts(results: Sequence[CaseResult]) -> list[int]:
    from penstock.tools.conforming import CaseOutcome

    return [sum(result.outcome is outcome for result in results) for outcome in CaseOutcome]


# ---- captures --------------------------------------------------------------------------------------------------------


def _judge(path: Path, sender: str | None, side: str | None, as_lines: bool) -> None:
    """Judge what a capture has. Exits with 1 if a clause was broken."""
    from penstock.recorder.captures.judging import judged
    from penstock_analysis.capture import Sender
    from penstock_analysis.dialogue.dialogues import Dialogues

    with opened_captures([path], "Judging", False, side) as events:
        dialogues = Dialogues()
        heard = chain(chain.from_iterable(map(dialogues.receive, events)), dialogues.end())
        found = judged(heard, None if sender is None else Sender(sender))
    if as_lines:
        for one in found:
            print_json(one.as_line())
    else:
        print_lines(*chain.from_iterable(map(_judgement, found)) if found else ["Nothing was recorded."])
    if any(one.violations for one in found):
        sys.exit(_FAILED)


def _judgement(one: Judgement) -> Iterator[str]:
    messages = ", ".join(f"{count} {kind}" for kind, count in one.messages.most_common())
    outcome = "fail" if one.violations else "pass"
    yield f"{outcome}: {one.protocol}, {one.sender.value}: {messages or 'no messages'}"
    for clause, found in sorted(one.violations.items()):
        first = found.first
        times = "once," if found.count == 1 else f"{found.count} times, first"
        yield f"  {clause}"
        yield f"    {times} on connection {first.conversation.number} at byte {first.offset}: {first.rule}"
    if one.others:
        yield f"  {one.others} problems break no clause (penstock show --kind problem)"
