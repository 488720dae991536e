"""Java programs that drive classes from Maven Central: one question a line, one answer a line."""

from __future__ import annotations

import atexit
import os
import selectors
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pytest
from support.peers import need
from support.process import GatewayProcess

__all__ = [
    "MAVEN_SECONDS",
    "PROJECT",
    "QUICK_START",
    "JavaPeer",
    "JavaProgram",
    "fetch_libraries",
    "running_again",
    "running_java",
]

MAVEN_SECONDS = 300
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of a program that runs for seconds: it need not be compiled to its fastest."""
PROJECT = Path(__file__).parents[2] / "peers" / "java" / "client"
"""The programs that drive Pravega's client; `Peer` is the main one."""


class JavaProgram:
    """A running program."""

    def __init__(self, process: subprocess.Popen[bytes], complaints: Path) -> None:
        self._process = process
        self._complaints = complaints
        self._selector = selectors.DefaultSelector()
        assert process.stdout is not None
        self._selector.register(process.stdout, selectors.EVENT_READ)

    def ask(self, *question: object, seconds: float = 60) -> list[str]:
        """The words of the answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, question)).encode() + b"\n")
        self._process.stdin.flush()
        line = b""
        while not line.endswith(b"\n"):
            ready = self._selector.select(seconds)
            piece = os.read(self._process.stdout.fileno(), 1 << 20) if ready else b""
            assert piece, f"no answer to {question} within {seconds} s\n{self._complaints.read_text()[-3000:]}"
            line += piece
        return line.decode().split()


class JavaPeer:
    """Pravega's Java client (`Peer.java`) at a controller; `gateway`: whose that is, None for Pravega's own."""

    def __init__(self, java: JavaProgram, gateway: GatewayProcess | None) -> None:
        self._java = java
        self.gateway = gateway

    def ask(self, *question: object, seconds: float = 60) -> list[str]:
        """The words of an answer that is no failure."""
        verdict, *words = self._java.ask(*question, seconds=seconds)
        assert verdict == "ok", (question, words)
        return words

    def fails(self, *question: object, seconds: float = 60) -> str:
        """Ask a question that must fail, and return the failure's text."""
        verdict, *words = self._java.ask(*question, seconds=seconds)
        assert verdict == "failed", (question, words)
        return " ".join(words)

    def restart(self) -> None:
        """Start the gateway anew, where it is one: Pravega's emulator keeps nothing."""
        if self.gateway is not None:
            self.gateway.restart()


@lru_cache
def _built(project: Path) -> Path:
    """Return a folder with the dependencies in `project`'s pom.xml and its programs: made once for all tests, as Maven
    and the compiler take some seconds. Skips the test if that is not possible.
    """
    sources = [str(path) for path in project.glob("*.java")]
    compiler, maven = need("javac") if sources else "", need("mvn")
    folder = Path(tempfile.mkdtemp(prefix="penstock-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    fetch = [maven, "-q", "-B", "-f", str(project / "pom.xml"), "dependency:copy-dependencies"]
    fetched = subprocess.run(
        [*fetch, f"-DoutputDirectory={folder}"], capture_output=True, text=True, timeout=MAVEN_SECONDS, check=False
    )
    if fetched.returncode:
        pytest.skip(f"Maven cannot get what {project.name}/pom.xml asks for: {fetched.stdout[-500:]}")
    if sources:
        subprocess.run([compiler, "-cp", _path(folder), "-d", str(folder), *sources], check=True, timeout=100)
    return folder


def fetch_libraries(project: Path, directory: Path) -> None:
    """Put the dependencies in `project`'s pom.xml, and its programs, into `directory`. Skips the test if that is not
    possible.
    """
    for path in _built(project).iterdir():
        (directory / path.name).symlink_to(path)


@contextmanager
def running_java(project: Path, main: str, directory: Path, *arguments: object) -> Iterator[JavaProgram]:
    """Compile the programs of `project` and run `main`, with its dependencies from pom.xml in `directory`.

    Skips the test if Java or Maven is missing, or the dependencies are unavailable.
    """
    directory.mkdir(exist_ok=True)
    fetch_libraries(project, directory)
    with running_again(main, directory, *arguments) as program:
        yield program


@contextmanager
def running_again(main: str, directory: Path, *arguments: object) -> Iterator[JavaProgram]:
    """Run `main` after `running_java` has put everything into `directory`."""
    command = [need("java"), *QUICK_START, "-Xmx300m", "-cp", _path(directory), main, *map(str, arguments)]
    complaints = directory / "stderr.log"
    with (
        complaints.open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        try:
            yield JavaProgram(process, complaints)
        finally:
            process.kill()


def _path(directory: Path) -> str:
    """Return the class path of a directory."""
    return f"{directory}/*:{directory}"
