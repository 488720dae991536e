"""The management listener's requests; docs/management.md has them all."""

from __future__ import annotations

from penstock.fronts.exchange import Exchange
from penstock.management.overview import Overview
from penstock.management.settings import ManagementSettings

__all__ = ["ManagementFront"]


class ManagementFront:
    """Answers HTTP exchanges in JSON; `handle` is the handler of an HTTP server."""

    def __init__(self, overview: Overview, settings: ManagementSettings) -> None:
        self._overview = overview
        self._settings = settings
        self._draining = False

    def drain(self) -> None:
        """From now on `GET /health` says 503."""
        self._draining = True

    async def handle(self, exchange: Exchange) -> None:
        """Answer one exchange. Never raises for what a client did."""
        await exchange.respond(503 if self._draining else 200, [])
