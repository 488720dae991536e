"""The command line where nothing is there that jobs need: help, wrong use, and what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock_spark.cli.main import COMMANDS, pipeline_commands

WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from penstock_spark.cli import pipeline_commands
pipeline_commands({arguments!r}, prog_name="penstock pipeline")
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(pipeline_commands, [str(one) for one in arguments])


def run_without(missing: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process in which these packages are not installed."""
    code = WITHOUT.format(missing=missing, arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_help_needs_neither_pyspark_nor_pyarrow() -> None:
    missing = ["pyspark", "py4j", "pyarrow", "matplotlib", "pandas", "numpy"]
    done = run_without(missing, "--help")
    assert done.returncode == 0, done.stderr
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)
    for name in COMMANDS:
        done = run_without(missing, name, "--help")
        assert done.returncode == 0 and "--master" in done.stdout, done.stderr


def test_a_missing_pyspark_is_explained() -> None:
    done = run_without(["pyspark", "pyarrow"], "run", "recordings")
    assert done.returncode == 3
    how = "install Penstock with its extra spark (in a checkout: pip install '.[spark]')"
    assert done.stderr == f"Error: pyspark and pyarrow cannot be imported: {how}\n"


def test_a_missing_java_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    result = run("quality", "recordings")
    assert result.exit_code == 3
    assert result.stderr.startswith("Error: Spark needs Java, but `java` is not in PATH and JAVA_HOME is not set.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], "nothing to read: give captures, or --endpoint and --stream, or a --config FILE that names them"),
        (["ingest", "--endpoint", "http://127.0.0.1:1"], "--endpoint needs --stream"),
        (["ingest", "--stream", "penstock/a"], "--stream needs --endpoint"),
        (
            ["ingest", "--endpoint", "htp://h:1", "--stream", "a"],
            "Error: endpoint: htp:// is neither http:// nor https://",
        ),
        (
            ["backfill", "a", "--endpoint", "x://b", "--name", "c"],
            "Error: endpoint: x:// is neither http:// nor https://",
        ),
        (["latency", "--by", "rooute"], "'rooute' is not one of 'route', 'protocol', 'stream'"),
        (["quality", "--conf", "spark.x"], "--conf spark.x: expected spark.KEY=VALUE"),
        (["quality", "--conf", "x=1"], "--conf x=1: expected spark.KEY=VALUE"),
        (["quality", "--config", "absent.toml"], "absent.toml: cannot be read: No such file or directory"),
        (["audit", "a", "b", "--name", "c"], "--name: expected LEFT=RIGHT, each stream once"),
        (
            ["backfill", "a", "--endpoint", "http://h:1", "--name", "c", "--to", "d"],
            "--to: expected STREAM=STREAM, each",
        ),
    ],
)
def test_wrong_use(arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_faults_of_a_file_are_all_named(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text("[target]\nformat = 'csv'\n[spark]\nmemory = 1\n")
    result = run("run", "--config", path)
    assert result.exit_code == 2
    assert "at target.format: expected one of" in result.stderr
    assert "at spark.memory: unknown key" in result.stderr
