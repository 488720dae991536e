"""The command line: `penstock serve`, `penstock check`, `penstock decode`."""

from penstock.cli.main import main

__all__ = ["main"]
