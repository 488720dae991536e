"""The configuration of the gateway within `penstock replay` and `penstock diff`: all fronts, one back, and its
routes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, get_type_hints

import msgspec

from penstock.app.config import BackTable, Config, Drain, Listeners, Management, RouteTable, Store
from penstock.app.config.backs import AnyBack
from penstock.core.config_fields import DEFAULT_BASIN
from penstock.protocols.s3p.config import S3PBack, S3PListener
from penstock.protocols.segment.config import SegmentBack, SegmentListener
from penstock.tools.replay.target import Target, TargetKind
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.s2.names import validate_basin_name
from penstock_codecs.toml.hints import choices

__all__ = ["TargetOptions", "target_config"]

_LOSS_KEYS: Final = ("headers", "empty_body", "command_records")
_NAME: Final = "target"
_SCOPES: Final = frozenset({TargetKind.SEGMENT, TargetKind.PRAVEGA})
_ANYWHERE: Final = "127.0.0.1:12345"
"""Address of listeners, which never listen."""
_PATIENCE: Final = 1_000_000.0
"""A limit in seconds that is never reached: a recorded client may be silent for as long as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """Options of a target beside its URL.

    `token`: the bearer token to present (S2). `tls_ca`: PEM file of the authorities of its certificate; None: the
    system's. `loss`: one of LOSS_WORDS for all that cannot be carried; None: each protocol's default, which mostly
    refuses. `basin`: of recorded S3P and segment clients, whose names have none. `renames`: globs over names of streams
    with their names on the target, as `stream` and `to_stream` of a route that matches by glob; the first match counts.
    """

    token: str | None = None
    tls_ca: str | None = None
    loss: str | None = None
    basin: str = DEFAULT_BASIN
    renames: tuple[tuple[str, str], ...] = ()


def target_config(target: Target, options: TargetOptions, directory: str) -> Config:
    """Return the configuration. `directory`: of its store. Raises ValueError for renames that make no route."""
    renamed = enumerate((*options.renames, ("**", "{stream}")), 1)
    return Config(
        listeners=_listeners(options),
        backs={_NAME: _back(target, options)},
        routes=tuple(_route(target, f"{_NAME}-{number}", *names) for number, names in renamed),
        management=Management(enabled=False),
        store=Store(directory=directory),
        drain=Drain(grace_seconds=0.0, deadline_seconds=0.0),
    )


def _route(target: Target, name: str, pattern: str, to_stream: str) -> RouteTable:
    basin: str | None = target.space
    if target.space is None:
        basin = DEFAULT_BASIN if target.kind is TargetKind.S3P else None
    elif target.kind in _SCOPES and not _is_basin(target.space):
        basin, to_stream = (
            DEFAULT_BASIN,
            f"{target.space}/{to_stream}",
        )  # docs/names.md: scopes that are no valid basins
    everything = (pattern, to_stream) == ("**", "{stream}")
    names = {} if everything else {"match": "glob", "stream": pattern, "to_stream": to_stream}
    return msgspec.convert({"name": name, "back": _NAME, "to_basin": basin, **names}, RouteTable)


def _is_basin(name: str) -> bool:
    try:
        validate_basin_name(name, FailureCode.INVALID)
    except OperationFailed:
        return False
    return True


def _listeners(options: TargetOptions) -> Listeners:
    patient, kept = {"idle_timeout_seconds": _PATIENCE}, {"keep_alive_seconds": _PATIENCE}
    common = {"bind": _ANYWHERE, "basin": options.basin, "limits": patient}
    tables = {
        "s2": [{"bind": _ANYWHERE, "default_basin": options.basin, "limits": kept}],
        "s3p": [{**common, "loss": _loss(S3PListener, options.loss)}],
        "segment": [{**common, "loss": _loss(SegmentListener, options.loss)}],
        "controller": [{"bind": _ANYWHERE, "advertise": _ANYWHERE, "limits": kept}],
    }
    return msgspec.convert(tables, Listeners)


def _loss(table: type[msgspec.Struct], word: str | None) -> dict[str, str]:
    """Return the loss table of a listener or back with `word` for each loss that allows it."""
    hints = get_type_hints(get_type_hints(table)["loss"], include_extras=True)
    return {key: word for key in _LOSS_KEYS if word is not None and word in choices(hints[key])}


def _back(target: Target, options: TargetOptions) -> BackTable:
    table: dict[str, Any] = {"tls": target.tls}
    if target.tls:
        table["tls_ca"] = options.tls_ca
    if target.kind is not TargetKind.S2:
        table["create_streams"] = True
    match target.kind:
        case TargetKind.S2:
            table |= {"kind": "s2", "address": str(target.address)}
            if options.token is not None:
                table |= {"credentials": "static", "token": options.token}
        case TargetKind.S3P:
            names = "fixed" if target.space is None else "path"
            loss = _loss(S3PBack, options.loss)
            table |= {"kind": "s3p", "address": str(target.address), "names": names, "loss": loss}
        case TargetKind.SEGMENT | TargetKind.PRAVEGA:
            where = "controller" if target.kind is TargetKind.PRAVEGA else "address"
            dialect = "draft" if target.draft else "released"
            loss = _loss(SegmentBack, options.loss)
            table |= {"kind": "segment", where: str(target.address), "dialect": dialect, "loss": loss}
    return msgspec.convert(table, AnyBack)
