"""`penstock mock`: answer clients as the recorded servers did, while a command runs or until it is stopped."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from penstock.capture.pcapng import Side
from penstock.cli.captures.opened import side_option
from penstock.core.errors import CannotStart
from penstock.protocols.environment import client_variables

__all__ = ["mock_command"]

if TYPE_CHECKING:
    import ssl

    from penstock.core.address import Address

_MISS: Final = ("fail", "passthrough", "record")


def _variables() -> str:
    """Return the environment variables that a command is given, for help."""
    lines = (f"{kind}: {', '.join(names)}" for kind, names in client_variables().items())
    return "\b\nThe command finds the mock servers in these environment variables:\n" + "\n".join(
        f"  {line}" for line in lines
    )


@click.command("mock", epilog=_variables())
@click.argument("recording", type=click.Path(path_type=Path))
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
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
@click.option(
    "--listen",
    "listeners",
    multiple=True,
    metavar="KIND=HOST:PORT",
    help="Address for one kind of clients, such as s3p=127.0.0.1:7500. Without COMMAND no other kind is served.",
)
@click.option(
    "--tls-certificate", type=click.Path(dir_okay=False, exists=True), help="PEM file with a chain to serve TLS with."
)
@click.option(
    "--tls-key", type=click.Path(dir_okay=False, exists=True), help="PEM file with the certificate's private key."
)
@side_option("Play the gateway (front), or the servers behind it (back).", both=False)
@click.option("--repeat", is_flag=True, help="Give the last of equal answers again when all were given.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write the report as JSON.")
def mock_command(
    recording: Path,
    command: tuple[str, ...],
    on_miss: str,
    urls: tuple[str, ...],
    tls_ca: str | None,
    forks: tuple[str, ...],
    test: str,
    listeners: tuple[str, ...],
    tls_certificate: str | None,
    tls_key: str | None,
    side: str | None,
    repeat: bool,
    report: Path | None,
) -> None:
    """Answer clients as the servers of RECORDING did, whatever the order and the connection of the requests.

    Runs COMMAND, and exits as it does (128 + n for signal n), or with 1 if it passed but a request had no answer.
    Without COMMAND, serves until SIGINT or SIGTERM. RECORDING is a capture or a directory; with --on-miss record it
    may be a new one.
    """
    import trio

    from penstock.observe import configure_logging
    from penstock.tools.mock.fork import parse_fork
    from penstock.tools.mock.run import CommandNotRun, MockSettings, run_with_mocks
    from penstock.tools.target.url import parse_target

    if (on_miss == "fail") != (not urls):
        raise click.UsageError(f"--on-miss {on_miss} {'takes no' if urls else 'needs'} --to URL")
    if tls_key is not None and tls_certificate is None:
        raise click.UsageError("--tls-key needs --tls-certificate")
    if tls_certificate is not None and command:
        raise click.UsageError("COMMAND is given addresses without TLS: --tls-certificate takes no COMMAND")
    try:
        settings = MockSettings(
            recording=recording,
            servers=[parse_target(url) for url in urls],
            tls_ca=tls_ca,
            records=on_miss == "record",
            forks=tuple(map(parse_fork, forks)),
            repeats=repeat,
            test=test,
            listeners=dict(map(_parse_listener, listeners)),
            tls=None if tls_certificate is None else _tls(tls_certificate, tls_key),
            side=None if side is None else Side(side),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    configure_logging("error", "auto")
    try:
        code, outcome = trio.run(run_with_mocks, settings, command, _print_addresses)
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


def _parse_listener(text: str) -> tuple[str, Address]:
    """Return the kind and the address of KIND=HOST:PORT. Raises ValueError."""
    from penstock.core.address import Address
    from penstock.protocols.plugin import listener_kinds

    kind, _, address = text.partition("=")
    if kind not in listener_kinds():
        raise ValueError(f"--listen {text}: expected KIND=HOST:PORT; kinds are {', '.join(listener_kinds())}")
    try:
        return kind, Address.parse(address)
    except ValueError as error:
        raise ValueError(f"--listen {text}: {error}") from error


def _tls(certificate: str, key: str | None) -> ssl.SSLContext:
    from penstock.net.tls import tls_context

    try:
        return tls_context(certificate, key)
    except OSError as error:  # ssl.SSLError is one
        raise ValueError(f"cannot use {certificate} and {key or certificate} for TLS: {error}") from error


def _print_addresses(addresses: Mapping[str, Address]) -> None:
    for kind, address in addresses.items():
        click.echo(f"penstock: {kind} on {address}", err=True)
