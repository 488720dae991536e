"""A process imports one protocol: each of Spark's Python processes pays for its imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

MODULES = {"http": "s2", "durable": "durable", "segment": "segment"}
PROGRAM = """
import sys
from penstock_spark.clients import open_client
from penstock_spark.clients.endpoint import parse_endpoint
import penstock_spark.source.datasource
def loaded():
    return [name for name in ("s2", "durable", "segment") if f"penstock_spark.clients.{{name}}.client" in sys.modules]
assert not loaded(), loaded()
assert "penstock_spark.sink.writer" not in sys.modules
open_client(parse_endpoint("{scheme}://127.0.0.1:1")).close()
print(*loaded())
"""


@pytest.mark.parametrize("scheme", MODULES)
def test_the_protocols_of_others_are_not_imported(scheme: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(scheme=scheme)], capture_output=True, text=True, check=False
    )
    assert (done.stdout.split(), done.stderr) == ([MODULES[scheme]], "")
