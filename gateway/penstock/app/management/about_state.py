"""The management endpoints for liveness, readiness, configuration, metrics, log level, drain and reload.

The configuration is shown with its secrets masked.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import tomli_w
import trio

from penstock.app.config import Config
from penstock.app.config.urls import MASKED, without_secrets
from penstock.app.management.controls import Controls
from penstock.app.management.positions import query_of
from penstock.app.management.readiness import Readiness
from penstock.app.management.settings import ManagementSettings
from penstock.app.management.words import Answer, EmptyBody, Endpoints, RequestRefused, read_words
from penstock.core.errors import CannotReload
from penstock.model.failures import FailureCode, fail
from penstock.net.http.exchange import Exchange
from penstock.observe import LEVELS, level
from penstock.observe.metrics.families import READY

__all__ = ["MASKED", "AboutState", "as_toml", "masked"]

_SECRET: Final = re.compile(r"(^|_)(tokens?|passwords?|password_hash|secrets?)\Z")
"""Names of keys that hold secrets. Keys that name a file with a secret do not match."""
_NO_STORE: Final = ("cache-control", "no-store")
_FORMATS: Final = ("json", "toml")


def masked(config: Config) -> dict[str, Any]:
    """Return the configuration as JSON values, without unset keys, each secret replaced by MASKED."""
    shown = _shown(msgspec.to_builtins(config), secret=False)
    assert isinstance(shown, dict), "a configuration is a table"
    return shown


def as_toml(shown: dict[str, Any]) -> str:
    """Return the masked configuration as TOML. Except for the secrets, and for values from flags, it could be the
    configuration file."""
    return tomli_w.dumps(shown)


def _shown(value: object, *, secret: bool) -> object:
    if isinstance(value, dict):
        return {
            key: _shown(inner, secret=secret or _SECRET.search(key) is not None)
            for key, inner in value.items()
            if inner is not None
        }
    if isinstance(value, list | tuple):
        return [_shown(inner, secret=secret) for inner in value]
    if not isinstance(value, str):
        return value
    return MASKED if secret else without_secrets(value)


class _LogWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    level: str


class AboutState:
    """The endpoints; see docs/management.md."""

    def __init__(self, settings: ManagementSettings, controls: Controls, readiness: Readiness) -> None:
        self._settings = settings
        self._controls = controls
        self._readiness = readiness
        self.open: Endpoints = {
            ("live",): {"GET": self._live},
            ("ready",): {"GET": self._ready},
        }
        """Open without authentication: probes have no token."""
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
        return (503 if reasons else 200), {"ready": not reasons, "reasons": [*reasons, *self._controls.warnings()]}

    # ---- reading ---------------------------------------------------------------------------------------------------

    async def _metrics(self, exchange: Exchange, _name: str) -> None:
        """Send the metrics in pieces, so that traffic is served between them."""
        READY.child().value = int(not await self._readiness.reasons())
        from penstock.observe.metrics.exposition import render_parts

        content_type, parts = render_parts(exchange.request.header("accept") or "")
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

    # ---- changing --------------------------------------------------------------------------------------------------

    async def _set_log(self, exchange: Exchange, _name: str) -> Answer:
        words = await read_words(exchange, _LogWords, self._settings.body_seconds)
        if words.level not in LEVELS:
            raise fail(FailureCode.BAD_JSON, f"level: expected one of {', '.join(LEVELS)}, got {words.level!r:.80}")
        self._controls.set_log_level(words.level)
        return 200, {"level": words.level}

    async def _drain(self, exchange: Exchange, _name: str) -> Answer:
        await read_words(exchange, EmptyBody, self._settings.body_seconds)
        self._controls.drain()
        return 202, {"state": "draining"}

    async def _reload(self, exchange: Exchange, _name: str) -> Answer:
        await read_words(exchange, EmptyBody, self._settings.body_seconds)
        try:
            return 200, {"changed": await self._controls.reload()}
        except CannotReload as error:
            raise RequestRefused(409, "cannot_reload", str(error)) from None
