"""Archive the classes that the JVM of a small job loads, which the next ones map from one file.

    python -m penstock_spark.running.class_archive

A job of seconds spends a quarter of its processor time on parsing and linking 25,000 classes of Spark's jars. The
archive (JEP 350, "Dynamic CDS Archives") takes 200 MB below `share/penstock` of the environment, and 20 s to make;
`make .venv/.spark` does. A JVM that it does not fit, since Java or Spark is another one by now, ignores it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from penstock_spark.running.failures import CannotRun
from penstock_spark.running.session import CLASS_ARCHIVE, find_java

__all__ = ["make_class_archive"]

_SAMPLE: Final = Path(__file__).with_name("sample.pcapng")
"""The recording of a minute's tour: it has rows of every table."""
_SECONDS: Final = 600


def make_class_archive() -> None:
    """Run all jobs on a small recording, and write the classes that were loaded to `CLASS_ARCHIVE`.

    Raises CannotRun if Java is missing or too old, or the jobs fail, and OSError if the archive cannot be written.
    """
    find_java()
    CLASS_ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    CLASS_ARCHIVE.unlink(missing_ok=True)  # a JVM that uses one writes none
    with tempfile.TemporaryDirectory(prefix=f"{CLASS_ARCHIVE.stem}-", dir=CLASS_ARCHIVE.parent) as place:
        made, target = Path(place) / CLASS_ARCHIVE.name, Path(place) / "tables"
        words = [sys.executable, "-m", "penstock", "pipeline", "run", _SAMPLE, "--target", target]
        words += ["--report", target / "report.html"]
        words += ["--conf", f'spark.driver.extraJavaOptions="-XX:ArchiveClassesAtExit={made}"']
        # The JVM writes it after the command has ended; it keeps the pipes open until it is done.
        done = subprocess.run(
            list(map(str, words)), capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
        if not made.is_file():
            raise CannotRun(f"no classes archived, exit status {done.returncode}: {done.stderr.strip()[-2000:]}")
        made.replace(CLASS_ARCHIVE)


def _main() -> None:
    print("Archiving Java classes, so that small jobs start faster; this takes half a minute once.", flush=True)
    try:
        make_class_archive()
    except (CannotRun, OSError, subprocess.TimeoutExpired) as error:
        print(f"Small jobs start slower, since the archive of Java classes cannot be made: {error}", file=sys.stderr)


if __name__ == "__main__":
    _main()
