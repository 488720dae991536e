"""Selection of the source from flags and the file together."""

from __future__ import annotations

from penstock_spark.cli.common import Job
from penstock_spark.cli.moving import require_source
from penstock_spark.running.settings import CaptureSettings, JobSettings, SourceSettings

FILE = JobSettings(
    source=SourceSettings(
        endpoint="http://127.0.0.1:8080", streams=("penstock/*",), options={"token_variable": "TOKEN"}
    ),
    captures=CaptureSettings(path=("recordings",)),
)


def told(*captures: str, endpoint: str | None = None, streams: tuple[str, ...] = ()) -> JobSettings:
    return require_source(Job(FILE, False), captures, endpoint, streams, None).settings


def test_without_flags_the_file_says_all() -> None:
    assert told() == FILE


def test_captures_alone() -> None:
    found = told("a.pcapng", "b/*.zst")
    assert found.captures.path == ("a.pcapng", "b/*.zst")
    assert found.source.streams == ()


def test_streams_alone() -> None:
    found = told(streams=("penstock/one", "penstock/two"))
    assert found.captures.path == ()
    assert found.source.streams == ("penstock/one", "penstock/two")
    assert found.source.endpoint == "http://127.0.0.1:8080"
    assert found.source.options == {"token_variable": "TOKEN"}


def test_another_server() -> None:
    found = told(endpoint="http://127.0.0.1:8081", streams=("penstock/hello",))  # it does not get the other's token
    assert found.source == SourceSettings(endpoint="http://127.0.0.1:8081", streams=("penstock/hello",))


def test_both() -> None:
    found = told("x", streams=("penstock/one",))
    assert (found.captures.path, found.source.streams) == (("x",), ("penstock/one",))
