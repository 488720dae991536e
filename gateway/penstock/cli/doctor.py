"""`penstock doctor`: find what is wrong with this machine, or with a configuration on it, and say what to do."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Final

import click

from penstock.app.doctor.findings import Finding, Severity
from penstock.cli.output import json_lines_option, print_json, print_lines

__all__ = ["doctor_command"]

_WIDTH: Final = 120
_COLOURS: Final = {Severity.FINE: "green", Severity.NOTABLE: "yellow", Severity.WRONG: "red"}


@click.command("doctor")
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    help="Configuration file (TOML; default: the built-in configuration).",
)
@json_lines_option("finding")
def doctor_command(path: Path | None, as_lines: bool) -> None:
    """Check whether a gateway would run well here, and say what to do if not.

    Checks versions, limits, memory, the clock, the data directory and its disk, ports, certificates, servers behind the
    gateway and optional parts. Changes nothing. Exits with 1 if something is wrong, otherwise with 0.
    """
    from penstock.app.doctor.examination import examine

    findings = []
    for finding in examine(path):
        findings.append(finding)
        if as_lines:
            print_json({**finding._asdict(), "state": finding.state.value})
        else:
            print_lines(_line(finding))
    sys.exit(any(one.state is Severity.WRONG for one in findings))


def _line(finding: Finding) -> str:
    text = textwrap.fill(
        f"{finding.about}: {finding.text}" + (f". {finding.advice}" if finding.advice else ""),
        _WIDTH,
        initial_indent=" " * 7,
        subsequent_indent=" " * 7,
    )
    return click.style(f"{finding.state.value:<7}", fg=_COLOURS[finding.state]) + text[7:]
