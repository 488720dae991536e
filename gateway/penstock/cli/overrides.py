"""Command-line flags over a configuration."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec.structs import replace

from penstock.config import (
    Config,
    ControllerListener,
    Management,
    RecorderTable,
    S2Listener,
    S3PListener,
    SegmentListener,
)

__all__ = ["overridden"]

L = TypeVar("L", bound=S2Listener | S3PListener | SegmentListener | ControllerListener)


def overridden(
    config: Config,
    *,
    s2: str | None = None,
    s3p: str | None = None,
    segment: str | None = None,
    controller: str | None = None,
    management: str | None = None,
    data: str | None = None,
    log_level: str | None = None,
    record: str | None = None,
    anonymous: bool = False,
) -> Config:
    """`config` with the flags that were given; raises ValueError that names the flag. `anonymous`: all listeners for
    clients serve whoever reaches them."""
    listeners = replace(
        config.listeners,
        s2=_listeners("--s2", s2, config.listeners.s2, S2Listener()),
        s3p=_listeners("--s3p", s3p, config.listeners.s3p, S3PListener()),
        segment=_listeners("--segment", segment, config.listeners.segment, SegmentListener()),
        controller=_listeners("--controller", controller, config.listeners.controller, ControllerListener()),
    )
    if anonymous:
        listeners = replace(
            listeners,
            s2=_to_anybody(listeners.s2),
            s3p=_to_anybody(listeners.s3p),
            segment=_to_anybody(listeners.segment),
            controller=_to_anybody(listeners.controller),
        )
    operators = config.management if management is None else _management(config.management, management)
    store = config.store if data is None else replace(config.store, directory=data)
    log = config.log if log_level is None else replace(config.log, level=log_level)
    recorder = config.recorder if record is None else _recorder(config.recorder, record)
    return replace(config, listeners=listeners, management=operators, store=store, log=log, recorder=recorder)


def _recorder(configured: RecorderTable | None, directory: str) -> RecorderTable:
    """Record from the start; which connections, and how, is as configured."""
    try:
        if configured is None:
            return RecorderTable(directory=directory)
        return replace(configured, directory=directory, start=True)
    except ValueError as error:
        raise ValueError(f"--record: {error}") from error


def _management(configured: Management, text: str) -> Management:
    if text == "off":
        return replace(configured, enabled=False)
    try:
        return replace(configured, enabled=True, bind=text)
    except ValueError as error:
        raise ValueError(_of_flag("--management", error)) from error


def _to_anybody(listeners: tuple[L, ...]) -> tuple[L, ...]:
    return tuple(replace(listener, anonymous=True) for listener in listeners)


def _listeners(flag: str, text: str | None, configured: tuple[L, ...], default: L) -> tuple[L, ...]:
    """Of several listeners of a kind, the first one is meant."""
    if text is None:
        return configured
    if text == "off":
        return ()
    try:
        return (replace(configured[0] if configured else default, bind=text), *configured[1:])
    except (ValueError, msgspec.ValidationError) as error:
        raise ValueError(_of_flag(flag, error)) from error


def _of_flag(flag: str, error: Exception) -> str:
    """What is wrong with a flag, which is not called as the key that it sets."""
    return f"{flag}: {str(error).removeprefix('bind: ')}"
