"""The configuration of a command: a file or the built-in one, with flags applied."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from msgspec.structs import replace

from penstock.app.bootstrap import check_files
from penstock.app.config import Config, ConfigError, Management, RecorderTable, default_config, load_config
from penstock.core.errors import CannotStart
from penstock.protocols.controller.config import ControllerListener
from penstock.protocols.s2.config import S2Listener
from penstock.protocols.s3p.config import S3PListener
from penstock.protocols.segment.config import SegmentListener

__all__ = ["BadConfig", "configured", "overridden"]

L = TypeVar("L", bound=S2Listener | S3PListener | SegmentListener | ControllerListener)


class BadConfig(click.ClickException):
    """The configuration or a flag is invalid: one line, and exit code 2."""

    exit_code = 2


def configured(path: Path | None, **flags: Any) -> Config:
    """Load the file at `path` (None: the built-in configuration), apply the flags, and check the files that it names.

    `flags` are those of `overridden`. Raises BadConfig.
    """
    try:
        config = overridden(default_config() if path is None else load_config(path), **flags)
        check_files(config)
    except (ConfigError, ValueError, CannotStart) as error:
        raise BadConfig(str(error)) from error
    return config


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
    allow_host: Sequence[str] = (),
) -> Config:
    """Return `config` with the given flags applied; raises ValueError that names the flag. `anonymous`: all listeners
    for clients serve unauthenticated clients from any machine. `allow_host`: host names that S2 clients may use, in
    addition to the configured ones."""
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
    if allow_host:
        s2_listeners = tuple(replace(each, hosts=(*each.hosts, *allow_host)) for each in listeners.s2)
        listeners = replace(listeners, s2=s2_listeners)
    operators = config.management if management is None else _management(config.management, management)
    store = config.store if data is None else replace(config.store, directory=data)
    log = config.log if log_level is None else replace(config.log, level=log_level)
    recorder = config.recorder if record is None else _recorder(config.recorder, record)
    return replace(config, listeners=listeners, management=operators, store=store, log=log, recorder=recorder)


def _recorder(configured: RecorderTable | None, directory: str) -> RecorderTable:
    """Return a recorder that starts with the gateway; its selection and settings are as configured."""
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
    """Return the listeners of a kind with the first one bound as the flag says, or none if it is "off"."""
    if text is None:
        return configured
    if text == "off":
        return ()
    try:
        return (replace(configured[0] if configured else default, bind=text), *configured[1:])
    except (ValueError, msgspec.ValidationError) as error:
        raise ValueError(_of_flag(flag, error)) from error


def _of_flag(flag: str, error: Exception) -> str:
    """Return the message of an error, naming the flag instead of the key that it sets."""
    return f"{flag}: {str(error).removeprefix('bind: ')}"
