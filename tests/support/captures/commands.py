"""The commands that look at captures, run in this process."""

from __future__ import annotations

import sys
from pathlib import Path

from click.testing import CliRunner, Result
from support.captures import NOW_NS, s2_talk, s3p_talk, written

from penstock.cli import main

__all__ = ["PENSTOCK", "lines", "run", "two_conversations"]

PENSTOCK = Path(sys.executable).parent / "penstock"


def run(*arguments: str | Path, data: bytes | None = None) -> Result:
    """Run a command and return its output and exit code."""
    return CliRunner().invoke(main, list(map(str, arguments)), input=data)


def lines(*arguments: str | Path) -> list[str]:
    """Run a command, which must succeed, and return the lines of its standard output."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def two_conversations(path: Path) -> Path:
    """Return a capture of a conversation over S3P, and of one over S2."""
    path.write_bytes(written([*s3p_talk(1), *s2_talk(2, NOW_NS + 10**9)]))
    return path
