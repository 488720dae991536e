"""Java is found as Spark's scripts find it, or its absence explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_spark.running.failures import CannotRun
from penstock_spark.running.session import find_java


def program(directory: Path, *lines: str) -> Path:
    """A `java` in a directory's `bin`."""
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def saying(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("25-ea", 25)])
def test_a_java_in_path(tmp_path: Path, version: str, major: int) -> None:
    java = program(tmp_path, saying(version))
    assert find_java({"PATH": f"/nowhere:{java.parent}"}) == (java, major)


def test_java_home_goes_first(tmp_path: Path) -> None:
    old = program(tmp_path / "old", saying("11.0.2"))
    new = program(tmp_path / "new", saying("21.0.1"))
    assert find_java({"PATH": str(old.parent), "JAVA_HOME": str(tmp_path / "new")}).program == new


def test_words_before_the_version(tmp_path: Path) -> None:
    java = program(tmp_path, "echo 'Picked up _JAVA_OPTIONS: -Xmx1g' >&2", saying("17.0.1"))
    assert find_java({"PATH": str(java.parent)}).version == 17


def test_none_at_all() -> None:
    with pytest.raises(CannotRun) as caught:
        find_java({"PATH": "/nowhere"})
    assert str(caught.value) == (
        "Spark needs Java, but `java` is not in PATH and JAVA_HOME is not set. Install Java 17 or newer: "
        "`apt-get install openjdk-17-jre-headless` on Debian and Ubuntu, Eclipse Temurin (Adoptium) elsewhere. Then "
        "have `java` in PATH, or JAVA_HOME name its directory."
    )


def test_a_java_home_without_java(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=rf"JAVA_HOME \({tmp_path}\) has no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("11.0.2", 11)])
def test_one_that_is_too_old(tmp_path: Path, version: str, major: int) -> None:
    java = program(tmp_path, saying(version))
    with pytest.raises(CannotRun, match=rf"needs Java 17 or newer; {java}, from PATH, is {major}\. Install"):
        find_java({"PATH": str(java.parent)})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("echo 'Unable to locate a Java Runtime.' >&2; exit 1", "does not work: Unable to locate a Java Runtime."),
        ("exit 0", "does not work: it prints nothing"),
    ],
)
def test_one_that_does_not_work(tmp_path: Path, line: str, words: str) -> None:
    java = program(tmp_path, line)
    with pytest.raises(CannotRun, match=words):
        find_java({"PATH": str(java.parent)})


def test_one_that_cannot_be_started(tmp_path: Path) -> None:
    java = program(tmp_path)
    java.write_text("#!/nowhere/sh\n")
    with pytest.raises(CannotRun, match="cannot be run"):
        find_java({"PATH": str(java.parent)})
