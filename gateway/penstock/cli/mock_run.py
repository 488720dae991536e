"""`penstock mock run`: run a command whose servers are mocks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import click

from penstock.core.errors import CannotStart
from penstock.protocols.environment import client_variables

__all__ = ["mock_run_command"]

_MISS: Final = ("fail", "passthrough", "record")


def _variables() -> str:
    """Return the environment variables that a command is given, for help."""
    lines = (f"{kind}: {', '.join(names)}" for kind, names in client_variables().items())
    return "\b\nThe command finds the mock servers in these environment variables:\n" + "\n".join(
        f"  {line}" for line in lines
    )


@click.command("run", epilog=_variables())
@click.argument("recording", type=click.Path(path_type=Path))
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--on-miss",
    type=click.Choice(_MISS),
    default="fail",
    show_default=True,
    help="Treatment of a request that was not recorded: an error; the answer of a server (--to); or that, recorded.",
)
@click.option("--to", "urls", multiple=True, metavar="URL", help="A server that answers what was not recorded.")
@click.option(
    "--tls-ca",
    type=click.Path(dir_okay=False, exists=True),
    help="PEM file of authorities to trust for the server's certificate.",
)
@click.option(
    "--fork",
    "forks",
    multiple=True,
    metavar="STREAM[@POSITION]",
    help="Serve a recorded stream up to this sequence number from a store that the command may append to.",
)
@click.option("--test", metavar="NAME", default="", help="The test that asks, until the command names another.")
@click.option("--repeat", is_flag=True, help="Give the last of equal answers again when all were given.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write the report as JSON.")
def mock_run_command(
    recording: Path,
    command: tuple[str, ...],
    on_miss: str,
    urls: tuple[str, ...],
    tls_ca: str | None,
    forks: tuple[str, ...],
    test: str,
    repeat: bool,
    report: Path | None,
) -> None:
    """Run COMMAND with mock servers that give the answers of RECORDING, whatever the order and the connection of the
    requests.

    Exits as the command does (128 + n for signal n), or with 1 if it passed but a request had no answer. RECORDING is
    a capture or a directory; with --on-miss record it may be a new one.
    """
    import trio

    from penstock.observe import configure_logging
    from penstock.tools.mock_run.fork import parse_fork
    from penstock.tools.mock_run.run import CommandNotRun, MockRunSettings, run_with_mocks
    from penstock.tools.target.url import parse_target

    if (on_miss == "fail") != (not urls):
        raise click.UsageError(f"--on-miss {on_miss} {'takes no' if urls else 'needs'} --to URL")
    try:
        settings = MockRunSettings(
            recording=recording,
            servers=[parse_target(url) for url in urls],
            tls_ca=tls_ca,
            records=on_miss == "record",
            forks=tuple(map(parse_fork, forks)),
            repeats=repeat,
            test=test,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    configure_logging("error", "auto")
    try:
        code, outcome = trio.run(run_with_mocks, settings, command)
    except CommandNotRun as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(error.code)
    except CannotStart as error:
        raise click.ClickException(str(error)) from error
    if report is not None:
        report.write_text(json.dumps(outcome.as_json(), indent=2) + "\n", encoding="utf-8")
    for line in outcome.lines():
        click.echo(f"penstock: {line}", err=True)
    sys.exit(code or (1 if outcome.missed_count else 0))
