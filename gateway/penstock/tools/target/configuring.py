"""The configuration of a gateway within a command: all fronts, one back, and its routes."""

from __future__ import annotations

from typing import Any, Final, get_type_hints

import msgspec

from penstock.app.config import BackTable, Config, DrainTable, Listeners, Management, RouteTable, StoreTable
from penstock.core.config_fields import DEFAULT_BASIN
from penstock.protocols.plugin import listener_kinds
from penstock.protocols.servers import Server
from penstock.protocols.tables import NumberedBackTable
from penstock_codecs.toml.hints import choices

__all__ = ["TARGET_BACK", "TargetOptions", "target_config"]

_LOSS_KEYS: Final = ("headers", "empty_body", "command_records")
TARGET_BACK: Final = "target"
"""Name of the only back, which messages about the server contain."""
_ANYWHERE: Final = "127.0.0.1:12345"
"""Address of listeners, which never listen."""
_PATIENCE: Final = 1_000_000.0
"""A limit in seconds that is never reached: a recorded client may be silent for as long as it was."""


class TargetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a target beside its URL.

    `token`: the bearer token to present (S2). `tls_ca`: PEM file of the authorities of its certificate; None: the
    system's. `tls_certificate`, `tls_key`: PEM files of a client certificate; None: none is presented. `loss`: one of
    LOSS_WORDS for all that cannot be carried; None: each protocol's default, which mostly refuses. `basin`: of recorded
    S3P and segment clients, whose names have none. `renames`: globs over names of streams with their names on the
    target, as `stream` and `to_stream` of a route that matches by glob; the first match counts.
    """

    token: str | None = None
    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    loss: str | None = None
    basin: str = DEFAULT_BASIN
    renames: tuple[tuple[str, str], ...] = ()


def target_config(target: Server, options: TargetOptions, directory: str) -> Config:
    """Return the configuration. `directory`: of its store. Raises ValueError for renames that make no route."""
    renamed = enumerate((*options.renames, ("**", "{stream}")), 1)
    return Config(
        listeners=_listeners(options),
        backs={TARGET_BACK: _back(target, options)},
        routes=tuple(_route(target, f"{TARGET_BACK}-{number}", *names) for number, names in renamed),
        management=Management(enabled=False),
        store=StoreTable(directory=directory),
        drain=DrainTable(grace_seconds=0.0, deadline_seconds=0.0),
    )


def _route(target: Server, name: str, pattern: str, to_stream: str) -> RouteTable:
    everything = (pattern, to_stream) == ("**", "{stream}")
    basin, to_stream = target.kind.named(target, to_stream)
    unchanged = everything and to_stream == "{stream}"
    names = {} if unchanged else {"match": "glob", "stream": pattern, "to_stream": to_stream}
    return msgspec.convert({"name": name, "back": TARGET_BACK, "to_basin": basin, **names}, RouteTable)


def _listeners(options: TargetOptions) -> Listeners:
    tables = {
        name: [{"bind": _ANYWHERE, **kind.replaying(options.basin, _PATIENCE), **_loss(kind.table, options.loss)}]
        for name, kind in listener_kinds().items()
    }
    return msgspec.convert(tables, Listeners)


def _loss(table: type[msgspec.Struct], word: str | None) -> dict[str, Any]:
    """Return the key `loss` of a table, with `word` for each loss that allows it; nothing if it has no such key."""
    kind = get_type_hints(table).get("loss")
    if kind is None:
        return {}
    hints = get_type_hints(kind, include_extras=True)
    return {"loss": {key: word for key in _LOSS_KEYS if word is not None and word in choices(hints[key])}}


def _back(target: Server, options: TargetOptions) -> BackTable:
    kind = target.kind
    table: dict[str, Any] = {"tls": target.tls, **kind.settings(target), **_loss(kind.back, options.loss)}
    if target.tls:
        table |= {key: getattr(options, key) for key in ("tls_ca", "tls_certificate", "tls_key")}
    if issubclass(kind.back, NumberedBackTable):
        table["create_streams"] = True
    if options.token is not None and kind.takes_token:
        table |= {"credentials": "static", "token": options.token}
    return msgspec.convert({"kind": kind.back.__struct_config__.tag, **table}, kind.back)
