"""`penstock store`: look after the files of the embedded store."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from penstock.cli.output import json_lines_option, print_json, print_lines

__all__ = ["store_commands"]


@click.group("store")
def store_commands() -> None:
    """Look after the files of the embedded store."""


@store_commands.command("check")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Configuration file (TOML) of the gateway, which names the store's directory.",
)
@click.option("--directory", type=click.Path(path_type=Path), help="The store's directory (default: ./data).")
@json_lines_option("damaged batch, and one for the counts")
def check_command(config: Path | None, directory: Path | None, as_lines: bool) -> None:
    """Compare every stored payload with its checksum.

    Reads all records that clients can read, whether or not the gateway runs, and changes nothing. Without a gateway,
    SQLite examines the structure of its database, too. Exits with 1 if something is damaged, otherwise with 0.
    """
    import sqlite3

    from penstock.core.errors import CannotStart
    from penstock.store.scrub import Damage, scrub

    is_damaged = False
    try:
        for report in scrub(directory or _configured(config)):
            is_damaged |= isinstance(report, Damage)
            if as_lines:
                print_json(report._asdict())
            elif isinstance(report, Damage):
                records = f"{report.stream} {report.first_seq_num}..{report.last_seq_num}"
                print_lines(f"damaged: {records if report.stream else 'the database'}: {report.reason}")
            else:
                print_lines(f"checked {report.payloads} payloads of {report.streams} streams, {report.size} bytes")
                if report.unsealed:
                    print_lines(
                        f"{report.unsealed} of them are of an older gateway, without a checksum: decoded instead"
                    )
                if not report.has_structure:
                    print_lines("a gateway uses the store: the structure of its database was not examined")
    except (CannotStart, sqlite3.Error) as error:
        raise click.ClickException(str(error)) from error
    sys.exit(is_damaged)


def _configured(config: Path | None) -> Path:
    from penstock.app.config import ConfigError, default_config, load_config

    try:
        return Path((default_config() if config is None else load_config(config)).store.directory)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
