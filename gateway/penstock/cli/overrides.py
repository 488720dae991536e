"""The configuration of a command: a file or the built-in one, with flags applied."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from penstock.app.bootstrap import check_files
from penstock.app.config import Config, ConfigError, Management, RecorderTable, default_config, load_config
from penstock.core.config_fields import Token
from penstock.core.errors import CannotStart
from penstock.protocols.plugin import ListenerKind, listener_kinds
from penstock.protocols.tables import ListenerTable

__all__ = ["BadConfig", "configured", "overridden"]


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
    management: str | None = None,
    management_token: str | None = None,
    data: str | None = None,
    log_level: str | None = None,
    record: str | None = None,
    anonymous: bool = False,
    allow_host: Sequence[str] = (),
    no_others: bool = False,
    **addresses: str | None,
) -> Config:
    """Return `config` with the given flags applied; raises ValueError that names the flag. `addresses`: for each kind
    of listener where its first one is bound, "off" for none. `anonymous`: all listeners for clients serve
    unauthenticated clients from any machine. `management_token`: one more of `management.auth_tokens`. `allow_host`:
    host names that clients may use over HTTP, in addition to the configured ones. `no_others`: listeners without an
    address here are off, also the management listener."""
    if no_others:
        addresses = {name: addresses.get(name) or "off" for name in listener_kinds()}
        management = management or "off"
    changed = {}
    for name, kind in listener_kinds().items():
        tables = _listeners(f"--{name}", addresses.get(name), getattr(config.listeners, name), kind)
        if anonymous:
            tables = tuple(replace(table, anonymous=True) for table in tables)
        changed[name] = tuple(_with_hosts(table, allow_host) for table in tables)
    operators = config.management if management is None else _management(config.management, management)
    if management_token is not None:
        try:
            token = msgspec.convert(management_token, Token)
        except msgspec.ValidationError:
            raise ValueError("--management-token: a token is visible ASCII without spaces") from None
        operators = replace(operators, auth_tokens=(*operators.auth_tokens, token))
    store = config.store if data is None else replace(config.store, directory=data)
    log = config.log if log_level is None else replace(config.log, level=log_level)
    recorder = config.recorder if record is None else _recorder(config.recorder, record)
    listeners = replace(config.listeners, **changed)
    return replace(config, listeners=listeners, management=operators, store=store, log=log, recorder=recorder)


def _with_hosts(table: ListenerTable, allow_host: Sequence[str]) -> ListenerTable:
    """Return a listener's table with more host names, if it checks them at all."""
    if not (allow_host and hasattr(table, "hosts")):
        return table
    return replace(table, hosts=(*table.hosts, *allow_host))


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


def _listeners(
    flag: str, text: str | None, configured: tuple[ListenerTable, ...], kind: ListenerKind[Any]
) -> tuple[ListenerTable, ...]:
    """Return the listeners of a kind with the first one bound as the flag says, or none if it is "off"."""
    if text is None:
        return configured
    if text == "off":
        return ()
    try:
        return (replace(configured[0] if configured else kind.table(), bind=text), *configured[1:])
    except (ValueError, msgspec.ValidationError) as error:
        raise ValueError(_of_flag(flag, error)) from error


def _of_flag(flag: str, error: Exception) -> str:
    """Return the message of an error, naming the flag instead of the key that it sets."""
    return f"{flag}: {str(error).removeprefix('bind: ')}"
