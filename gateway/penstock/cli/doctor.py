"""`penstock doctor`: what is wrong with this machine, or with a configuration on it, and what to do."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Final

import click

from penstock.doctor.examination import examine
from penstock.doctor.findings import Finding, State

__all__ = ["doctor_command"]

_WIDTH: Final = 120
_COLOURS: Final = {State.FINE: "green", State.NOTABLE: "yellow", State.WRONG: "red"}


@click.command("doctor")
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    help="Configuration file (TOML). Without one: the built-in.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, one array of objects, for programs.")
def doctor_command(path: Path | None, as_json: bool) -> None:
    """Look whether a gateway would run well here, and say what to do where it would not.

    It looks at versions, limits, memory, the clock, the data directory and its disk, ports, certificates, servers
    behind the gateway and optional parts. Nothing is changed. The exit code is 1 where something is wrong, else 0.
    """
    findings = []
    for finding in examine(path):
        findings.append(finding)
        if not as_json:
            click.echo(_line(finding))
    if as_json:
        click.echo(json.dumps([{**one._asdict(), "state": one.state.value} for one in findings], indent=2))
    sys.exit(any(one.state is State.WRONG for one in findings))


def _line(finding: Finding) -> str:
    said = textwrap.fill(
        f"{finding.about}: {finding.text}" + (f". {finding.advice}" if finding.advice else ""),
        _WIDTH,
        initial_indent=" " * 7,
        subsequent_indent=" " * 7,
    )
    return click.style(f"{finding.state.value:<7}", fg=_COLOURS[finding.state]) + said[7:]
