"""The configuration of the gateway within `penstock replay` and `penstock diff`: every front, one back, one route."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, get_type_hints

import msgspec

from penstock.config import (
    BackTable,
    Config,
    Drain,
    Listeners,
    RouteTable,
    S3PBack,
    S3PListener,
    SegmentBack,
    SegmentListener,
    Store,
)
from penstock.config.fields import DEFAULT_BASIN
from penstock.config.hints import choices
from penstock.replay.target import Target, TargetKind
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.s2.names import validate_basin_name

__all__ = ["LOSS_WORDS", "TargetOptions", "target_config"]

LOSS_WORDS: Final = ("refuse", "envelope", "drop")
"""What may be done with what a protocol cannot carry (docs/loss.md)."""
_LOSS_KEYS: Final = ("headers", "empty_body", "command_records")
_NAME: Final = "target"
_ANYWHERE: Final = "127.0.0.1:12345"
"""Where listeners that never listen are said to be."""
_PATIENCE: Final = 1_000_000.0
"""Seconds. A recorded client may be as silent as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """What is said of a target beside its URL.

    `token`: the bearer token that it is shown (S2). `tls_ca`: PEM file with the authorities that may have signed its
    certificate; None: the system's. `loss`: one of LOSS_WORDS for all that cannot be carried; None: each protocol's
    default, which mostly refuses. `basin`: of recorded S3P and segment clients whose names have none. `rename`:
    templates for basin and stream on the target, as `to_basin` and `to_stream` of a route; "": the same.
    """

    token: str | None = None
    tls_ca: str | None = None
    loss: str | None = None
    basin: str = DEFAULT_BASIN
    rename: tuple[str, str] = ("", "")


def target_config(target: Target, options: TargetOptions, directory: str) -> Config:
    """The configuration. `directory`: of its store."""
    to_basin, to_stream = _names(target, options)
    route = RouteTable(name=_NAME, back=_NAME, to_basin=to_basin, to_stream=to_stream)
    return Config(
        listeners=_listeners(options),
        backs={_NAME: _back(target, options)},
        routes=(route,),
        store=Store(directory=directory),
        drain=Drain(grace_seconds=0.0, deadline_seconds=0.0),
    )


def _names(target: Target, options: TargetOptions) -> tuple[str | None, str | None]:
    """What streams are called there: templates of a route."""
    basin, stream = (text or None for text in options.rename)
    if target.space is None:
        return (DEFAULT_BASIN if target.kind is TargetKind.S3P else basin), stream
    if target.kind in (TargetKind.S2, TargetKind.S3P) or _is_basin(target.space):
        return target.space, stream
    return DEFAULT_BASIN, f"{target.space}/{stream or '{stream}'}"  # docs/names.md: scopes that are no basin's name


def _is_basin(name: str) -> bool:
    try:
        validate_basin_name(name, FailureCode.INVALID)
    except OperationFailed:
        return False
    return True


def _listeners(options: TargetOptions) -> Listeners:
    patient = {"idle_timeout_seconds": _PATIENCE}
    common = {"bind": _ANYWHERE, "basin": options.basin, "limits": patient}
    tables = {
        "s2": [{"bind": _ANYWHERE, "default_basin": options.basin}],
        "s3p": [{**common, "loss": _loss(S3PListener, options.loss)}],
        "segment": [{**common, "loss": _loss(SegmentListener, options.loss)}],
        "controller": [{"bind": _ANYWHERE, "advertise": _ANYWHERE}],
    }
    return msgspec.convert(tables, Listeners)


def _loss(table: type[msgspec.Struct], word: str | None) -> dict[str, str]:
    """The loss table of a listener or back where all of it is `word`, as far as it can be."""
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
    return msgspec.convert(table, BackTable)  # type: ignore[no-any-return]
