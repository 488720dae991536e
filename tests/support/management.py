"""Asking a management listener: one in memory over a store, or that of a real gateway."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from support.http.client import Answer, HttpClient, serving
from support.process import GatewayProcess

from penstock.app.config import default_config
from penstock.app.management.controls import Controls
from penstock.app.management.front import ManagementFront
from penstock.app.management.overview import BackView, ListenerView, Overview, RouteView
from penstock.app.management.settings import ManagementSettings
from penstock.app.management.traffic import Traffic
from penstock.core.back import Back
from penstock.core.errors import CannotReload
from penstock_pravega.segment.names import SegmentNames
from penstock_pravega.segment.terms import SegmentTerms
from penstock_s2.terms import S2Terms
from penstock_s3p.names import BasinInName, S3PNames
from penstock_s3p.terms import S3PTerms

JSON = [("content-type", "application/json")]


def overview(back: Back, *, s3p: S3PNames | None = None, routes: dict[str, RouteView] | None = None) -> Overview:
    """One listener of each kind over `back`."""
    return Overview(
        listeners=[
            ListenerView(name="listeners.s2", kind="s2", back=back, terms=S2Terms("s2")),
            ListenerView(name="listeners.s3p", kind="s3p", back=back, terms=S3PTerms(s3p or BasinInName())),
            ListenerView(name="listeners.segment", kind="segment", back=back, terms=SegmentTerms(SegmentNames())),
        ],
        routes=routes or {},
        backs=[BackView(name="embedded", kind="embedded")],
    )


class Asker:
    """Asks, and reads the answers' JSON."""

    def __init__(self, client: HttpClient, front: ManagementFront) -> None:
        self.client = client
        self.front = front

    async def ask(
        self, method: str, target: str, headers: list[tuple[str, str]] | None = None, body: bytes = b""
    ) -> Answer:
        """One request and its answer, which is JSON that ends in a newline, and kept by no cache."""
        answer = await self.client.ask(method, target, headers, body)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "no-store"
        assert method == "HEAD" or answer.body.endswith(b"\n"), answer.body
        return answer

    async def get(self, target: str, status: int = 200) -> Any:
        """Return the JSON of an answer that must have this status."""
        answer = await self.ask("GET", target)
        assert answer.status == status, answer
        return json.loads(answer.body)

    async def post(self, target: str, words: dict[str, Any], status: int = 200) -> Any:
        """Return the same as `get`, for a POST."""
        answer = await self.ask("POST", target, JSON, json.dumps(words).encode())
        assert answer.status == status, answer
        return json.loads(answer.body)


class Process:
    """A double of the process that operators control: calls are noted in `asked`; the other fields are its answers."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.config = default_config()
        self.reasons: list[str] = []
        self.warnings: list[str] = []
        self.refusal: str | None = None
        self.connections: set[int] = set()

    async def _reload(self) -> str:
        self.asked.append("reload")
        if self.refusal is not None:
            raise CannotReload(self.refusal)
        return "routes: added orders"

    def _close(self, number: int) -> bool:
        self.asked.append(("close", number))
        return number in self.connections

    @property
    def controls(self) -> Controls:
        """As the server fills it in."""
        return Controls(
            config=lambda: self.config,
            draining=lambda: "drain" in self.asked,
            not_ready=lambda: self.reasons,
            warnings=lambda: self.warnings,
            drain=lambda: self.asked.append("drain"),
            reload=self._reload,
            set_log_level=lambda level: self.asked.append(("level", level)),
            close_connection=self._close,
        )


@asynccontextmanager
async def asking(
    shown: Overview,
    settings: ManagementSettings | None = None,
    traffic: Traffic | None = None,
    process: Process | None = None,
) -> AsyncIterator[Asker]:
    """A connection to a front that shows this."""
    controls = None if process is None else process.controls
    front = ManagementFront(shown, settings or ManagementSettings(), traffic, controls)
    async with serving(front.handle, "http/1.1") as client:
        yield Asker(client, front)


def management_port(gateway: GatewayProcess) -> int:
    """Wait for a real gateway's management listener and return its port; that listener is opened last."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for event in gateway.events("listening"):
            if event["listener"] == "management":
                return int(event["port"])
        time.sleep(0.01)
    raise AssertionError(f"no management listener\n{gateway.log_tail()}")


def ask(port: int, target: str, words: object = None, method: str | None = None) -> tuple[int, Any]:
    """Status and JSON of an answer of a real gateway; with `words` it is asked by POST, unless `method` says else."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        if words is None:
            connection.request(method or "GET", target)
        else:
            connection.request(method or "POST", target, json.dumps(words), dict(JSON))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()
