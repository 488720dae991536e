"""Java, which Spark runs on: found, or its absence explained."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from penstock_spark.running.failures import CannotRun

__all__ = ["LEAST_VERSION", "Java", "find_java"]

LEAST_VERSION: Final = 17
"""What Spark 4 needs."""

_HOW: Final = (
    f"Install Java {LEAST_VERSION} or newer: `apt-get install openjdk-{LEAST_VERSION}-jre-headless` on Debian and "
    "Ubuntu, Eclipse Temurin (Adoptium) elsewhere. Then have `java` in PATH, or JAVA_HOME name its directory."
)
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_SECONDS: Final = 30


class Java(NamedTuple):
    """A program and its major version."""

    program: Path
    version: int


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java that Spark's own scripts would start: that of JAVA_HOME, else the first in PATH.

    Raises CannotRun, which says what was looked for, what was found, and how to get what is needed.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    if home:
        program, where = Path(home) / "bin" / "java", f"JAVA_HOME ({home})"
        if not os.access(program, os.X_OK):
            raise CannotRun(f"Spark needs Java, and {where} has no bin/java. {_HOW}")
    else:
        found = shutil.which("java", path=environment.get("PATH", ""))
        if found is None:
            raise CannotRun(f"Spark needs Java, and there is none: no `java` in PATH, and no JAVA_HOME. {_HOW}")
        program, where = Path(found), "PATH"
    version = _version(program)
    if version < LEAST_VERSION:
        raise CannotRun(f"Spark needs Java {LEAST_VERSION} or newer; {program}, from {where}, is {version}. {_HOW}")
    return Java(program, version)


def _version(program: Path) -> int:
    """What `java -version` says, on standard error, in a form that has not changed since Java 1.0."""
    try:
        told = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_SECONDS, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRun(f"Spark needs Java, and {program} cannot be run: {error}. {_HOW}") from error
    found = _VERSION.search(told.stderr + told.stdout)
    if told.returncode or found is None:
        words = (told.stderr or told.stdout).strip().partition("\n")[0]
        raise CannotRun(f"Spark needs Java, and {program} is none that works: {words or 'it says nothing'}. {_HOW}")
    return int(found[1])
