"""`penstock mock`: answer clients as the recorded server did, until it is stopped or while a command runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.captures.opened import capture_argument, one_side, opened_captures, side_option
from penstock.cli.mock_run import mock_run_command
from penstock.cli.output import json_option, print_result
from penstock.core.errors import CannotStart
from penstock.tools.mock.report import MockReport
from penstock_analysis.plugin import plugins

if TYPE_CHECKING:
    from penstock.core.address import Address
    from penstock.tools.mock.script import Script

__all__ = ["mock_commands"]


class _MockCommands(click.Group):
    """The group, whose command `play` need not be named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [_play.name or "", *args]
        return super().parse_args(ctx, args)


@click.group("mock", cls=_MockCommands)
def mock_commands() -> None:
    """Answer clients as the recorded server did.

    `penstock mock CAPTURE... --listen HOST:PORT` is short for `penstock mock play`.
    """


@mock_commands.command("play")
@capture_argument
@click.option("--listen", required=True, metavar="HOST:PORT", help="Address for clients; port 0 picks a free one.")
@click.option(
    "--protocol",
    type=click.Choice(sorted(plugins())),
    help="Play only conversations in this protocol (default: that of each client's first bytes).",
)
@side_option("Play the gateway (front), or the servers behind it (back).", both=False)
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Keep the recorded delays, N times as fast.",
)
@click.option(
    "--strict", is_flag=True, help="Disconnect a client that deviates from the recording; exit with 1 if any did."
)
@click.option("--repeat", is_flag=True, help="Start again from the first conversation when all were played.")
@click.option("--once", is_flag=True, help="Exit when all conversations were played.")
@click.option(
    "--tls-certificate", type=click.Path(dir_okay=False, exists=True), help="PEM file with the certificate chain."
)
@click.option(
    "--tls-key", type=click.Path(dir_okay=False, exists=True), help="PEM file with the certificate's private key."
)
@json_option
def _play(captures: tuple[Path, ...], listen: str, as_json: bool, **said: Any) -> None:
    """Play recorded servers to clients, byte for byte.

    Each client is given the first unplayed conversation, in the order of the recording, that begins as the client does.
    Each reply is sent once the client has sent as much as the recorded client had. Ends with SIGINT, or with --once,
    and reports how clients deviated. Several CAPTUREs are parts of one recording.
    """
    from penstock.core.address import Address
    from penstock.observe import configure_logging
    from penstock.tools.mock.script import Script

    try:
        address = Address.parse(listen)
    except ValueError as error:
        raise click.UsageError(f"--listen: {error}") from error
    if said["once"] and said["repeat"]:
        raise click.UsageError("--once and --repeat cannot be combined")
    if said["tls_key"] is not None and said["tls_certificate"] is None:
        raise click.UsageError("--tls-key needs --tls-certificate")
    configure_logging("warning", "auto")
    report = MockReport()
    try:
        with Script(said["protocol"], one_side(captures, said["side"])) as script:
            _load(captures, script)
            _serve(address, script, said, report)
    except CannotStart as error:
        raise click.ClickException(str(error)) from error
    print_result(report.as_json(), report.lines(), as_json)
    if said["strict"] and not report.same:
        sys.exit(1)


def _load(captures: tuple[Path, ...], script: Script) -> None:
    with opened_captures(captures, "reading", prints=False) as events:
        script.load(events)
    for reason, count in script.left_out.items():
        click.echo(f"not played: {count} {'conversation' if count == 1 else 'conversations'}: {reason}", err=True)
    if not script.left:
        raise CannotStart("the capture has no conversation that can be played")


def _serve(address: Address, script: Script, said: dict[str, Any], report: MockReport) -> None:
    import trio

    from penstock.cli.signals import until_signalled
    from penstock.tools.mock.server import MockSettings, mock_tls, serve_mock

    certificate = said["tls_certificate"]
    tls = None if certificate is None else mock_tls(certificate, said["tls_key"], script)
    settings = MockSettings(
        protocol=said["protocol"] or "",
        strict=said["strict"],
        speed=said["speed"],
        repeat=said["repeat"],
        once=said["once"],
    )

    def listening(addresses: Sequence[Address]) -> None:
        where = " and ".join(map(str, addresses))
        what = "1 conversation is" if script.left == 1 else f"{script.left} conversations are"
        click.echo(f"{what} played on {where}", err=True)

    trio.run(until_signalled, lambda: serve_mock(address, script, settings, report, listening, tls))


mock_commands.add_command(mock_run_command)
