"""A process imports what it needs: each of Spark's Python processes pays for its imports."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import penstock_spark.source.datasource
print(*(name for name in ("clients.client", "sink.writer") if f"penstock_spark.{name}" in sys.modules))
"""


def test_a_process_that_only_plans_has_no_client() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == ([], "")
