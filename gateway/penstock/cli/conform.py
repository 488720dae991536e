"""`penstock conform`: hold a server, or the programs in a recording, to the specifications of their protocols."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

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
_COMMAND: Final = "penstock.command"


class _CannotTest(click.ClickException):
    exit_code = 2


class _BeforeCommand(click.Command):
    """A command whose arguments behind `--` are another command, in the context's `meta`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take away the other command, and parse the rest."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command("conform", cls=_BeforeCommand)
@click.argument("target", metavar="URL|CAPTURE|[PROTOCOL] -- COMMAND...", required=False)
@click.option("--only", multiple=True, metavar="CLAUSE", help="Only this clause, with its subclauses, or this case.")
@click.option("--list", "listing", is_flag=True, help="List the cases, without a server.")
@click.option(
    "--sender", type=click.Choice(["client", "server"]), help="Of a capture, judge only this side of each connection."
)
@click.option(
    "--fault", "faults", multiple=True, metavar="NAME", help="Before COMMAND, only this fault; all by default."
)
@click.option(
    "--record",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep the recording of COMMAND's connections in this directory.",
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
@click.pass_context
def conform_command(
    context: click.Context,
    target: str | None,
    only: Sequence[str],
    listing: bool,
    sender: str | None,
    faults: Sequence[str],
    record: Path | None,
    side: str | None,
    as_lines: bool,
    token: str | None,
    tls_ca: str | None,
    patience: float,
) -> None:
    """Run the conformance cases of a protocol against the server at URL, and print a table by clause of its
    specification. Or print the clauses that clients and servers broke in CAPTURE, a recording or another capture. Or
    run COMMAND before a gateway that misbehaves within its protocols, and print what its clients did; they find it in
    the variables that `penstock mock --help` lists. PROTOCOL, such as s2, is the only one to judge.

    The cases make streams with names of their own, beside which the server may hold others, and delete them. Exits with
    0 if nothing failed, with 1 if anything did, with 2 if the server cannot be tested. If no client of COMMAND broke a
    clause, exits as COMMAND does.
    """
    command = context.meta.get(_COMMAND)
    if command is not None:
        _run_client(target, command, faults, record, as_lines)
    if faults or record is not None:
        raise click.UsageError("--fault and --record are for a command, behind --")
    if target is None:
        raise click.UsageError("missing URL, CAPTURE, or -- COMMAND")
    if "://" not in target:
        _judge(Path(target), sender, side, as_lines)
        return
    if sender is not None or side is not None:
        raise click.UsageError("--sender and --side are for captures: a URL names a server")
    from penstock.core.errors import CannotStart
    from penstock.observe import configure_logging
    from penstock.tools.conforming import chosen_cases, reached_server
    from penstock.tools.target.back import TargetOptions
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

    case_results: list[CaseResult] = []

    async def session() -> None:
        async with aclosing(run_cases(suite, server, cases)) as results:
            async for result in results:
                case_results.append(result)
                if as_lines:
                    print_json(_line(result))
                elif sys.stderr.isatty():
                    click.echo(f"\r{len(case_results)} of {len(cases)}", nl=False, err=True)
        if sys.stderr.isatty() and not as_lines:
            click.echo("\r\x1b[K", nl=False, err=True)

    trio.run(session)
    return case_results


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
    judgements = _judgements(path, sender, side)
    _print_judgements(judgements, as_lines)
    if any(judgement.violations for judgement in judgements):
        sys.exit(_FAILED)


def _judgements(path: Path, sender: str | None, side: str | None) -> list[Judgement]:
    from penstock.capture.dialogue.dialogues import Dialogues
    from penstock.capture.pcapng import Sender
    from penstock.recorder.captures.judging import judged

    with opened_captures([path], "Judging", False, side) as events:
        dialogues = Dialogues()
        heard = chain(chain.from_iterable(map(dialogues.receive, events)), dialogues.end())
        return judged(heard, None if sender is None else Sender(sender))


def _print_judgements(judgements: Sequence[Judgement], as_lines: bool) -> None:
    if as_lines:
        for judgement in judgements:
            print_json(judgement.as_line())
    else:
        print_lines(*chain.from_iterable(map(_judgement, judgements)) if judgements else ["Nothing was recorded."])


def _judgement(judgement: Judgement) -> Iterator[str]:
    messages = ", ".join(f"{count} {kind}" for kind, count in judgement.messages.most_common())
    outcome = "fail" if judgement.violations else "pass"
    yield f"{outcome}: {judgement.protocol}, {judgement.sender.value}: {messages or 'no messages'}"
    for clause, violation in sorted(judgement.violations.items()):
        first = violation.first
        times = "once," if violation.count == 1 else f"{violation.count} times, first"
        yield f"  {clause}"
        yield f"    {times} on connection {first.conversation.number} at byte {first.offset}: {first.rule}"
    if judgement.others:
        yield f"  {judgement.others} problems break no clause (penstock show --kind problem)"


# ---- clients ---------------------------------------------------------------------------------------------------------


def _run_client(
    protocol: str | None, command: Sequence[str], faults: Sequence[str], record: Path | None, as_lines: bool
) -> NoReturn:
    """Run a command before a gateway with faults, print what its clients did, and exit."""
    import trio

    from penstock.core.errors import CannotStart
    from penstock.observe import configure_logging
    from penstock.protocols.plugin import listener_kinds
    from penstock.tools.conform_run import chosen_faults, run_before_faults
    from penstock.tools.mock.run import CommandNotRun

    if protocol is not None and protocol not in listener_kinds():
        raise click.UsageError(f"{protocol!r} is no protocol: choose from {', '.join(listener_kinds())}")
    if not command:
        raise click.UsageError("missing COMMAND behind --")
    try:
        rules = chosen_faults(faults)
    except ValueError as error:
        raise click.UsageError(f"--fault: {error}") from None
    configure_logging("error", "auto")
    with tempfile.TemporaryDirectory(prefix="penstock-") as temporary:
        directory = record or Path(temporary)
        try:
            code, fired = trio.run(run_before_faults, command, rules, directory)
        except CommandNotRun as error:
            click.echo(f"Error: {error}", err=True)
            sys.exit(error.code)
        except CannotStart as error:
            raise _CannotTest(str(error)) from None
        judgements = [
            judgement
            for judgement in _judgements(directory, "client", "front")
            if protocol in (None, judgement.protocol)
        ]
    if as_lines:
        for rule in rules:
            print_json({"fault": rule.name, "count": fired[rule.name], "what": rule.in_words})
    else:
        wide = max(len(rule.name) for rule in rules)
        print_lines(
            f"{'fault':<{wide}}  times",
            *(f"{rule.name:<{wide}}  {fired[rule.name]:>5}" for rule in rules),
            "",
        )
    _print_judgements(judgements, as_lines)
    if not judgements:
        raise _CannotTest("COMMAND sent nothing; its clients must use the variables of penstock mock --help")
    sys.exit(_FAILED if any(judgement.violations for judgement in judgements) else code)
