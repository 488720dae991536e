"""Settings: every fault is named with its place, and the file that is shipped says the defaults."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock_spark.running.loading import SettingsError, load_settings, parse_settings
from penstock_spark.running.settings import CaptureSettings, JobSettings, SourceSettings, SparkSettings

SHIPPED = Path(__file__).parents[3] / "config" / "pipeline.toml"


def test_the_shipped_file_says_the_defaults_and_what_to_read() -> None:
    expected = JobSettings(
        spark=SparkSettings(master="local[*]"),
        source=SourceSettings(endpoint="http://127.0.0.1:8080", streams=("penstock/*",)),
        captures=CaptureSettings(path=("recordings",)),
    )
    assert load_settings(SHIPPED) == expected


def test_the_shipped_file_shows_every_key() -> None:
    text = SHIPPED.read_text()
    for name, table in msgspec.structs.asdict(JobSettings()).items():
        assert f"[{name}]" in text
        for key, value in msgspec.structs.asdict(table).items():
            assert (f"[{name}.{key}]" if isinstance(value, dict) else f"\n{key} = ") in text, f"{name}.{key}"


def test_an_empty_file_is_fine() -> None:
    assert parse_settings("") == JobSettings()


def test_all_faults_are_named_at_once() -> None:
    text = """
        [spark]
        mastr = "local[2]"
        driver_memory = "much"
        [target]
        format = "csv"
        file_bytes = 5
        interval_seconds = "long"
        [sink]
        x = 1
        [captures]
        path = ["a", 7]
    """
    with pytest.raises(SettingsError) as caught:
        parse_settings(text, "pipeline.toml")
    assert str(caught.value).split("\n") == [
        "pipeline.toml: at spark.mastr: unknown key; did you mean master?",
        r"pipeline.toml: at spark.driver_memory: expected a string that matches '^([1-9][0-9]*[kmgt]b?)?\\Z'",
        "pipeline.toml: at target.format: expected one of 'parquet', 'delta', 'iceberg', got 'csv'",
        "pipeline.toml: at target.file_bytes: expected a whole number >= 1048576",
        "pipeline.toml: at target.interval_seconds: expected a number, got a string",
        "pipeline.toml: at sink: unknown key; the keys here are spark, source, captures, target",
        "pipeline.toml: at captures.path[1]: expected a string, got a whole number",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("spark = 3", "at spark: expected a table, got a whole number"),
        (
            "[spark]\nconf = {'sparc.x' = 1}",
            "at spark: conf: sparc.x is not a setting of Spark, which begin with spark.",
        ),
        ("[source]\nstreams = ['a']", "at source: endpoint: needed with streams"),
        ("[source.options]\nstream = 'a'", "at source: options.stream: set the key of this name in [source] instead"),
        ("[spark.conf]\n'spark.x' = [1]", "at spark.conf.spark.x: expected a string, a number, true or false, got an"),
        ("[target]\npath = ''", "at target: path: must not be empty"),
        ("[", "is not TOML: "),
    ],
)
def test_faults(text: str, fault: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings(text, "x")
    [problem] = caught.value.problems
    assert problem.startswith(fault)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.toml: cannot be read: No such file"):
        load_settings(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(SettingsError, match=r"latin\.toml: is not UTF-8 text: .* at byte 5"):
        load_settings(tmp_path / "latin.toml")
