"""The programs of docs/pipeline.md, in order, in the one session, against a real gateway and a real recording."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.captures.small_recording import small_recording
from support.process import BASIN, GatewayProcess
from support.s2.client import S2Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"

BODIES = ["first order", "second order", "third order"]
PRINTED = {
    'selectExpr("seq_num", "timestamp"': ["first order"],
    'groupBy("stream").count()': ["penstock/orders|    2|"],
    '"table", "records"': [" appended|", "|delivered|"],
    "audit(": ["   good|", "  equal|"],
}
"""Output of the program that contains the key."""


def programs(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_programs_run(
    spark: SparkSession,
    fresh_gateway: GatewayProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = S2Client(("127.0.0.1", fresh_gateway.s2_port), BASIN)
    client.append("orders", *BODIES)
    recordings = small_recording(tmp_path / "recorded")
    names: dict[str, object] = {}
    places = {"http://127.0.0.1:8080": fresh_gateway.s2_url}
    for name in ("checkpoint", "orders.parquet"):  # the session's directory is not this one
        places[f'"{name}"'] = f'"{tmp_path / name}"'
    places['"recordings"'] = f'"{recordings}"'
    expected = dict(PRINTED)
    for program in programs(PAGE.read_text()):
        written = program
        for there, here in places.items():
            program = program.replace(there, here)
        exec(compile(program, str(PAGE), "exec"), names)
        printed = capsys.readouterr().out
        for key in [key for key in expected if key in written]:
            for text in expected.pop(key):
                assert text in printed, f"{written}\n{printed}"
    assert not expected
    assert client.bodies("copies", seq_num=0) == BODIES
    assert client.bodies("sorted", seq_num=0) == BODIES
