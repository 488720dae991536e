"""The group of commands; each is imported when it is asked for."""

from __future__ import annotations

import click

__all__ = ["pipeline_commands"]


@click.group(name="pipeline")
def pipeline_commands() -> None:
    """Make tables of streams and recordings, with Spark."""
