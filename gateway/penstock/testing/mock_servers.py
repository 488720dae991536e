"""Mock servers for tests, in a process of their own.

`penstock mock` is given a command that prints its environment and waits until its input ends.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

from penstock.tools.mock.naming import MOCK_URL

__all__ = ["MockServers", "RequestsMissed", "name_test"]

_HOLD: Final = "import json, os, sys; print(json.dumps(dict(os.environ)), flush=True); sys.stdin.read()"
_SECONDS: Final = 120.0
"""Time limit of an answer, and of the end of the process."""


class RequestsMissed(AssertionError):
    """Requests that the recording does not have were answered with an error; the message lists them."""


class MockServers:
    """The servers of a recording, on free ports of the loopback interface. Use it as a context manager; leaving it
    raises RequestsMissed if there were requests without an answer.

    `recording`, `on_miss`, `to`, `forks` and `test` are as for `penstock mock`.
    """

    def __init__(
        self,
        recording: Path | str,
        *,
        on_miss: Literal["fail", "passthrough", "record"] = "fail",
        to: Sequence[str] = (),
        forks: Sequence[str] = (),
        test: str = "",
    ) -> None:
        options = [f"--on-miss={on_miss}", f"--test={test}", *(f"--to={url}" for url in to)]
        self._arguments = [str(recording), *options, *(f"--fork={fork}" for fork in forks)]
        self.environment: dict[str, str] = {}
        """The environment variables by which known clients find the servers."""
        self.report: dict[str, Any] = {}
        """The report of `penstock mock`, once the servers were stopped."""
        self._process: subprocess.Popen[str]

    def __enter__(self) -> Self:
        """Start, and return when they serve clients. Raises RuntimeError if they cannot, with the reason."""
        with contextlib.ExitStack() as stack:
            self._home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-mock-")))
            self._report = self._home / "report.json"
            command = [sys.executable, "-m", "penstock", "mock", *self._arguments, f"--report={self._report}"]
            with (self._home / "log").open("wb") as log:
                self._process = subprocess.Popen(
                    [*command, "--", sys.executable, "-c", _HOLD],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            stack.callback(self._end)
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            if not line:
                self._process.wait(_SECONDS)
                raise RuntimeError(self._log())
            environment = json.loads(line)
            self.environment = {name: value for name, value in environment.items() if os.environ.get(name) != value}
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop. Raises RequestsMissed."""
        with self._stack:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(_SECONDS)
            if not self._report.exists():
                raise RuntimeError(self._log())
            self.report = json.loads(self._report.read_text(encoding="utf-8"))
            if self.report["missed_count"] and error is None:
                raise RequestsMissed(self._log())

    @property
    def url(self) -> str:
        """The URL at which tests are named, see `name_test`."""
        return self.environment[MOCK_URL]

    def address(self, kind: str) -> str:
        """Return HOST:PORT of the server for a kind of client, such as "s2"."""
        return self.environment[f"PENSTOCK_{kind.upper().replace('-', '_')}"]

    @contextlib.contextmanager
    def test(self, name: str) -> Iterator[None]:
        """Give the answers that were recorded for a test until the block ends."""
        name_test(self.url, name)
        try:
            yield
        finally:
            name_test(self.url, "")

    def _log(self) -> str:
        return (self._home / "log").read_text(encoding="utf-8", errors="replace").rstrip()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def name_test(url: str, name: str) -> None:
    """Tell the mock servers at `url` ($PENSTOCK_MOCK_URL) which test asks from now on; "" for none. Raises OSError."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_SECONDS)
    try:
        connection.request("PUT", "/test", name.encode())
        answer = connection.getresponse()
        answer.read()
        if answer.status != http.HTTPStatus.NO_CONTENT:
            raise OSError(f"{url}/test: the answer is {answer.status} {answer.reason}")
    finally:
        connection.close()
