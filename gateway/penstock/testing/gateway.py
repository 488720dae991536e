"""A gateway for tests, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from penstock.app.config import Config
    from penstock.core.address import Address

__all__ = ["Gateway", "GatewayError"]

FREE_PORT: Final = "127.0.0.1:0"
_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.01
_MANAGEMENT: Final = "management"


class GatewayError(RuntimeError):
    """The gateway did not start, or did not stop as it should; the message ends with its log."""


class Gateway:
    """A gateway on free ports of the loopback interface, with a store of its own. Use it as a context manager, or call
    `start` and `stop`.

    `config`: a configuration file, whose first listener of each kind gets a free port; None: a listener of each kind,
    and a basin `penstock` that creates streams when they are used. `directory`: for the store and the log; None: a
    temporary one, which is deleted at the end.
    """

    def __init__(self, config: Path | str | None = None, *, directory: Path | str | None = None) -> None:
        self._file = None if config is None else Path(config)
        self._given = None if directory is None else Path(directory)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._addresses: dict[str, Address] = {}
        self._config: Config

    # ---- life ----------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start, and return when it serves clients. Raises GatewayError, and ConfigError for a wrong configuration."""
        from penstock.app.config import default_config, load_config

        self._config = default_config() if self._file is None else load_config(self._file)
        if self._config.log.format == "console":
            raise GatewayError(f'{self._file}: log.format = "console" hides the ports: leave it out, or use "json"')
        if self._given is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="penstock-gateway-")
        self.directory = self._given or Path(self._temporary.name if self._temporary else "")
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
            )
        try:
            self._wait_until_it_listens()
        except BaseException:
            self._kill()
            raise
        return self

    def stop(self) -> None:
        """Drain and stop. Raises GatewayError if it does not end well. Does nothing if it is not running."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            code: int | None = process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        log = self.log
        self._kill()
        if code != 0:
            how = "did not stop" if code is None else f"ended with exit code {code}"
            raise GatewayError(f"the gateway {how}\n{log}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:  # the block's own exception counts
            with contextlib.suppress(GatewayError):
                self.stop()

    # ---- clients -------------------------------------------------------------------------------------------------

    def address(self, kind: str) -> str:
        """Return HOST:PORT of the first listener of a kind, such as "s2", or of "management"."""
        return str(self._addresses[kind])

    def url(self, kind: str) -> str:
        """Return the URL by which clients reach the first listener of a kind, or of "management"."""
        from penstock.protocols.plugin import listener_kinds

        if kind == _MANAGEMENT:
            return f"http://{self._addresses[kind]}"
        table = getattr(self._config.listeners, kind)[0]
        return listener_kinds()[kind].url(table, self._addresses[kind])

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables by which known clients find the gateway, as for `penstock mock`."""
        from penstock.protocols.environment import client_environment

        clients = {kind: address for kind, address in self._addresses.items() if kind != _MANAGEMENT}
        return client_environment(clients, os.environ)

    @property
    def log(self) -> str:
        """The log so far."""
        return self._log_file.read_text(encoding="utf-8", errors="replace")

    # ---- within --------------------------------------------------------------------------------------------------

    @property
    def _log_file(self) -> Path:
        return self.directory / "gateway.log"

    def _kinds(self) -> list[str]:
        """Return the kinds of the configured listeners."""
        from penstock.protocols.plugin import listener_kinds

        return [kind for kind in listener_kinds() if getattr(self._config.listeners, kind)]

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "penstock", "serve", "--data", str(self.directory / "data")]
        if self._file is not None:
            command += ["--config", str(self._file)]
        for kind in (*self._kinds(), _MANAGEMENT):
            command += [f"--{kind}", FREE_PORT]
        return command

    def _wait_until_it_listens(self) -> None:
        from penstock.core.address import Address

        assert self._process is not None
        wanted = {*self._kinds(), _MANAGEMENT}
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            ended = self._process.poll() is not None
            for line in self.log.splitlines(keepends=True):
                if line.endswith("\n") and '"event":"listening"' in line.replace(": ", ":"):
                    event = json.loads(line)
                    kind = event["listener"].removeprefix("listeners.").partition(".")[0]
                    self._addresses.setdefault(kind, Address(event["host"], event["port"]))
            if wanted <= self._addresses.keys():
                return
            if ended:
                raise GatewayError(f"the gateway ended with exit code {self._process.returncode}\n{self.log}")
            time.sleep(_POLL_SECONDS)
        raise GatewayError(f"the gateway does not listen after {_START_SECONDS:.0f} s\n{self.log}")

    def _kill(self) -> None:
        """End the process if it still runs, and delete the temporary directory."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None
