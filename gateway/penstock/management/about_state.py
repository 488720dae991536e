"""Whether it lives, whether it is ready, what is in force, what it counts; and what operators change of that."""

from __future__ import annotations

from typing import Final

import msgspec
import trio

from penstock.errors import CannotReload
from penstock.fronts.exchange import Exchange
from penstock.management.controls import Controls
from penstock.management.masking import as_toml, masked
from penstock.management.positions import query_of
from penstock.management.readiness import Readiness
from penstock.management.settings import ManagementSettings
from penstock.management.words import Answer, Endpoints, NoWords, Refusal, read_words
from penstock.metrics.exposition import render_parts
from penstock.metrics.families import READY
from penstock.observe import LEVELS, level
from penstock_codecs.failures import FailureCode, fail

__all__ = ["AboutState"]

_NO_STORE: Final = ("cache-control", "no-store")
_FORMATS: Final = ("json", "toml")


class _LogWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    level: str


class AboutState:
    """Its endpoints; see docs/management.md."""

    def __init__(self, settings: ManagementSettings, controls: Controls, readiness: Readiness) -> None:
        self._settings = settings
        self._controls = controls
        self._readiness = readiness
        self.open: Endpoints = {
            ("live",): {"GET": self._live},
            ("ready",): {"GET": self._ready},
        }
        """For anybody: those who probe have no token."""
        self.endpoints: Endpoints = {
            ("metrics",): {"GET": self._metrics},
            ("config",): {"GET": self._config},
            ("log",): {"GET": self._log, "PUT": self._set_log},
            ("drain",): {"POST": self._drain},
            ("reload",): {"POST": self._reload},
        }

    # ---- probes --------------------------------------------------------------------------------------------------

    async def _live(self, _exchange: Exchange, _name: str) -> Answer:
        return 200, {"live": True}

    async def _ready(self, _exchange: Exchange, _name: str) -> Answer:
        reasons = await self._readiness.reasons()
        return (503 if reasons else 200), {"ready": not reasons, "reasons": reasons}

    # ---- what is so ----------------------------------------------------------------------------------------------

    async def _metrics(self, exchange: Exchange, _name: str) -> None:
        """In pieces, so that traffic has its turn between them."""
        READY.child().value = int(not await self._readiness.reasons())
        snapshots = await self._controls.snapshots()
        content_type, parts = render_parts(exchange.request.header("accept") or "", snapshots)
        head = [("content-type", content_type), _NO_STORE]
        if exchange.request.method == "HEAD":
            await exchange.respond(200, head)
            return
        await exchange.start(200, head)
        for part in parts:
            await exchange.send([part])
            await trio.lowlevel.checkpoint()
        await exchange.finish()

    async def _config(self, exchange: Exchange, _name: str) -> Answer | None:
        form = query_of(exchange.request.query, ("format",)).get("format", "json")
        if form not in _FORMATS:
            raise fail(FailureCode.BAD_QUERY, f"format: expected {' or '.join(_FORMATS)}, got {form!r:.80}")
        shown = masked(self._controls.config())
        if form == "json":
            return 200, shown
        await exchange.respond(200, [("content-type", "application/toml"), _NO_STORE], as_toml(shown).encode())
        return None

    async def _log(self, _exchange: Exchange, _name: str) -> Answer:
        return 200, {"level": level()}

    # ---- what is changed -----------------------------------------------------------------------------------------

    async def _set_log(self, exchange: Exchange, _name: str) -> Answer:
        words = await read_words(exchange, _LogWords, self._settings.body_seconds)
        if words.level not in LEVELS:
            raise fail(FailureCode.BAD_JSON, f"level: expected one of {', '.join(LEVELS)}, got {words.level!r:.80}")
        self._controls.set_log_level(words.level)
        return 200, {"level": words.level}

    async def _drain(self, exchange: Exchange, _name: str) -> Answer:
        await read_words(exchange, NoWords, self._settings.body_seconds)
        self._controls.drain()
        return 202, {"state": "draining"}

    async def _reload(self, exchange: Exchange, _name: str) -> Answer:
        await read_words(exchange, NoWords, self._settings.body_seconds)
        try:
            return 200, {"changed": await self._controls.reload()}
        except CannotReload as error:
            raise Refusal(409, "cannot_reload", str(error)) from None
