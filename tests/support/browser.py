"""A real browser without windows, driven by the DevTools protocol over two pipes: nothing but the browser is needed."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from support.real_peers import chromium_program

__all__ = ["Browser", "Tab", "browser_program"]

SECONDS = 30.0
_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # its processes may not make namespaces in most containers; only our own pages are opened
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--mute-audio",
    "--hide-scrollbars",
    "--window-size=1280,1000",
)


def browser_program() -> Path:
    """Return the path of the browser; skips the test if there is none."""
    program = chromium_program()
    if not program.exists():
        pytest.skip("chromium is not installed")
    return program


class Browser:
    """One browser with a profile of its own; use it as a context manager. `flags`: further ones of its command line."""

    def __init__(self, program: Path, *flags: str) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="penstock-browser-", ignore_cleanup_errors=True)
        theirs_in, self._out = _pipe()
        self._in, theirs_out = _pipe()
        # The browser reads its file 3 and writes to its file 4.
        script = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out} {theirs_in}<&- {theirs_out}>&-'
        profile = f"--user-data-dir={self._profile.name}"
        self._log = Path(self._profile.name) / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", script, program, *_FLAGS, *flags, profile, "about:blank"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs_in, theirs_out),
                start_new_session=True,
                env={**os.environ, "HOME": self._profile.name},
            )
        os.close(theirs_in)
        os.close(theirs_out)
        self._held = b""
        self._number = 0
        self._events: list[dict[str, Any]] = []

    def tab(self, url: str) -> Tab:
        """Open a page; it is loaded when this returns."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        tab = Tab(self, session, target)
        for domain in ("Page", "Runtime", "Log"):
            tab.call(f"{domain}.enable")
        tab.load(url)
        return tab

    # ---- the protocol --------------------------------------------------------------------------------------------

    def call(self, method: str, params: dict[str, Any] | None = None, session: str | None = None) -> dict[str, Any]:
        """Return the result of a command. Raises AssertionError with the browser's error."""
        self._number += 1
        number = self._number
        command = {"id": number, "method": method, "params": params or {}}
        if session is not None:
            command["sessionId"] = session
        os.write(self._out, json.dumps(command).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while True:
            said = self._next(deadline)
            if said.get("id") == number:
                assert "error" not in said, (method, said["error"])
                return dict(said["result"])
            self._events.append(said)

    def events(self, method: str, session: str) -> list[dict[str, Any]]:
        """Return the parameters of all events of this method and session so far."""
        return [one["params"] for one in self._events if (one.get("method"), one.get("sessionId")) == (method, session)]

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._held:
            ready, _, _ = select.select([self._in], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self._in, 1 << 20) if ready else b""
            assert data, f"the browser says nothing more\n{self._log.read_text(errors='replace')[-2000:]}"
            self._held += data
        message, _, self._held = self._held.partition(b"\0")
        return dict(json.loads(message))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._out)  # this ends the browser
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        os.close(self._in)
        self._profile.cleanup()


class Tab:
    """One page of a browser."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target
        self._forgiven = 0

    def call(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """See `Browser.call`."""
        return self._browser.call(method, params, self._session)

    def load(self, url: str) -> None:
        """Go there, and wait until its document and scripts are there."""
        self.call("Page.navigate", {"url": url})
        self.until(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression. Raises AssertionError if it throws."""
        found = self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True})
        assert "exceptionDetails" not in found, (expression, found["exceptionDetails"])
        return found["result"].get("value")

    def until(self, expression: str, seconds: float = SECONDS) -> None:
        """Wait for JavaScript to be true, in this document or the one that takes its place meanwhile."""
        deadline = time.monotonic() + seconds
        while not self._holds(expression):
            assert time.monotonic() < deadline, (expression, self.text("body")[:1500], self.complaints())
            time.sleep(0.02)

    def _holds(self, expression: str) -> bool:
        try:
            return bool(self.evaluate(f"Boolean({expression})"))
        except AssertionError as error:
            if "navigated" not in str(error):
                raise
            return False

    def text(self, selector: str) -> str:
        """Return the visible text of the first element that matches, or ""."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def click(self, selector: str) -> None:
        """Click in the middle of the element with the mouse; nothing may cover it."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.until(f"{element} !== null && !{element}.disabled")
        place = self.evaluate(
            f"(() => {{ const one = {element}; one.scrollIntoView({{block: 'center', behavior: 'instant'}});"
            "const box = one.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;"
            "const top = document.elementFromPoint(x, y);"
            "return {x, y, clear: top !== null && (top === one || one.contains(top) || top.contains(one))}; })()"
        )
        assert place["clear"], f"{selector} is covered, or not to be seen"
        mouse = {"x": place["x"], "y": place["y"], "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", {"type": kind, **mouse})

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self.call("Input.insertText", {"text": text})

    def key(self, key: str, code: int, text: str = "") -> None:
        """Press a key that is no letter, as `Enter`, 13."""
        said = {"key": key, "code": key, "windowsVirtualKeyCode": code, "text": text}
        self.call("Input.dispatchKeyEvent", {"type": "keyDown", **said})
        self.call("Input.dispatchKeyEvent", {"type": "keyUp", **said})

    def dark(self, dark: bool) -> None:
        """Emulate a user who prefers dark or light colours."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", {"features": features})

    def screenshot(self, path: Path) -> None:
        """Return the whole page as a PNG."""
        taken = self.call("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(taken["data"]))

    def complaints(self) -> list[str]:
        """Errors on the console: exceptions, and what the policy of the page refused."""
        thrown = [
            str(one["exceptionDetails"]) for one in self._browser.events("Runtime.exceptionThrown", self._session)
        ]
        entries = [one["entry"] for one in self._browser.events("Log.entryAdded", self._session)]
        said = thrown + [f"{one['level']}: {one['text']}" for one in entries if one["level"] == "error"]
        return said[self._forgiven :]

    def forgive(self) -> None:
        """Accept the complaints so far as expected."""
        self._forgiven += len(self.complaints())

    def close(self) -> None:
        """Close the tab."""
        self._browser.call("Target.closeTarget", {"targetId": self._target})


def _pipe() -> tuple[int, int]:
    """With numbers that the browser does not need."""
    found = []
    for end in os.pipe():
        found.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20))
        os.close(end)
    return found[0], found[1]
