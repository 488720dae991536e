"""Java programs that drive classes from Maven Central: one question a line, one answer a line."""

from __future__ import annotations

import os
import selectors
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.peers import need
from support.process import GatewayProcess

__all__ = ["MAVEN_SECONDS", "PROJECT", "JavaPeer", "JavaProgram", "fetch_libraries", "running_again", "running_java"]

MAVEN_SECONDS = 300
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


def fetch_libraries(project: Path, directory: Path) -> None:
    """Copy the dependencies in `project`'s pom.xml to `directory`. Skips the test if that is not possible."""
    fetch = [need("mvn"), "-q", "-B", "-f", str(project / "pom.xml"), "dependency:copy-dependencies"]
    fetched = subprocess.run(
        [*fetch, f"-DoutputDirectory={directory}"], capture_output=True, text=True, timeout=MAVEN_SECONDS, check=False
    )
    if fetched.returncode:
        pytest.skip(f"Maven cannot get what {project.name}/pom.xml asks for: {fetched.stdout[-500:]}")


@contextmanager
def running_java(project: Path, main: str, directory: Path, *arguments: object) -> Iterator[JavaProgram]:
    """Compile the programs of `project` and run `main`, with its dependencies from pom.xml in `directory`.

    Skips the test if Java or Maven is missing, or the dependencies are unavailable.
    """
    compiler = need("javac")
    fetch_libraries(project, directory)
    sources = map(str, project.glob("*.java"))
    subprocess.run([compiler, "-cp", _path(directory), "-d", str(directory), *sources], check=True, timeout=100)
    with running_again(main, directory, *arguments) as program:
        yield program


@contextmanager
def running_again(main: str, directory: Path, *arguments: object) -> Iterator[JavaProgram]:
    """Run `main` after `running_java` has put everything into `directory`."""
    java = need("java")
    command = [java, "-Xmx300m", "-cp", _path(directory), main, *map(str, arguments)]
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
