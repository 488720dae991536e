"""`penstock mock`: the recorded server answers again."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import trio

from penstock.cli.captures.opened import capture_argument, opened
from penstock.cli.signals import until_signalled
from penstock.config import Address
from penstock.errors import CannotStart
from penstock.mock.report import MockReport
from penstock.mock.script import Script
from penstock.mock.server import MockSettings, mock_tls, serve_mock
from penstock.observe import configure_logging
from penstock_codecs.capture import Side

__all__ = ["mock_command"]

_SIDES: Final = {"front": Side.FRONT, "back": Side.BACK}


@click.command("mock")
@capture_argument
@click.option("--listen", required=True, metavar="HOST:PORT", help="Where clients connect; port 0 takes any free one.")
@click.option(
    "--protocol",
    type=click.Choice(["s2", "s3p", "segment", "controller"]),
    help="Only conversations that speak this; else what each client's first bytes say.",
)
@click.option(
    "--side",
    type=click.Choice(list(_SIDES)),
    default="front",
    show_default=True,
    help="The gateway is played (front), or the servers behind it (back).",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Keep the recorded delays, N times as fast.",
)
@click.option("--strict", is_flag=True, help="Leave a client that says something else, and end with 1 if any did.")
@click.option("--repeat", is_flag=True, help="Begin again when all conversations were played.")
@click.option("--once", is_flag=True, help="End when all conversations were played.")
@click.option(
    "--tls-certificate", type=click.Path(dir_okay=False, exists=True), help="PEM file with the certificate chain."
)
@click.option("--tls-key", type=click.Path(dir_okay=False, exists=True), help="PEM file with its private key.")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
def mock_command(captures: tuple[Path, ...], listen: str, as_json: bool, **said: Any) -> None:
    """Answer clients as the recorded server did, byte for byte.

    Each client is given the recorded conversation that begins as it does, in the order of the recording, each once. It
    is answered when it has said as much as the recorded one had. Ends with SIGINT, or with --once, and reports what
    clients said otherwise. Several CAPTUREs are parts of one recording.
    """
    try:
        address = Address.parse(listen)
    except ValueError as error:
        raise click.UsageError(f"--listen: {error}") from error
    if said["once"] and said["repeat"]:
        raise click.UsageError("--once and --repeat do not go together")
    if said["tls_key"] is not None and said["tls_certificate"] is None:
        raise click.UsageError("--tls-key goes with --tls-certificate")
    configure_logging("warning", "auto")
    report = MockReport()
    try:
        with Script(said["protocol"], _SIDES[said["side"]]) as script:
            _load(captures, script)
            _serve(address, script, said, report)
    except CannotStart as error:
        raise click.ClickException(str(error)) from error
    for line in [json.dumps(report.as_json(), ensure_ascii=False)] if as_json else report.lines():
        click.echo(line)
    if said["strict"] and not report.same:
        sys.exit(1)


def _load(captures: tuple[Path, ...], script: Script) -> None:
    with opened(captures, "reading", prints=False) as events:
        script.load(events)
    for why, count in script.left_out.items():
        click.echo(f"not played: {count} {'conversation' if count == 1 else 'conversations'}: {why}", err=True)
    if not script.left:
        raise CannotStart("there is no conversation in the capture that could be played")


def _serve(address: Address, script: Script, said: dict[str, Any], report: MockReport) -> None:
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
